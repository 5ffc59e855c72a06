//! Changing the flags of a mount that is there.

use std::io;
use std::path::Path;

use rustix::mount::MountFlags;

use super::direct::legacy_flags;
use super::options::GenericFlags;
use super::unmount::resolve;
use super::{MountEntry, MountError};

/// Gives the FUSE mount at `mountpoint`, whoever serves it, these flags in place of those it has
/// ([`MountEntry::flags`]). Nothing else of a mount can be changed: the kernel keeps its other options and
/// its connection.
///
/// # Errors
/// No FUSE mount is there; `dirsync` is not as it was; EPERM without CAP_SYS_ADMIN; EBUSY for `ro` while a file is open for writing; and
/// what else mount(2) with `MS_REMOUNT` says.
pub fn remount(mountpoint: &Path, flags: GenericFlags) -> Result<(), MountError> {
    let mountpoint = resolve(mountpoint);
    let failed = |call, log: &str, source| MountError::Kernel {
        mountpoint: mountpoint.clone(),
        call,
        log: log.to_owned(),
        source,
    };
    let entry = MountEntry::at(&mountpoint)
        .map_err(|error| failed("read /proc/self/mountinfo", "", error))?;
    let Some(entry) = entry.filter(MountEntry::is_fuse) else {
        return Err(MountError::NotMounted { mountpoint });
    };
    if (entry.flags() ^ flags).contains(GenericFlags::DIR_SYNC) {
        return Err(MountError::DirSync { mountpoint });
    }
    rustix::mount::mount_remount(&mountpoint, all_flags(flags), "").map_err(|error| {
        let log = match error {
            rustix::io::Errno::PERM => "; run as root, or unmount it and mount it again",
            rustix::io::Errno::BUSY => "; a file on it is open for writing",
            _ => "",
        };
        failed("remount", log, io::Error::from(error))
    })
}

/// With a word on access times in any case: without one the kernel keeps what they were (`path_mount` of
/// fs/namespace.c).
fn all_flags(flags: GenericFlags) -> MountFlags {
    let all = legacy_flags(flags);
    match flags.intersects(GenericFlags::NO_ATIME | GenericFlags::STRICT_ATIME) {
        true => all,
        false => all | MountFlags::RELATIME,
    }
}
