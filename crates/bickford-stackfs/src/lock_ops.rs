//! Lock requests, and those that wait.
//!
//! A lock that cannot be had at once is tried again ([`Retries`]): at once when a lock is given up through this
//! mount, and every few milliseconds for locks that processes on the lower directory hold. So is, for a moment, one
//! that is not to wait, where its holder may have been closed already ([`crate::leaving`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use bickford::ops::{Getlk, Lock, LockKind, Setlk};
use bickford::reply::Reply;
use bickford::{Context, Interrupt};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Inner;
use crate::io::OpenFile;
use crate::leaving::LEAVING;
use crate::locks::{Holder, RecordLocks, of_other_descriptor};
use crate::retry::Retries;
use crate::sharded::lock;
use crate::sys::RecordLock;

const CHAIN_MAX: usize = 10;

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
            Self::Flock { fd, operation } => {
                rustix::fs::flock(fd, *operation).map_err(of_other_descriptor)
            }
        }
    }
}

/// Those that wait for locks; further ones get ENOLCK.
pub(crate) type WaitingLocks = Retries<Waiting>;

pub(crate) struct Waiting {
    attempt: Attempt,
    interrupt: Arc<Interrupt>,
    reply: Reply<()>,
    /// The record lock that it was last known to wait for.
    in_the_way: Option<RecordLock>,
    /// Of one that is not to wait: when it is refused.
    until: Option<Instant>,
}

impl Waiting {
    /// Whose record lock it is, if it waits until it has it.
    fn owner(&self) -> Option<u64> {
        self.until.is_none().then(|| self.attempt.owner())?
    }

    /// Whether it is to be answered, whatever the answer is.
    fn is_over(&self, ended: bool) -> bool {
        let late = |until| Instant::now() >= until;
        ended || self.interrupt.is_raised() || self.until.is_some_and(late)
    }
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
        let next = waiting.iter().find(|one| one.owner() == Some(owner));
        match next {
            Some(next) => attempt = &next.attempt,
            None => return false,
        }
    }
    false
}

/// EDEADLK to whoever closes a cycle of waiting: one who has just begun to wait, or waits for another lock
/// than before, as what was in the way is gone.
fn refuse_deadlocks(waiting: &mut Vec<Waiting>, locks: &RecordLocks) {
    let mut place = 0;
    while let Some(one) = waiting.get_mut(place) {
        let before = one.in_the_way;
        one.in_the_way = one.attempt.in_the_way(locks);
        let another = one.in_the_way.is_some() && one.in_the_way != before && one.until.is_none();
        let closes = |one: &Waiting| is_deadlock(waiting, locks, &one.attempt);
        if another && waiting.get(place).is_some_and(closes) {
            waiting.remove(place).reply.error(Errno::DEADLK);
        } else {
            place += 1;
        }
    }
}

/// Answers those that can be answered, and gives the rest back.
fn try_again(batch: Vec<Waiting>, locks: &RecordLocks, ended: bool) -> Vec<Waiting> {
    let mut kept = Vec::new();
    for waiting in batch {
        let over = waiting.is_over(ended);
        let result = match over && waiting.until.is_none() {
            true => Err(Errno::INTR),
            false => waiting.attempt.run(locks),
        };
        match result {
            Err(Errno::AGAIN | Errno::ACCESS) if !over => kept.push(waiting),
            result => {
                let Waiting { attempt, reply, .. } = waiting;
                drop(attempt);
                reply.complete(result);
            }
        }
    }
    refuse_deadlocks(&mut kept, locks);
    kept
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
            drop(lock(&file.left).take());
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
        // Before the attempt: a holder that goes in between is none that the attempt met.
        let leaving = self.leaving.any(op.node.0);
        match attempt.run(&self.locks) {
            Err(error @ (Errno::AGAIN | Errno::ACCESS)) => {
                let refusal = match op.wait {
                    true => Errno::NOLCK,
                    false if leaving => error,
                    false => return reply.error(error),
                };
                self.wait_for_lock(cx, op, attempt, refusal, reply);
            }
            result => {
                if op.lock.kind == LockKind::Unlock {
                    self.waiting.wake();
                }
                // Its descriptor keeps the lock, and who has the answer may close the file.
                drop(attempt);
                reply.complete(result);
            }
        }
    }

    /// Somebody has the lock: `refusal` where it cannot be waited for, or not for longer.
    fn wait_for_lock(
        &self,
        cx: &Context<'_>,
        op: &Setlk,
        attempt: Attempt,
        refusal: Errno,
        reply: Reply<()>,
    ) {
        let until = (!op.wait).then(|| Instant::now() + LEAVING);
        // It would keep unlocks from coming.
        if !reply.may_wait() {
            return reply.error(refusal);
        }
        let interrupt = cx.interrupt();
        let waiting = Waiting {
            attempt,
            interrupt: Arc::clone(&interrupt),
            reply,
            in_the_way: None,
            until,
        };
        let locks = Arc::clone(&self.locks);
        let all = move |batch, ended| try_again(batch, &locks, ended);
        if let Some(refused) = self.waiting.push(waiting, &interrupt, all) {
            refused.reply.error(refusal);
        }
    }
}
