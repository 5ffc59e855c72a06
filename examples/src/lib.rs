//! What the examples share: arguments, mounting, and the way out.

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use bickford::mount::{AccessPolicy, Unmount};
use bickford::ops::Attr;
use bickford::path::{Adapter, Options};
use bickford::transport::TransportChoice;
use bickford::{FileSystem, MountOptions, Session, SessionConfig, path};
use rustix::process::{getgid, getuid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What `main` of an example answers, and what else may fail in a way that is to be told.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The arguments, as many as `usage` names after the program.
///
/// # Errors
/// The usage, when there are more or fewer.
pub fn arguments<const N: usize>(usage: &str) -> Result<[OsString; N], String> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.try_into().map_err(|_| format!("usage: {usage}"))
}

/// The transport that the environment asks for: `BICKFORD_TRANSPORT=auto`, `dev_fuse` or
/// `io_uring`.
fn transport() -> Result<TransportChoice, String> {
    match std::env::var("BICKFORD_TRANSPORT").as_deref() {
        Err(_) | Ok("auto") => Ok(TransportChoice::Auto),
        Ok("dev_fuse") => Ok(TransportChoice::DevFuse),
        Ok("io_uring") => Ok(TransportChoice::IoUring),
        Ok(other) => Err(format!(
            "BICKFORD_TRANSPORT={other}: auto, dev_fuse or io_uring"
        )),
    }
}

/// The attributes of an empty root directory that belongs to whoever mounts.
#[must_use]
pub fn root() -> Attr {
    Attr {
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        ..Attr::directory(1, 0o755)
    }
}

/// Serves a file system over paths that has owners, permissions and inode numbers of its own. The
/// kernel checks permissions, so everybody may come in where that is allowed; the numbers tell which
/// names are one file.
///
/// # Errors
/// When it cannot be mounted.
pub fn serve_for_all(
    filesystem: impl path::FileSystem,
    mountpoint: impl AsRef<Path>,
    name: &str,
) -> Outcome {
    let mut mount = MountOptions::new().fsname(name).subtype(name);
    mount = mount.default_permissions(true);
    if getuid().is_root() {
        mount = mount.access(AccessPolicy::Everyone);
    }
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    let adapter = Adapter::new(filesystem, options);
    serve_with(adapter, mountpoint, &mount, |_| {})
}

// ANCHOR: serve
/// Mounts a file system, says so, and serves it until it is unmounted or a signal comes.
///
/// # Errors
/// When it cannot be mounted.
pub fn serve(filesystem: impl FileSystem, mountpoint: impl AsRef<Path>, name: &str) -> Outcome {
    let options = MountOptions::new().fsname(name).subtype(name);
    serve_with(filesystem, mountpoint, &options, |_| {})
}

/// The same with other options; `begin` is called once the mount answers.
///
/// # Errors
/// When it cannot be mounted.
pub fn serve_with(
    filesystem: impl FileSystem,
    mountpoint: impl AsRef<Path>,
    options: &MountOptions,
    begin: impl FnOnce(&Session),
) -> Outcome {
    let config = SessionConfig::default().transport(transport()?);
    let session = Session::mount(filesystem, &mountpoint, options, config);
    // `main` shows errors as programmers see them; this one is for whoever mounts.
    let session = session.map_err(|error| error.to_string())?;
    begin(&session);
    // For `bickford stat`, and the times of `bickford trace`.
    let control = session.serve_control();
    if let Err(error) = &control {
        eprintln!("no statistics for others: {error}");
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let stop = signals.handle();
    let transport = session.transport_name();
    println!("serving {} over {transport}", mountpoint.as_ref().display());
    std::thread::scope(|scope| {
        let unmounts = scope.spawn(|| {
            if signals.forever().next().is_some()
                && let Err(error) = session.unmount(Unmount::Lazy)
            {
                eprintln!("{error}");
            }
        });
        session.wait();
        stop.close();
        drop(unmounts.join());
    });
    drop(control);
    Ok(())
}
// ANCHOR_END: serve

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
