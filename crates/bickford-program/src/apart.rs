//! Unmounting in a process of its own.
//!
//! Unmounting waits for answers of the process that serves without letting itself be killed: were it a thread of
//! that one, a SIGKILL would leave it, and the mount, there for good. So the program runs itself once more.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use bickford::mount::{MountGuard, Unmount, unmount_only};
use rustix::io::Errno;

use crate::background::MARK;
use crate::terminal;

/// Asks this program to unmount its first argument and nothing else; the value is
/// [`MountGuard::identity`], so that another daemon's mount, which is there meanwhile, stays.
pub const UNMOUNT: &str = "BICKFORD_UNMOUNT";

/// The status of a process that was asked to unmount; `None` in any other. To be asked before anything else.
#[must_use]
pub fn unmount_if_asked() -> Option<ExitCode> {
    let identity = std::env::var_os(UNMOUNT)?;
    let identity = identity.to_str().and_then(|text| text.parse().ok());
    let mountpoint = std::env::args_os().nth(1).map(PathBuf::from);
    let (Some(identity), Some(mountpoint)) = (identity, mountpoint) else {
        terminal::tell(&format!("{UNMOUNT} is set, but not to a mount: unset it"));
        return Some(ExitCode::FAILURE);
    };
    // Started in the mount, this process would keep it busy itself.
    let unmounted = std::env::set_current_dir("/").map_err(|error| format!("cd /: {error}"));
    let unmounted = unmounted.and_then(|()| {
        let unmounted = unmount_only(&mountpoint, Some(identity), Unmount::Normal);
        unmounted.map_err(|error| error.to_string())
    });
    Some(match unmounted {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            terminal::tell(&reason);
            ExitCode::FAILURE
        }
    })
}

/// Has such a process unmount it.
pub(crate) fn unmount_apart(guard: &MountGuard) -> Result<(), String> {
    // By the path alone it could be another daemon's, which has been mounted there meanwhile.
    let identity = guard.identity();
    let identity =
        identity.ok_or("the mount cannot be told from others by a process of its own")?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(OsStr::new(terminal::name()))
        .arg(guard.mountpoint())
        .env(UNMOUNT, identity.to_string());
    let output = command
        .env_remove(MARK)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        // Whoever started this program had SIGCHLD ignored: nobody can tell how a child ended.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::CHILD) && !guard.is_mounted() => {
            Ok(())
        }
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            let reason = reason.trim_end();
            Err(reason
                .strip_prefix(&format!("{}: ", terminal::name()))
                .unwrap_or(reason)
                .to_owned())
        }
        Err(error) => Err(format!("run this program again to unmount: {error}")),
    }
}
