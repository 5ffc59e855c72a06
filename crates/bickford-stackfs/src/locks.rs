//! Record locks of the mount's callers as locks on the lower file.
//!
//! A POSIX record lock belongs to a process and a file, and closing any descriptor of the file
//! gives it up. Here every pair of inode and lock owner has a lower open file description of its
//! own that carries its locks; dropping it at FLUSH is exactly that rule. What no FLUSH gives up, as locks of
//! an open file description (`F_OFD_SETLK`), goes with the last handle that it was taken through.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::descriptors::Share;
use crate::node::ProcFd;
use crate::sharded::{Sharded, lock};
use crate::sys::{self, RecordLock};

const WRITE: i16 = libc::F_WRLCK as i16;
const UNLOCK: i16 = libc::F_UNLCK as i16;

/// For reading and writing. A file that is append-only refuses to be opened otherwise.
const BOTH: [OFlags; 2] = [OFlags::RDWR, OFlags::RDWR.union(OFlags::APPEND)];

/// How often a lock is tried while other threads of its holder have the locks move.
const TRIES: usize = 8;

/// Whose locks, and on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub(crate) node: u64,
    pub(crate) owner: u64,
}

struct Carrier {
    fd: Arc<OwnedFd>,
    pid: u32,
    /// Handles that claim it.
    handles: usize,
}

impl Carrier {
    /// Gives all locks up. Closing alone does not while a child of this process is between fork(2) and execve(2), and
    /// has the description, too.
    fn end(self) {
        let all = RecordLock {
            kind: UNLOCK,
            start: 0,
            length: 0,
        };
        if let Err(error) = sys::try_record_lock(self.fd.as_fd(), all) {
            tracing::debug!("unlocking: {error}");
        }
    }
}

/// What was locked through one handle: owners, and their carriers of that time. The kernel gives the number of
/// an owner that is gone to another one, and one that has given its locks up takes others through other
/// handles: such carriers are not this handle's.
#[derive(Default)]
pub(crate) struct Claims(Mutex<Vec<(u64, Weak<OwnedFd>)>>);

impl Carrier {
    fn claim(&mut self, owner: u64, claims: &Claims) -> Arc<OwnedFd> {
        if claims.add(owner, &self.fd) {
            self.handles += 1;
        }
        Arc::clone(&self.fd)
    }
}

impl Claims {
    /// Claims a carrier; false if it was claimed before.
    fn add(&self, owner: u64, carrier: &Arc<OwnedFd>) -> bool {
        let mut list = lock(&self.0);
        list.retain(|(_, claimed)| claimed.strong_count() > 0);
        let known = list
            .iter()
            .any(|(_, claimed)| std::ptr::eq(claimed.as_ptr(), Arc::as_ptr(carrier)));
        if !known {
            list.push((owner, Arc::downgrade(carrier)));
        }
        !known
    }

    /// Forgets carriers that are gone.
    pub(crate) fn prune(&self) {
        lock(&self.0).retain(|(_, claimed)| claimed.strong_count() > 0);
    }

    /// Whether there are any, gone or not.
    pub(crate) fn any(&self) -> bool {
        !lock(&self.0).is_empty()
    }
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

/// The caller's own descriptor may be open for more: what this one is not open for must not be called the caller's error.
pub(crate) fn of_other_descriptor(error: Errno) -> Errno {
    match error {
        Errno::BADF => Errno::NOLCK,
        error => error,
    }
}

/// See the module.
pub(crate) struct RecordLocks {
    /// By the holder's inode: all holders of one are in one part.
    carriers: Sharded<HashMap<Holder, Carrier>>,
    proc: ProcFd,
    room: Share,
}

impl RecordLocks {
    /// A descriptor of `room` for each pair of inode and owner.
    pub(crate) fn new(room: Share) -> Result<Self, Errno> {
        Ok(Self {
            proc: ProcFd::open()?,
            carriers: Sharded::default(),
            room,
        })
    }

    /// Takes or gives up a lock without waiting; EAGAIN on a conflict, ENOLCK at the limit, where the file cannot be
    /// opened again for such a lock, and where the holder has others that were taken while it could be opened for
    /// the other kind only.
    /// `opened` is any descriptor of the inode, `claims` are those of the handle it is asked through.
    pub(crate) fn set(
        &self,
        holder: Holder,
        pid: u32,
        lock: RecordLock,
        opened: BorrowedFd<'_>,
        claims: &Claims,
    ) -> Result<(), Errno> {
        for _ in 0..TRIES {
            let known = self
                .carriers
                .of(holder.node)
                .get_mut(&holder)
                .map(|carrier| match lock.kind {
                    UNLOCK => Arc::clone(&carrier.fd),
                    _ => carrier.claim(holder.owner, claims),
                });
            let fd = match known {
                Some(fd) => fd,
                None if lock.kind == UNLOCK => return Ok(()),
                None => self.carrier(holder, pid, lock.kind, opened, claims)?,
            };
            match sys::try_record_lock(fd.as_fd(), lock) {
                Err(Errno::BADF) if lock.kind == WRITE => self.widen(holder, &fd, opened)?,
                result if self.carries(holder, &fd) => return result.map_err(of_other_descriptor),
                // The other one has what this one had before.
                _ => {}
            }
        }
        Err(Errno::NOLCK)
    }

    /// Whether no other descriptor carries the locks of a holder by now.
    fn carries(&self, holder: Holder, fd: &Arc<OwnedFd>) -> bool {
        let carriers = self.carriers.of(holder.node);
        let carrier = carriers.get(&holder);
        carrier.is_none_or(|carrier| Arc::ptr_eq(&carrier.fd, fd))
    }

    /// Has a descriptor that is open for writing, too, carry the locks of a holder in place of `narrow`, unless there is
    /// another meanwhile.
    fn widen(
        &self,
        holder: Holder,
        narrow: &Arc<OwnedFd>,
        opened: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let wide = Arc::new(self.proc.reopen_to_lock(opened, BOTH)?);
        // All for reading: both can have them at a time, so that none is given up in between.
        let mut held = sys::record_locks(narrow.as_fd()).into_iter();
        let moved = held.try_for_each(|lock| sys::try_record_lock(wide.as_fd(), lock));
        let mut carriers = self.carriers.of(holder.node);
        if let Some(carrier) = carriers.get_mut(&holder)
            && Arc::ptr_eq(&carrier.fd, narrow)
            && moved.is_ok()
        {
            carrier.fd = wide;
            // Handles that claimed the other one are closed with a FLUSH of this owner.
            carrier.handles = 0;
        }
        Ok(())
    }

    fn carrier(
        &self,
        holder: Holder,
        pid: u32,
        kind: i16,
        opened: BorrowedFd<'_>,
        claims: &Claims,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if !self.room.take() {
            return Err(Errno::NOLCK);
        }
        // Opened for writing it would keep the file from being executed, and break leases for reading, which the
        // caller's own open has left alone.
        let reads = || {
            let flags = rustix::fs::fcntl_getfl(opened);
            flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY)
        };
        let (first, last): (&[_], &[_]) = match kind {
            WRITE => (&BOTH, &[OFlags::WRONLY, OFlags::WRONLY | OFlags::APPEND]),
            _ if reads() => (&[], &[OFlags::RDONLY]),
            _ => (&BOTH, &[OFlags::RDONLY]),
        };
        let ways = first.iter().chain(last).copied();
        let fd = match self.proc.reopen_to_lock(opened, ways) {
            Ok(fd) => Arc::new(fd),
            Err(error) => {
                self.room.give();
                return Err(error);
            }
        };
        let mut carriers = self.carriers.of(holder.node);
        if let Some(other) = carriers.get_mut(&holder) {
            self.room.give();
            return Ok(other.claim(holder.owner, claims));
        }
        let mut carrier = Carrier {
            fd,
            pid,
            handles: 0,
        };
        let fd = carrier.claim(holder.owner, claims);
        carriers.insert(holder, carrier);
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
        let holds = |fd: &OwnedFd| sys::record_locks(fd.as_fd()).contains(&lock);
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
        if self.room.taken() == 0 {
            return false;
        }
        let removed = self.carriers.of(holder.node).remove(&holder);
        let Some(carrier) = removed else {
            return false;
        };
        carrier.end();
        self.room.give();
        true
    }

    /// A handle is closed: gives up what was locked through no other handle.
    pub(crate) fn release_claims(&self, node: u64, claims: &Claims) {
        let claimed = std::mem::take(&mut *lock(&claims.0));
        for (owner, claimed) in claimed {
            let holder = Holder { node, owner };
            let mut carriers = self.carriers.of(node);
            let Some(carrier) = carriers.get_mut(&holder) else {
                continue;
            };
            if !std::ptr::eq(Arc::as_ptr(&carrier.fd), claimed.as_ptr()) {
                continue;
            }
            carrier.handles = carrier.handles.saturating_sub(1);
            if carrier.handles == 0 {
                let removed = carriers.remove(&holder);
                drop(carriers);
                if let Some(carrier) = removed {
                    carrier.end();
                }
                self.room.give();
            }
        }
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
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let claims = Claims::default();
        let set = |holder, pid, lock| locks.set(holder, pid, lock, file.as_fd(), &claims);
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
        let locks = RecordLocks::new(Share::alone(1)).unwrap();
        let claims = Claims::default();
        let set = |holder, start| {
            let lock = range(WRITE, start, 1);
            locks.set(holder, 1, lock, file.as_fd(), &claims)
        };
        set(ONE, 0).unwrap();
        assert_eq!(set(TWO, 5), Err(Errno::NOLCK));
        locks.release(ONE);
        set(TWO, 5).unwrap();
    }

    #[test]
    fn a_carrier_for_reading_has_no_locks_for_writing() {
        // A program that runs cannot be opened for writing.
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("sleep");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let reader = std::fs::File::open(&program).unwrap();
        let mut running = std::process::Command::new(&program)
            .arg("60")
            .spawn()
            .unwrap();
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let claims = Claims::default();
        let set = |kind| locks.set(ONE, 1, range(kind, 0, 1), reader.as_fd(), &claims);
        let set = [READ, WRITE].map(set);
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(set, [Ok(()), Err(Errno::NOLCK)]);
    }

    #[test]
    fn what_is_locked_for_reading_stays_so_when_its_holder_locks_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let writer = std::fs::File::create(&path).unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let [first, second, other] = [(); 3].map(|()| Claims::default());
        let read = |lock| locks.set(ONE, 1, lock, reader.as_fd(), &first);
        let write = |lock| locks.set(ONE, 1, lock, writer.as_fd(), &second);
        let two = |lock| locks.set(TWO, 2, lock, writer.as_fd(), &other);
        read(range(READ, 0, 10)).unwrap();
        read(range(READ, 50, 0)).unwrap();
        write(range(WRITE, 20, 10)).unwrap();
        for (start, kind) in [(9, WRITE), (50, WRITE), (1 << 40, WRITE), (20, READ)] {
            assert_eq!(two(range(kind, start, 1)), Err(Errno::AGAIN), "{start}");
        }
        two(range(READ, 9, 1)).unwrap();
        assert_eq!(write(range(WRITE, 0, 10)), Err(Errno::AGAIN));
        two(range(UNLOCK, 0, 0)).unwrap();
        write(range(WRITE, 0, 10)).unwrap();
        assert_eq!(two(range(READ, 9, 1)), Err(Errno::AGAIN));
        read(range(UNLOCK, 0, 0)).unwrap();
        two(range(WRITE, 0, 0)).unwrap();
        locks.release_claims(7, &first);
        assert!(locks.release(ONE) && locks.release(TWO));
        assert_eq!(locks.room.taken(), 0);
    }

    /// As the daemon of an ordinary user has them.
    #[test]
    fn files_that_cannot_be_opened_again_are_locked_as_far_as_they_can() {
        let lock = |mode: u32, kinds: [i16; 2]| {
            let file = tempfile::tempfile().unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            file.set_permissions(mode).unwrap();
            let locks = RecordLocks::new(Share::alone(8)).unwrap();
            let claims = Claims::default();
            let set = |kind| locks.set(ONE, 1, range(kind, 0, 1), file.as_fd(), &claims);
            kinds.map(set)
        };
        let unprivileged = || {
            use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
            let mut fewer = capabilities(None).unwrap();
            let overrides = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            fewer.effective.remove(overrides);
            set_capabilities(None, fewer).unwrap();
            let refused = Err(Errno::NOLCK);
            assert_eq!(lock(0o600, [READ, WRITE]), [Ok(()); 2]);
            assert_eq!(lock(0o200, [READ, WRITE]), [refused, Ok(())]);
            assert_eq!(lock(0o400, [READ, WRITE]), [Ok(()), refused]);
            assert_eq!(lock(0o400, [WRITE, READ]), [refused, Ok(())]);
            assert_eq!(lock(0, [READ, WRITE]), [refused; 2]);
        };
        std::thread::scope(|scope| scope.spawn(unprivileged).join().unwrap());
    }

    /// As by a child that has not called execve(2) yet.
    #[test]
    fn what_is_given_up_is_so_while_the_description_lives() {
        let file = tempfile::tempfile().unwrap();
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let [first, second] = [(); 2].map(|()| Claims::default());
        let set = |holder, claims| locks.set(holder, 1, range(WRITE, 0, 1), file.as_fd(), claims);
        let held = |holder| Arc::clone(&locks.carriers.of(7).get(&holder).unwrap().fd);
        set(ONE, &first).unwrap();
        let child = held(ONE);
        assert!(locks.release(ONE));
        set(TWO, &second).unwrap();
        let other = held(TWO);
        locks.release_claims(7, &second);
        set(ONE, &first).unwrap();
        drop((child, other));
    }

    #[test]
    fn a_handle_gives_up_only_what_was_locked_through_it_and_through_no_other() {
        let file = tempfile::tempfile().unwrap();
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let [first, second, other] = [(); 3].map(|()| Claims::default());
        let set = |holder, claims| locks.set(holder, 1, range(WRITE, 0, 1), file.as_fd(), claims);
        set(ONE, &first).unwrap();
        assert!(locks.release(ONE));
        set(ONE, &second).unwrap();
        locks.release_claims(7, &first);
        assert_eq!(set(TWO, &other), Err(Errno::AGAIN), "it is the second's");
        set(ONE, &first).unwrap();
        locks.release_claims(7, &first);
        assert_eq!(
            set(TWO, &other),
            Err(Errno::AGAIN),
            "it is the second's, too"
        );
        locks.release_claims(7, &second);
        set(TWO, &other).unwrap();
    }

    #[test]
    fn a_handle_remembers_no_owner_that_is_gone() {
        let file = tempfile::tempfile().unwrap();
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let claims = Claims::default();
        for owner in 0..100 {
            let holder = Holder { node: 7, owner };
            let lock = range(WRITE, 0, 1);
            locks.set(holder, 1, lock, file.as_fd(), &claims).unwrap();
            locks.release(holder);
            claims.prune();
            assert_eq!(claims.0.lock().unwrap().len(), 0);
        }
    }
}
