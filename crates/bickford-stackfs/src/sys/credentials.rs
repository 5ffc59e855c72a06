//! The file-system identity of the calling thread. These calls act on one thread, unlike glibc's
//! `setuid` family.

use super::last_error;
use rustix::io::Errno;

/// Sets the file-system user id of this thread; EPERM when the kernel did not take it.
pub(crate) fn set_fsuid(uid: u32) -> Result<(), Errno> {
    // SAFETY: no memory is passed. The call reports no error: asking for an id that cannot be
    // (-1) returns the one in force.
    let now = unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(u32::MAX)
    };
    if now as u32 == uid {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// Sets the file-system group id of this thread; EPERM when the kernel did not take it.
pub(crate) fn set_fsgid(gid: u32) -> Result<(), Errno> {
    // SAFETY: as for `set_fsuid`.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(u32::MAX)
    };
    if now as u32 == gid {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// Gives this thread a umask (and working directory) of its own.
pub(crate) fn unshare_fs() -> Result<(), Errno> {
    // SAFETY: no memory is passed; CLONE_FS only separates this thread's umask, root and working
    // directory from those of the other threads.
    if unsafe { libc::unshare(libc::CLONE_FS) } < 0 {
        return Err(last_error());
    }
    Ok(())
}
