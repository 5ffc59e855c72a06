//! A private copy of a mount tree.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bickford::mount::GenericFlags;
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::last_error;

/// A detached copy of the mounts at and below `source`, which later mounts, such as one over
/// `source` itself, do not reach. Needs `CAP_SYS_ADMIN`.
pub(crate) fn detach_tree(source: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let tree = rustix::mount::open_tree(
        source,
        c"",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )?;
    set_attributes(
        tree.as_fd(),
        libc::mount_attr {
            attr_set: 0,
            attr_clr: 0,
            propagation: libc::MS_PRIVATE,
            userns_fd: 0,
        },
    )?;
    Ok(tree)
}

/// Has all mounts of a tree keep times of last access as `flags` say; where those say nothing, the
/// mounts stay as they are. EPERM where a user namespace has them locked.
pub(crate) fn set_access_times(tree: BorrowedFd<'_>, flags: GenericFlags) -> Result<(), Errno> {
    let (mut set, mut clear) = (0, 0);
    if flags.contains(GenericFlags::NO_ATIME) {
        (set, clear) = (libc::MOUNT_ATTR_NOATIME, libc::MOUNT_ATTR__ATIME);
    } else if flags.contains(GenericFlags::STRICT_ATIME) {
        (set, clear) = (libc::MOUNT_ATTR_STRICTATIME, libc::MOUNT_ATTR__ATIME);
    }
    if flags.contains(GenericFlags::NO_DIR_ATIME) {
        set |= libc::MOUNT_ATTR_NODIRATIME;
    }
    if set == 0 {
        return Ok(());
    }
    set_attributes(
        tree,
        libc::mount_attr {
            attr_set: set,
            attr_clr: clear,
            propagation: 0,
            userns_fd: 0,
        },
    )
}

fn set_attributes(tree: BorrowedFd<'_>, attributes: libc::mount_attr) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path ends with NUL, the structure has the size given and outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 {
        return Err(last_error());
    }
    Ok(())
}
