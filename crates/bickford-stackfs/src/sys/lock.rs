//! Open-file-description record locks, see `fcntl(2)`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::last_error;

/// A range of bytes and how it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordLock {
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub(crate) kind: i16,
    /// First byte.
    pub(crate) start: i64,
    /// Number of bytes; 0 means to the end of the file, however far it grows.
    pub(crate) length: i64,
}

impl RecordLock {
    fn to_flock(self) -> libc::flock {
        libc::flock {
            l_type: self.kind,
            l_whence: libc::SEEK_SET as i16,
            l_start: self.start,
            l_len: self.length,
            l_pid: 0,
        }
    }
}

/// Takes or gives up a lock without waiting; EAGAIN when somebody else holds a conflicting one.
pub(crate) fn try_record_lock(fd: BorrowedFd<'_>, lock: RecordLock) -> Result<(), Errno> {
    let flock = lock.to_flock();
    // SAFETY: `flock` outlives the call, which only reads it.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const flock) } < 0 {
        return Err(last_error());
    }
    Ok(())
}

/// The first lock that conflicts with `lock` and the process that holds it (-1 when it is itself
/// a lock of an open file description), or `None`.
pub(crate) fn get_record_lock(
    fd: BorrowedFd<'_>,
    lock: RecordLock,
) -> Result<Option<(RecordLock, i32)>, Errno> {
    let mut flock = lock.to_flock();
    // SAFETY: `flock` outlives the call.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut flock) } < 0 {
        return Err(last_error());
    }
    if flock.l_type == libc::F_UNLCK as i16 {
        return Ok(None);
    }
    let found = RecordLock {
        kind: flock.l_type,
        start: flock.l_start,
        length: flock.l_len,
    };
    Ok(Some((found, flock.l_pid)))
}

/// The record locks that this description holds, see `/proc/pid/fdinfo` in `proc(5)`.
pub(crate) fn record_locks(fd: BorrowedFd<'_>) -> io::Result<Vec<RecordLock>> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().filter_map(record_lock).collect())
}

/// The lock that a line of fdinfo tells of: `lock:`, a number, `OFDLCK`, `ADVISORY`, the kind, a process, the inode, the
/// first byte and the last.
fn record_lock(line: &str) -> Option<RecordLock> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let ["lock:", _, "OFDLCK", _, kind, _, _, start, end] = words.as_slice() else {
        return None;
    };
    let kind = match *kind {
        "READ" => libc::F_RDLCK,
        _ => libc::F_WRLCK,
    };
    let start = start.parse().ok()?;
    let length = match *end {
        "EOF" => 0,
        end => end
            .parse::<i64>()
            .ok()?
            .checked_sub(start)?
            .checked_add(1)?,
    };
    Some(RecordLock {
        kind: kind as i16,
        start,
        length,
    })
}
