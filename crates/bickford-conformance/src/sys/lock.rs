//! Record locks on ranges: `F_SETLKW` and `F_GETLK` of `fcntl(2)`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What a lock keeps from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Writing.
    Read,
    /// Reading and writing.
    Write,
    /// Nothing.
    Unlock,
}

impl LockKind {
    fn raw(self) -> libc::c_int {
        match self {
            Self::Read => libc::F_RDLCK,
            Self::Write => libc::F_WRLCK,
            Self::Unlock => libc::F_UNLCK,
        }
    }
}

fn range(kind: LockKind, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind.raw() as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// Locks `length` bytes from `start` on, all for 0, and waits until that can be had.
///
/// # Errors
/// Those of fcntl(2); EDEADLK where it would never be had.
pub fn record_lock(file: &File, kind: LockKind, start: i64, length: i64) -> io::Result<()> {
    let lock = range(kind, start, length);
    // SAFETY: the kernel reads the lock, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process whose lock is in the way of a lock for writing.
///
/// # Errors
/// Those of fcntl(2).
pub fn locked_by(file: &File, start: i64, length: i64) -> io::Result<Option<i32>> {
    let mut lock = range(LockKind::Write, start, length);
    // SAFETY: the kernel fills the lock, which outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let locked = i32::from(lock.l_type) != libc::F_UNLCK;
    Ok(locked.then_some(lock.l_pid))
}
