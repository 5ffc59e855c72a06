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

/// A descriptor to carry locks in place of one that is open for reading only.
struct Wide {
    fd: Arc<OwnedFd>,
    /// What it has of the other one.
    moved: Vec<RecordLock>,
}

/// Gives all locks up. Closing alone does not while a child of this process is between fork(2) and execve(2), and
/// has the description, too.
fn give_up(fd: Arc<OwnedFd>) {
    let all = RecordLock {
        kind: UNLOCK,
        start: 0,
        length: 0,
    };
    if let Err(error) = sys::try_record_lock(fd.as_fd(), all) {
        tracing::debug!("unlocking: {error}");
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
                Err(Errno::BADF) if lock.kind == WRITE => {
                    let wide = self.widened(&fd, opened)?;
                    self.replace(holder, &fd, wide);
                }
                result if self.carries(holder, &fd) => return result.map_err(of_other_descriptor),
                // The other one has what this one had before.
                _ => give_up(fd),
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

    /// A descriptor that is open for writing, too, with the locks of `narrow`. These are all for reading: both can
    /// have them at a time, so that none is given up in between.
    fn widened(&self, narrow: &OwnedFd, opened: BorrowedFd<'_>) -> Result<Wide, Errno> {
        let fd = Arc::new(self.proc.reopen_to_lock(opened, BOTH)?);
        let mut moved = sys::record_locks(narrow.as_fd()).map_err(|_| Errno::NOLCK)?;
        moved.retain(|lock| sys::try_record_lock(fd.as_fd(), *lock).is_ok());
        Ok(Wide { fd, moved })
    }

    /// Has `wide` carry the locks of a holder in place of `narrow`, unless another does meanwhile, or `narrow` has
    /// others by now than were moved.
    fn replace(&self, holder: Holder, narrow: &Arc<OwnedFd>, wide: Wide) {
        let mut replaced = wide.fd;
        let mut carriers = self.carriers.of(holder.node);
        if let Some(carrier) = carriers.get_mut(&holder)
            && Arc::ptr_eq(&carrier.fd, narrow)
            // Under the lock: who sets one there too late to be seen here finds that it carries nothing.
            && sys::record_locks(narrow.as_fd()).is_ok_and(|held| held == wide.moved)
        {
            std::mem::swap(&mut carrier.fd, &mut replaced);
            // Handles that claimed the other one are closed with a FLUSH of this owner.
            carrier.handles = 0;
        }
        drop(carriers);
        give_up(replaced);
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
        let holds = |fd: &OwnedFd| {
            let held = sys::record_locks(fd.as_fd());
            held.is_ok_and(|held| held.contains(&lock))
        };
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
        give_up(carrier.fd);
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
                    give_up(carrier.fd);
                }
                self.room.give();
            }
        }
    }
}

#[cfg(test)]
mod tests;
