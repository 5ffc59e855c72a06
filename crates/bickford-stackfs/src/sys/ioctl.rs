//! `ioctl(2)` with a buffer whose size the command itself encodes, and `close(2)` with its error.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

use super::last_error;

/// Calls `command` with `buffer` as its argument. EINVAL unless the buffer has at least the size
/// the command encodes.
pub(crate) fn ioctl_buffer(
    fd: BorrowedFd<'_>,
    command: u32,
    buffer: &mut [u8],
) -> Result<i32, Errno> {
    let encoded = (command >> 16) as usize & 0x3fff;
    // Some commands encode `long` and move an `int`; none moves more than it encodes.
    if buffer.len() < encoded {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller passes only commands whose argument is a flat structure of the encoded
    // size; the buffer has that many bytes and outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), command as _, buffer.as_mut_ptr()) };
    if result < 0 {
        return Err(last_error());
    }
    Ok(result)
}

/// Closes `fd` and says what the file system had to report, such as a delayed write error.
pub(crate) fn close_reporting(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is ours and given up here; Linux frees it even when close fails.
    if unsafe { libc::close(fd.into_raw_fd()) } < 0 {
        return Err(last_error());
    }
    Ok(())
}
