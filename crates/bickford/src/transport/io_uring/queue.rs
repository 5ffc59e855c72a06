//! One queue: the requests that the kernel takes in on one CPU, and the threads that serve them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

use super::entry::Port;

/// What others see of a thread that serves a queue.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) thread: Pid,
    /// Odd while a handler runs; changes with every request.
    pub(super) turns: AtomicU64,
    /// Set before the thread ends as it should.
    pub(super) finished: AtomicBool,
    /// Readable once the thread has ended, however it did.
    pub(super) ended: OwnedFd,
    pub(super) port: Arc<Port>,
}

/// State of one queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Number of the CPU.
    pub(super) number: u16,
    /// Entries that wait for a request. Below one, the kernel keeps further requests back.
    available: AtomicIsize,
    /// Entries that were registered.
    registered: AtomicUsize,
    members: Mutex<Vec<Arc<Member>>>,
}

/// Entries of one queue: how many requests may be received and answered later, for each CPU.
pub(super) const ENTRIES_MAX: usize = 512;

impl Queue {
    pub(super) fn new(number: u16) -> Self {
        Self {
            number,
            available: AtomicIsize::new(0),
            registered: AtomicUsize::new(0),
            members: Mutex::default(),
        }
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes account of a further entry; `false` when there are enough.
    pub(super) fn reserve(&self) -> bool {
        let before = self.registered.fetch_add(1, Ordering::Relaxed);
        if before >= ENTRIES_MAX {
            self.registered.fetch_sub(1, Ordering::Relaxed);
        }
        before < ENTRIES_MAX
    }

    /// The further entry did not come about.
    pub(super) fn release(&self) {
        self.registered.fetch_sub(1, Ordering::Relaxed);
    }

    /// An entry goes to the kernel.
    pub(super) fn give(&self) {
        self.available.fetch_add(1, Ordering::SeqCst);
    }

    /// A request came in an entry. Answers whether it was the last one.
    pub(super) fn take(&self) -> bool {
        self.available.fetch_sub(1, Ordering::SeqCst) <= 1
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.available.load(Ordering::SeqCst) <= 0
    }
}
