//! One queue: the requests that the kernel takes in on one CPU, and the threads that serve them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::Pid;

use super::entry::Port;
use super::handover::Handover;
use crate::sys::payloads::Areas;

/// What others see of a thread that serves a queue.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) thread: Pid,
    /// Odd while a handler runs; changes with every request.
    pub(super) turns: AtomicU64,
    /// It is scheduled behind all others of its CPU: see `yielding.rs`.
    pub(super) yields: AtomicBool,
    /// Set before the thread ends as it should.
    pub(super) finished: AtomicBool,
    /// Readable once the thread has ended, however it did.
    pub(super) ended: OwnedFd,
    pub(super) port: Arc<Port>,
    /// Entries that come to this thread, with the kernel or away from it; from the beginning the one
    /// that it is about to register, so that no request is passed on to a thread that does not serve yet.
    pub(super) entries: AtomicUsize,
    /// Entries of its ring that wait for a request.
    pub(super) waiting: AtomicUsize,
}

impl Member {
    /// Whether it is in a method.
    pub(super) fn is_busy(&self) -> bool {
        self.turns.load(Ordering::Relaxed) % 2 == 1
    }

    /// An entry goes from this thread to `other`.
    pub(super) fn give_entry(&self, other: &Self) {
        self.entries.fetch_sub(1, Ordering::SeqCst);
        other.entries.fetch_add(1, Ordering::SeqCst);
    }

    /// An entry goes from this thread to `other`, if that one has none.
    fn give_first_entry(&self, other: &Self) -> bool {
        let order = Ordering::SeqCst;
        let gave = other.entries.compare_exchange(0, 1, order, order).is_ok();
        if gave {
            self.entries.fetch_sub(1, order);
        }
        gave
    }
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
    /// The memory of its entries, apart from that of other CPUs.
    pub(super) areas: Areas,
    members: Mutex<Vec<Arc<Member>>>,
    /// The thread that takes several requests at a time, where threads may.
    front: OnceLock<Arc<Member>>,
    /// Where threads may not.
    pub(super) handover: Arc<Handover>,
}

/// Entries of one queue: how many requests may be received and answered later, for each CPU.
pub(super) const ENTRIES_MAX: usize = 512;
/// Entries that replies which wait for something else leave free, so that it can come: more than there
/// are threads, each of which has one in its method.
const RESERVE: usize = 64;
const _: () = assert!(RESERVE > 2 * super::THREADS_MAX);

impl Queue {
    pub(super) fn new(number: u16, payload: usize) -> Self {
        Self {
            number,
            available: AtomicIsize::new(0),
            registered: AtomicUsize::new(0),
            areas: Areas::new(payload),
            members: Mutex::default(),
            front: OnceLock::new(),
            handover: Arc::default(),
        }
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a further entry; `None` when there are enough.
    pub(super) fn reserve(&self) -> Option<u32> {
        let order = Ordering::Relaxed;
        let further = |before| (before < ENTRIES_MAX).then_some(before + 1);
        let before = self.registered.fetch_update(order, order, further).ok()?;
        u32::try_from(before).ok()
    }

    /// The thread that takes several requests at a time: the first that asks.
    pub(super) fn front(&self, member: &Arc<Member>) -> &Arc<Member> {
        self.front.get_or_init(|| Arc::clone(member))
    }

    /// Finds a thread that has no entry, and accounts for it one of `from`.
    pub(super) fn without_entries(&self, from: &Member) -> Option<Arc<Member>> {
        let members = self.members();
        let found = members.iter().find(|member| from.give_first_entry(member));
        found.cloned()
    }

    /// An entry goes to the kernel.
    pub(super) fn give(&self) {
        self.available.fetch_add(1, Ordering::SeqCst);
    }

    /// A request came in an entry. Answers whether it was the last one.
    pub(super) fn take(&self) -> bool {
        self.available.fetch_sub(1, Ordering::SeqCst) <= 1
    }

    /// Whether a further reply may be kept.
    pub(super) fn may_wait(&self) -> bool {
        let waiting = self.available.load(Ordering::SeqCst).max(0).unsigned_abs();
        let used = self
            .registered
            .load(Ordering::Relaxed)
            .saturating_sub(waiting);
        used <= ENTRIES_MAX - RESERVE
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.available.load(Ordering::SeqCst) <= 0
    }
}
