//! Lock requests, and those that wait.
//!
//! A lock that cannot be had at once waits in a queue that one thread tries again: at once when a
//! lock is given up through this mount, and every few milliseconds for locks that processes on the
//! lower directory hold. So no number of waiting callers keeps a worker from its work.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bickford::ops::{Getlk, Lock, LockKind, Setlk};
use bickford::reply::Reply;
use bickford::{Context, Interrupt};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Inner;
use crate::io::OpenFile;
use crate::locks::{Holder, RecordLocks};
use crate::sys::RecordLock;

/// Callers that wait at most; further ones get ENOLCK. Over io_uring there may be fewer, see
/// [`Reply::may_wait`].
const WAITING_MAX: usize = 4096;
const CHAIN_MAX: usize = 10;
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(50);

fn record(lock: &Lock) -> Result<RecordLock, Errno> {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    let start = i64::try_from(lock.start).map_err(|_| Errno::INVAL)?;
    let end = i64::try_from(lock.end).map_err(|_| Errno::INVAL)?;
    let length = match end {
        i64::MAX => 0,
        end => end
            .checked_sub(start)
            .and_then(|l| l.checked_add(1))
            .ok_or(Errno::INVAL)?,
    };
    Ok(RecordLock {
        kind: kind as i16,
        start,
        length,
    })
}

fn answer(lock: RecordLock, pid: u32) -> Lock {
    let end = match lock.length {
        0 => i64::MAX,
        length => lock.start.saturating_add(length - 1),
    };
    Lock {
        start: lock.start.cast_unsigned(),
        end: end.cast_unsigned(),
        kind: match i32::from(lock.kind) {
            libc::F_RDLCK => LockKind::Read,
            libc::F_WRLCK => LockKind::Write,
            _ => LockKind::Unlock,
        },
        pid,
    }
}

/// A lock that can be tried any number of times.
enum Attempt {
    Record {
        holder: Holder,
        pid: u32,
        lock: RecordLock,
        fd: Arc<OwnedFd>,
        file: Arc<OpenFile>,
    },
    Flock {
        fd: Arc<OwnedFd>,
        operation: FlockOperation,
    },
}

impl Attempt {
    fn new(op: &Setlk, file: Arc<OpenFile>, fd: Arc<OwnedFd>) -> Result<Self, Errno> {
        if op.flock {
            let operation = match op.lock.kind {
                LockKind::Read => FlockOperation::NonBlockingLockShared,
                LockKind::Write => FlockOperation::NonBlockingLockExclusive,
                LockKind::Unlock => FlockOperation::NonBlockingUnlock,
            };
            return Ok(Self::Flock { fd, operation });
        }
        let holder = Holder {
            node: file.node,
            owner: op.owner.0,
        };
        Ok(Self::Record {
            holder,
            pid: op.lock.pid,
            lock: record(&op.lock)?,
            fd,
            file,
        })
    }

    /// Whose record lock it is.
    fn owner(&self) -> Option<u64> {
        match self {
            Self::Record { holder, .. } => Some(holder.owner),
            Self::Flock { .. } => None,
        }
    }

    /// Which caller of the mount holds the record lock in the way.
    fn waits_for(&self, locks: &RecordLocks) -> Option<u64> {
        match self {
            Self::Record {
                holder, lock, fd, ..
            } => locks.get(*holder, *lock, fd.as_fd()).ok()??.owner,
            Self::Flock { .. } => None,
        }
    }

    /// The first record lock in the way.
    fn in_the_way(&self, locks: &RecordLocks) -> Option<RecordLock> {
        match self {
            Self::Record {
                holder, lock, fd, ..
            } => Some(locks.in_the_way(*holder, *lock, fd.as_fd()).ok()??.0),
            Self::Flock { .. } => None,
        }
    }

    fn run(&self, locks: &RecordLocks) -> Result<(), Errno> {
        match self {
            Self::Record {
                holder,
                pid,
                lock,
                fd,
                file,
            } => locks.set(*holder, *pid, *lock, fd.as_fd(), &file.claims),
            Self::Flock { fd, operation } => rustix::fs::flock(fd, *operation),
        }
    }
}

struct Waiting {
    attempt: Attempt,
    interrupt: Arc<Interrupt>,
    reply: Reply<()>,
    /// The record lock that it was last known to wait for.
    in_the_way: Option<RecordLock>,
}

/// Whether `new` waits for somebody who waits, and so on, for its own owner. As far as the kernel
/// looks (`MAX_DEADLK_ITERATIONS`). It does not look for locks of open file descriptions, which any
/// process that has them can give up; those do not come as such.
fn is_deadlock(waiting: &[Waiting], locks: &RecordLocks, new: &Attempt) -> bool {
    let Some(first) = new.owner() else {
        return false;
    };
    let mut attempt = new;
    for _ in 0..CHAIN_MAX {
        let Some(owner) = attempt.waits_for(locks) else {
            return false;
        };
        if owner == first {
            return true;
        }
        let next = waiting
            .iter()
            .find(|one| one.attempt.owner() == Some(owner));
        match next {
            Some(next) => attempt = &next.attempt,
            None => return false,
        }
    }
    false
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    running: bool,
    /// Something may be free now, or a caller gave up.
    stirred: bool,
    ended: bool,
}

/// See the module.
pub(crate) struct WaitingLocks {
    queue: Mutex<Queue>,
    stirred: Condvar,
    count: AtomicUsize,
    locks: Arc<RecordLocks>,
}

impl WaitingLocks {
    pub(crate) fn new(locks: Arc<RecordLocks>) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            stirred: Condvar::new(),
            count: AtomicUsize::new(0),
            locks,
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries every waiting lock soon.
    pub(crate) fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.queue().stirred = true;
            self.stirred.notify_one();
        }
    }

    /// Answers all that wait; nothing waits from now on.
    pub(crate) fn end(&self) {
        self.queue().ended = true;
        self.stirred.notify_one();
    }

    fn push(self: &Arc<Self>, waiting: Waiting) {
        let interrupt = Arc::clone(&waiting.interrupt);
        let refused = {
            let mut queue = self.queue();
            if queue.ended || self.count.load(Ordering::SeqCst) >= WAITING_MAX {
                Some(waiting)
            } else {
                self.count.fetch_add(1, Ordering::SeqCst);
                queue.waiting.push(waiting);
                // A lock may have been given up since it was tried.
                queue.stirred = true;
                if !queue.running {
                    queue.running = self.start();
                }
                match queue.running {
                    true => None,
                    false => {
                        self.count.fetch_sub(1, Ordering::SeqCst);
                        queue.waiting.pop()
                    }
                }
            }
        };
        if let Some(refused) = refused {
            refused.reply.error(Errno::NOLCK);
            return;
        }
        self.stirred.notify_one();
        let this = Arc::downgrade(self);
        interrupt.on_raise(move || {
            if let Some(this) = this.upgrade() {
                this.wake();
            }
        });
    }

    fn start(self: &Arc<Self>) -> bool {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("stackfs-locks".to_owned());
        thread.spawn(move || this.run()).is_ok()
    }

    fn run(&self) {
        let mut pause = RETRY_MIN;
        loop {
            let (batch, ended) = {
                let mut queue = self.queue();
                if !queue.stirred && !queue.ended {
                    let wait = self.stirred.wait_timeout(queue, pause);
                    queue = wait.unwrap_or_else(PoisonError::into_inner).0;
                }
                pause = if queue.stirred {
                    RETRY_MIN
                } else {
                    (pause * 2).min(RETRY_MAX)
                };
                queue.stirred = false;
                (std::mem::take(&mut queue.waiting), queue.ended)
            };
            let mut kept: Vec<Waiting> = batch
                .into_iter()
                .filter_map(|waiting| self.attempt(waiting, ended))
                .collect();
            self.refuse_deadlocks(&mut kept);
            let mut queue = self.queue();
            // Who has come meanwhile comes after them.
            kept.append(&mut queue.waiting);
            queue.waiting = kept;
            if queue.waiting.is_empty() {
                queue.running = false;
                return;
            }
        }
    }

    /// EDEADLK to whoever closes a cycle of waiting: one who has just begun to wait, or waits for another lock
    /// than before, as what was in the way is gone.
    fn refuse_deadlocks(&self, waiting: &mut Vec<Waiting>) {
        let mut place = 0;
        while let Some(one) = waiting.get_mut(place) {
            let before = one.in_the_way;
            one.in_the_way = one.attempt.in_the_way(&self.locks);
            let another = one.in_the_way.is_some() && one.in_the_way != before;
            let closes = |one: &Waiting| is_deadlock(waiting, &self.locks, &one.attempt);
            if another && waiting.get(place).is_some_and(closes) {
                self.count.fetch_sub(1, Ordering::SeqCst);
                waiting.remove(place).reply.error(Errno::DEADLK);
            } else {
                place += 1;
            }
        }
    }

    /// Answers what can be answered, and gives the rest back.
    fn attempt(&self, waiting: Waiting, ended: bool) -> Option<Waiting> {
        let result = if ended || waiting.interrupt.is_raised() {
            Err(Errno::INTR)
        } else {
            match waiting.attempt.run(&self.locks) {
                Err(Errno::AGAIN | Errno::ACCESS) => return Some(waiting),
                result => result,
            }
        };
        self.count.fetch_sub(1, Ordering::SeqCst);
        waiting.reply.complete(result);
        None
    }
}

impl Inner {
    pub(crate) fn do_getlk(&self, op: &Getlk) -> Result<Lock, Errno> {
        let file = self.files.get(op.handle.0)?;
        let holder = Holder {
            node: file.node,
            owner: op.owner.0,
        };
        let fd = self.descriptor(&file)?;
        let found = self.locks.get(holder, record(&op.lock)?, fd.as_fd())?;
        Ok(found.map_or_else(Lock::none, |found| answer(found.lock, found.pid)))
    }

    pub(crate) fn do_setlk(&self, cx: &Context<'_>, op: &Setlk, reply: Reply<()>) {
        let attempt = self.files.get(op.handle.0).and_then(|file| {
            let fd = match op.flock {
                true => self.flock_descriptor(&file)?,
                false => self.descriptor(&file)?,
            };
            Attempt::new(op, file, fd)
        });
        let attempt = match attempt {
            Ok(attempt) => attempt,
            Err(error) => return reply.error(error),
        };
        match attempt.run(&self.locks) {
            // It would keep unlocks from coming.
            Err(Errno::AGAIN | Errno::ACCESS) if op.wait && !reply.may_wait() => {
                reply.error(Errno::NOLCK);
            }
            Err(Errno::AGAIN | Errno::ACCESS) if op.wait => {
                self.waiting.push(Waiting {
                    attempt,
                    interrupt: cx.interrupt(),
                    reply,
                    in_the_way: None,
                });
            }
            result => {
                if op.lock.kind == LockKind::Unlock {
                    self.waiting.wake();
                }
                reply.complete(result);
            }
        }
    }
}
