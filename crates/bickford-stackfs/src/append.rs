//! Writing what the kernel cached, and at the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bickford::ops::Payload;
use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::io::errno;

/// Writes what the kernel writes back from its cache. It heeds no number of bytes: whatever is not written
/// must be an error, or is lost without a word.
pub(crate) fn write_back(file: &OwnedFd, data: Payload<'_>, offset: u64) -> Result<(), Errno> {
    if is_append_only(file)? {
        return append_rest(file, data, offset);
    }
    data.write_all_to(file, Some(offset)).map_err(|e| errno(&e))
}

/// Whether `file` has been made append-only (chattr(1)), however it is open, as far as is known without waiting.
pub(crate) fn is_marked_append_only(file: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(file, c"", flags, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::APPEND))
}

/// Whether `file` could not be opened but for appending, and still cannot. Where chattr(1) has taken that back
/// since, it is made to write anywhere; Linux refuses that while the file is append-only.
fn is_append_only(file: &OwnedFd) -> Result<bool, Errno> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if !flags.contains(OFlags::APPEND) {
        return Ok(false);
    }
    match rustix::fs::fcntl_setfl(file, flags - OFlags::APPEND) {
        Ok(()) => Ok(false),
        Err(Errno::PERM) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Writes back what an append-only file has not yet: a page of the cache is written whole. EPERM where
/// it would change what is there, and where bytes before it are still to come: they could not follow.
fn append_rest(file: &OwnedFd, data: Payload<'_>, offset: u64) -> Result<(), Errno> {
    let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    let known = size.checked_sub(offset).ok_or(Errno::PERM)?;
    let bytes = data.bytes().map_err(|error| errno(&error))?;
    let known = usize::try_from(known).map_or(bytes.len(), |known| known.min(bytes.len()));
    let rest = bytes.get(known..).unwrap_or_default();
    let mut there = vec![0; known];
    let mut found = 0;
    while let Some(place) = there.get_mut(found..).filter(|place| !place.is_empty()) {
        match rustix::io::pread(file, place, offset + found as u64) {
            Ok(0) => return Err(Errno::PERM),
            Ok(count) => found += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    if Some(there.as_slice()) != bytes.get(..known) {
        return Err(Errno::PERM);
    }
    let mut done = 0;
    while let Some(rest) = rest.get(done..).filter(|rest| !rest.is_empty()) {
        match append(file, rest)? {
            0 => return Err(Errno::IO),
            count => done += count,
        }
    }
    Ok(())
}

pub(crate) fn append_to(file: &OwnedFd, data: Payload<'_>) -> Result<usize, Errno> {
    append(file, &data.bytes().map_err(|error| errno(&error))?)
}

/// Appends wherever the lower file ends now, which others may have moved.
fn append(file: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let slices = [std::io::IoSlice::new(rest)];
        match rustix::io::pwritev2(file.as_fd(), &slices, 0, ReadWriteFlags::APPEND) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
