//! Record locks of the mount's callers as locks on the lower file.
//!
//! A POSIX record lock belongs to a process and a file, and closing any descriptor of the file
//! gives it up. Here every pair of inode and lock owner has a lower open file description of its
//! own that carries its locks; dropping it at FLUSH is exactly that rule.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::node::ProcFd;
use crate::sharded::Sharded;
use crate::sys::{self, RecordLock};

const UNLOCK: i16 = libc::F_UNLCK as i16;

/// Whose locks, and on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub(crate) node: u64,
    pub(crate) owner: u64,
}

struct Carrier {
    fd: Arc<OwnedFd>,
    pid: u32,
}

/// See the module.
pub(crate) struct RecordLocks {
    /// By the holder's inode: all holders of one are in one part.
    carriers: Sharded<HashMap<Holder, Carrier>>,
    proc: ProcFd,
    count: AtomicUsize,
    limit: usize,
}

impl RecordLocks {
    /// At most `limit` pairs of inode and owner.
    pub(crate) fn new(limit: usize) -> Result<Self, Errno> {
        Ok(Self {
            proc: ProcFd::open()?,
            carriers: Sharded::default(),
            count: AtomicUsize::new(0),
            limit,
        })
    }

    /// Takes or gives up a lock without waiting; EAGAIN on a conflict, ENOLCK at the limit.
    /// `opened` is any descriptor of the inode.
    pub(crate) fn set(
        &self,
        holder: Holder,
        pid: u32,
        lock: RecordLock,
        opened: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let known = self
            .carriers
            .of(holder.node)
            .get(&holder)
            .map(|carrier| Arc::clone(&carrier.fd));
        let fd = match known {
            Some(fd) => fd,
            None if lock.kind == UNLOCK => return Ok(()),
            None => self.carrier(holder, pid, opened)?,
        };
        sys::try_record_lock(fd.as_fd(), lock)
    }

    fn carrier(
        &self,
        holder: Holder,
        pid: u32,
        opened: BorrowedFd<'_>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if self.count.fetch_add(1, Ordering::AcqRel) >= self.limit {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return Err(Errno::NOLCK);
        }
        let opened = self
            .proc
            .reopen(opened, OFlags::RDWR)
            .or_else(|_| self.proc.reopen(opened, OFlags::RDONLY))
            .map(Arc::new);
        let fd = match opened {
            Ok(fd) => fd,
            Err(error) => {
                self.count.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
        };
        let mut carriers = self.carriers.of(holder.node);
        if let Some(other) = carriers.get(&holder) {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return Ok(Arc::clone(&other.fd));
        }
        carriers.insert(
            holder,
            Carrier {
                fd: Arc::clone(&fd),
                pid,
            },
        );
        Ok(fd)
    }

    /// The first lock in the way of `lock`, with the process that holds it: 0 when that cannot be
    /// said.
    pub(crate) fn get(
        &self,
        holder: Holder,
        lock: RecordLock,
        opened: BorrowedFd<'_>,
    ) -> Result<Option<(RecordLock, u32)>, Errno> {
        let (own, others) = {
            let carriers = self.carriers.of(holder.node);
            let own = carriers.get(&holder).map(|carrier| Arc::clone(&carrier.fd));
            let others: Vec<u32> = carriers
                .iter()
                .filter(|(other, _)| other.node == holder.node && **other != holder)
                .map(|(_, carrier)| carrier.pid)
                .collect();
            (own, others)
        };
        let found = match &own {
            Some(fd) => sys::get_record_lock(fd.as_fd(), lock)?,
            None => sys::get_record_lock(opened, lock)?,
        };
        // A lock of an open file description names no process; with one other holder it is its.
        Ok(found.map(
            |(lock, pid)| match (u32::try_from(pid), others.as_slice()) {
                (Ok(pid), _) => (lock, pid),
                (Err(_), [pid]) => (lock, *pid),
                (Err(_), _) => (lock, 0),
            },
        ))
    }

    /// Gives up every lock of a holder; true if there was any to give up.
    pub(crate) fn release(&self, holder: Holder) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let removed = self.carriers.of(holder.node).remove(&holder);
        if removed.is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: i16 = libc::F_WRLCK as i16;
    const ONE: Holder = Holder { node: 7, owner: 1 };
    const TWO: Holder = Holder { node: 7, owner: 2 };

    fn range(kind: i16, start: i64, length: i64) -> RecordLock {
        RecordLock {
            kind,
            start,
            length,
        }
    }

    #[test]
    fn two_owners_conflict_and_one_does_not_with_itself() {
        let file = tempfile::tempfile().unwrap();
        let locks = RecordLocks::new(8).unwrap();
        let set = |holder, pid, lock| locks.set(holder, pid, lock, file.as_fd());
        set(ONE, 100, range(WRITE, 0, 10)).unwrap();
        set(ONE, 100, range(WRITE, 5, 10)).unwrap();
        assert_eq!(set(TWO, 200, range(WRITE, 9, 1)), Err(Errno::AGAIN));
        set(TWO, 200, range(WRITE, 20, 1)).unwrap();
        let found = locks.get(TWO, range(WRITE, 0, 0), file.as_fd()).unwrap();
        assert_eq!(found, Some((range(WRITE, 0, 15), 100)));
        set(ONE, 100, range(UNLOCK, 0, 12)).unwrap();
        set(TWO, 200, range(WRITE, 9, 1)).unwrap();
        assert!(locks.release(ONE));
        assert!(!locks.release(ONE));
        assert_eq!(
            locks.get(TWO, range(WRITE, 0, 0), file.as_fd()).unwrap(),
            None
        );
    }

    #[test]
    fn holders_are_bounded() {
        let file = tempfile::tempfile().unwrap();
        let locks = RecordLocks::new(1).unwrap();
        locks.set(ONE, 1, range(WRITE, 0, 1), file.as_fd()).unwrap();
        let full = locks.set(TWO, 1, range(WRITE, 5, 1), file.as_fd());
        assert_eq!(full, Err(Errno::NOLCK));
        locks.release(ONE);
        locks.set(TWO, 1, range(WRITE, 5, 1), file.as_fd()).unwrap();
    }
}
