//! READ answered from a descriptor: the library moves the data to the kernel.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

use bickford::ops::FileRange;

use crate::abi::bickford_reply;
use crate::deferred;
use crate::guard::{Failure, guarded};

/// A descriptor that stays the caller's. A duplicate would be closed after each READ, and with any descriptor of a
/// file that it closes a process loses its locks of fcntl(2) there.
struct Lent(RawFd);

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not negative; who lent it keeps it open until the request is answered, when this is used no longer.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// # Safety
/// `fd` is open, if it is a descriptor at all, until what comes of this was used.
unsafe fn range(fd: i32, offset: u64, size: u64) -> Result<FileRange, Failure> {
    if fd < 0 {
        return Err(Failure::argument(format!("{fd} is no descriptor")));
    }
    Ok(FileRange {
        file: Arc::new(Lent(fd)),
        offset,
        length: usize::try_from(size).unwrap_or(usize::MAX),
    })
}

/// Has a READ answered with `size` bytes from `offset` on of the file that is open as `fd`, in place of data in the answer: the callback
/// then returns zero. The library reads them as late as it can, or moves pages without a copy. No more are answered than were
/// asked for, and fewer where the file ends; an error of pread(2) goes to the caller. Called again, the later range takes the place of
/// the earlier one.
///
/// `fd` stays open, for reading, until the request is answered. It may not be yet when the callback or
/// `bickford_deferred_complete` has returned; it is when RELEASE of the open file comes, or DESTROY. So pass what RELEASE closes, and
/// answer with data otherwise: in place of a descriptor that was closed too early another file may be read.
///
/// # Safety
/// `reply` came to the callback that runs, and was not deferred; `fd` is open until the request is answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_range(
    reply: *mut bickford_reply,
    fd: i32,
    offset: u64,
    size: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        unsafe { deferred::range_in_call(reply, range(fd, offset, size)?)? };
        Ok(0)
    })
}

/// As `bickford_reply_range`, for a deferred reply that was not completed; it has to be, with zero.
///
/// # Safety
/// `fd` is open until the request is answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_range(
    handle: u64,
    fd: i32,
    offset: u64,
    size: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        deferred::range(handle, unsafe { range(fd, offset, size)? })?;
        Ok(0)
    })
}
