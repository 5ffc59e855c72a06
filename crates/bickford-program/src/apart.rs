//! Unmounting in a process of its own.
//!
//! Unmounting waits for answers of the process that serves without letting itself be killed: were it a thread of
//! that one, a SIGKILL would leave it, and the mount, there for good. So the program runs itself once more.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bickford::mount::{MountGuard, Unmount, unmount_only};
use rustix::io::Errno;

use crate::background::MARK;
use crate::status::Status;
use crate::{terminal, words};

/// Asks this program to unmount and to do nothing else: `IDENTITY:MOUNTPOINT`. With [`MountGuard::identity`]
/// another daemon's mount, which is there meanwhile, stays.
pub const UNMOUNT: &str = "BICKFORD_UNMOUNT";

/// What is to be unmounted.
fn asked(told: &OsStr) -> Option<(u64, PathBuf)> {
    let told = told.as_bytes();
    let colon = told.iter().position(|byte| *byte == b':')?;
    let (identity, path) = (told.get(..colon)?, told.get(colon + 1..)?);
    let identity = std::str::from_utf8(identity).ok()?.parse().ok()?;
    Some((identity, PathBuf::from(OsStr::from_bytes(path))))
}

/// The status of a process that was asked to unmount; `None` in any other. To be asked before anything else.
#[must_use]
pub fn unmount_if_asked() -> Option<Status> {
    let told = std::env::var_os(UNMOUNT)?;
    let Some((identity, mountpoint)) = asked(&told) else {
        terminal::tell(&format!("{UNMOUNT} is set, but not to a mount: unset it"));
        return Some(Status::FAILURE);
    };
    // Started in the mount, this process would keep it busy itself.
    let unmounted = std::env::set_current_dir("/").map_err(|error| format!("cd /: {error}"));
    let unmounted = unmounted.and_then(|()| {
        let unmounted = unmount_only(&mountpoint, Some(identity), Unmount::Normal);
        unmounted.map_err(|error| error.to_string())
    });
    Some(match unmounted {
        Ok(()) => Status::SUCCESS,
        Err(reason) => {
            terminal::tell(&reason);
            Status::FAILURE
        }
    })
}

/// This program, with its whole command line: an interpreter is no other by it alone, and `main` may look at it before
/// anything is asked.
fn again(mountpoint: &Path) -> Command {
    let mut words = words::own().into_iter();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_default()).args(words);
    // A relative path, as of a script, is meant from there; within the mount it may not answer.
    let directory = std::env::var_os(MARK).map(PathBuf::from);
    if let Some(directory) = directory.filter(|path| path.is_absolute())
        && !directory.starts_with(mountpoint)
    {
        command.current_dir(directory);
    }
    command
}

/// Has such a process unmount it.
pub(crate) fn unmount_apart(guard: &MountGuard) -> Result<(), String> {
    // By the path alone it could be another daemon's, which has been mounted there meanwhile.
    let identity = guard.identity();
    let identity =
        identity.ok_or("the mount cannot be told from others by a process of its own")?;
    let path = guard.mountpoint().as_os_str().as_bytes();
    let told = [format!("{identity}:").as_bytes(), path].concat();
    let output = again(guard.mountpoint())
        .env(UNMOUNT, OsString::from_vec(told))
        .env_remove(MARK)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() && !guard.is_mounted() => Ok(()),
        Ok(output) if output.status.success() => {
            Err("this program, run again to unmount, has not".to_owned())
        }
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
