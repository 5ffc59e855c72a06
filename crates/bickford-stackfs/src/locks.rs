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

const WRITE: i16 = libc::F_WRLCK as i16;
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

/// A lock in the way of another.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) lock: RecordLock,
    /// The process that holds it; 0 when that cannot be said.
    pub(crate) pid: u32,
    /// Its owner, where that is a caller of the mount.
    pub(crate) owner: Option<u64>,
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

    /// The first lock in the way of `lock`, and who holds it.
    pub(crate) fn get(
        &self,
        holder: Holder,
        lock: RecordLock,
        opened: BorrowedFd<'_>,
    ) -> Result<Option<Conflict>, Errno> {
        let Some((lock, pid)) = self.in_the_way(holder, lock, opened)? else {
            return Ok(None);
        };
        // A lock of an open file description names no process.
        let Ok(pid) = u32::try_from(pid) else {
            return Ok(Some(self.held(holder, lock)));
        };
        let owner = None;
        Ok(Some(Conflict { lock, pid, owner }))
    }

    /// The first lock in the way of `lock`, and its process as fcntl(2) tells it.
    pub(crate) fn in_the_way(
        &self,
        holder: Holder,
        lock: RecordLock,
        opened: BorrowedFd<'_>,
    ) -> Result<Option<(RecordLock, i32)>, Errno> {
        let own = self
            .carriers
            .of(holder.node)
            .get(&holder)
            .map(|carrier| Arc::clone(&carrier.fd));
        match &own {
            Some(fd) => sys::get_record_lock(fd.as_fd(), lock),
            None => sys::get_record_lock(opened, lock),
        }
    }

    /// Who else than `holder` holds `lock`.
    fn held(&self, holder: Holder, lock: RecordLock) -> Conflict {
        let others: Vec<_> = {
            let carriers = self.carriers.of(holder.node);
            let others = carriers
                .iter()
                .filter(|(other, _)| other.node == holder.node && **other != holder);
            others
                .map(|(other, carrier)| (other.owner, carrier.pid, Arc::clone(&carrier.fd)))
                .collect()
        };
        let all = RecordLock {
            kind: WRITE,
            ..lock
        };
        // Nothing is in the way of whoever holds all of it, which is the quicker question.
        let alone = |fd: &OwnedFd| sys::get_record_lock(fd.as_fd(), all) == Ok(None);
        let holds = |fd: &OwnedFd| sys::holds_record_lock(fd.as_fd(), lock);
        let mut found = others.iter().find(|(_, _, fd)| alone(fd));
        if lock.kind != WRITE && found.is_none() {
            found = others.iter().find(|(_, _, fd)| holds(fd));
        }
        // It may have been given up since.
        let found = found.filter(|(_, _, fd)| holds(fd));
        Conflict {
            lock,
            pid: found.map_or(0, |(_, pid, _)| *pid),
            owner: found.map(|(owner, _, _)| *owner),
        }
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

    const READ: i16 = libc::F_RDLCK as i16;
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
        let get = |lock| locks.get(TWO, lock, file.as_fd()).unwrap();
        let found = |lock, pid, owner| {
            let owner = Some(owner);
            Some(Conflict { lock, pid, owner })
        };
        assert_eq!(get(range(WRITE, 0, 0)), found(range(WRITE, 0, 15), 100, 1));
        let three = Holder { node: 7, owner: 3 };
        set(three, 300, range(READ, 30, 0)).unwrap();
        set(ONE, 100, range(READ, 40, 5)).unwrap();
        assert_eq!(get(range(WRITE, 30, 1)), found(range(READ, 30, 0), 300, 3));
        assert_eq!(get(range(WRITE, 10, 1)), found(range(WRITE, 0, 15), 100, 1));
        assert!(locks.release(three));
        assert_eq!(get(range(WRITE, 30, 0)), found(range(READ, 40, 5), 100, 1));
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
