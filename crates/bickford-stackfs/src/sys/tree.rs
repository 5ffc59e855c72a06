//! A private copy of a mount tree.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

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
    let attributes = libc::mount_attr {
        attr_set: 0,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
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
    Ok(tree)
}
