//! `bickford unmount`.

mod daemon;
mod detached;
pub(crate) mod socket;

use std::path::PathBuf;
use std::process::ExitCode;

use bickford::mount::{Unmount, UnmountError};

use self::daemon::Daemon;
use super::target::Target;
use crate::cli::Failure;

/// Unmount a FUSE mount, also one that hangs or whose server is gone.
///
/// Without --lazy and --force it returns when the daemon of `bickford mount` has ended, too, unless that has
/// another place to serve, as after 'mount --bind' or where a container has the mount, too. Of a mount that was
/// detached and is still used it says by whom; --force ends that, too.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Detach it now; it is gone when its last user is
    #[arg(short = 'z', long, conflicts_with = "force")]
    lazy: bool,
    /// Abort the connection first: every request in flight fails
    #[arg(long)]
    force: bool,
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT", value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mode = match (arguments.lazy, arguments.force) {
        (true, _) => Unmount::Lazy,
        (_, true) => Unmount::Force,
        _ => Unmount::Normal,
    };
    let target = Target::find(&arguments.mountpoint).ok();
    let mut mountpoint = arguments.mountpoint.as_path();
    if let Some(target) = &target {
        mountpoint = &target.mountpoint;
        // Started in the mount, this process would keep it busy itself.
        std::env::set_current_dir("/").map_err(|error| Failure::new(format!("cd /: {error}")))?;
    }
    let sockets = target.as_ref().map_or_else(Vec::new, Target::sockets);
    // A detached mount is served until its last user is gone, and force is for a daemon that hangs.
    let daemon = match (&target, mode) {
        (Some(target), Unmount::Normal) => Daemon::behind(target),
        _ => None,
    };
    match bickford::mount::unmount(mountpoint, mode) {
        Err(
            UnmountError::NotMounted { mountpoint: place }
            | UnmountError::NotFuse {
                mountpoint: place, ..
            },
        ) if detached::end(&place, mode)? => {
            return Ok(ExitCode::SUCCESS);
        }
        unmounted => unmounted?,
    }
    if let (Some(daemon), Some(target)) = (daemon, &target) {
        match target.mounted_at() {
            None => daemon.wait(target),
            Some(place) => daemon.goes_on(&place),
        }
    }
    socket::remove_left(&sockets);
    Ok(ExitCode::SUCCESS)
}
