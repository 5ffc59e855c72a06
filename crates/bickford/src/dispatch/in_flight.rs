//! The table of requests that were received and not yet answered.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bickford_abi::{InHeader, Opcode};

use super::activity::Activity;
use super::interrupt::Interrupt;
use crate::trace::Stamp;
use crate::{NodeId, Unique};

/// A request that was received and not yet answered.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InFlightRequest {
    /// Its number.
    pub unique: Unique,
    /// What is asked.
    pub opcode: Opcode,
    /// The inode that is asked about.
    pub node: NodeId,
    /// The calling process.
    pub pid: u32,
    /// For how long it has been here.
    pub age: Duration,
    /// Whether its caller wants it to end.
    pub interrupted: bool,
}

struct Entry {
    unique: Unique,
    opcode: Opcode,
    node: NodeId,
    pid: u32,
    received: Stamp,
    interrupt: Option<Arc<Interrupt>>,
    interrupted: bool,
    /// The signals of its caller were looked at.
    looked_at: bool,
}

/// Who looks at the signals of callers, where the kernel does not tell of all of them.
struct Seeker {
    bell: Box<dyn Fn() + Send + Sync>,
    /// Since the last look the bell was rung, or there were requests too young for it.
    due: AtomicBool,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Slots {
    fn used(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Puts an entry where one was before.
    fn reuse(&mut self, entry: Entry) -> Result<u32, Entry> {
        let Some(index) = self.free.pop() else {
            return Err(entry);
        };
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                *slot = Some(entry);
                Ok(index)
            }
            None => Err(entry),
        }
    }
}

/// The requests of one session, in shards: one per worker, so that workers do not wait for each
/// other.
pub struct InFlight {
    shards: Box<[Shard]>,
    /// Slots of all shards, used or free: never more than `limit`.
    slots: AtomicUsize,
    limit: usize,
    early: Mutex<VecDeque<(Unique, Stamp)>>,
    early_count: AtomicUsize,
    /// How many requests are here beyond the limit.
    beyond: AtomicUsize,
    /// The connection has ended.
    over: AtomicBool,
    /// The thread that raises the interrupts of what is here then.
    raising: Mutex<Option<ThreadId>>,
    raised: Condvar,
    /// Where somebody wants to know.
    activity: OnceLock<Arc<Activity>>,
    seeker: OnceLock<Seeker>,
}

const SHARDS: usize = 64;

/// What names a slot: its shard and its place there.
fn slot_of(shard: usize, index: u32) -> u32 {
    index * SHARDS as u32 + shard as u32
}

/// Interrupts that came before their request; the oldest are dropped.
const EARLY_MAX: usize = 256;
/// How long they are kept: most are of requests that were answered at the same moment, and never come.
const EARLY_AGE: Duration = Duration::from_secs(5);

/// The slot of a request beyond the limit, which has none.
const BEYOND: u32 = u32::MAX;
/// How many of these there may be: more than the kernel sends of RELEASE at a time.
const BEYOND_MAX: usize = 1 << 16;

/// Whether what was given out stays out when the request fails: it does not come again.
fn gives_back(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Release | Opcode::Releasedir | Opcode::Flush)
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        locked(&self.0)
    }
}

/// Whether the request of an interrupt that came then may be yet to come.
fn is_fresh(came: Stamp, now: Stamp) -> bool {
    Duration::from_nanos(now.since(came)) < EARLY_AGE
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InFlight({} of {})", self.len(), self.limit)
    }
}

impl InFlight {
    /// An empty table for at most `limit` requests.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            slots: AtomicUsize::new(0),
            limit,
            early: Mutex::default(),
            early_count: AtomicUsize::new(0),
            beyond: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            raising: Mutex::default(),
            raised: Condvar::new(),
            activity: OnceLock::new(),
            seeker: OnceLock::new(),
        }
    }

    /// How many requests there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().used()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().used() == 0)
    }

    /// What tells that requests come, from now on.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        Arc::clone(self.activity.get_or_init(Arc::default))
    }

    /// Adds a request; `None` when the table is full. Beyond its limit there are requests that give something back:
    /// they are counted, and not listed.
    pub(crate) fn insert(
        &self,
        worker: usize,
        header: &InHeader,
        opcode: Opcode,
        received: Stamp,
    ) -> Option<u32> {
        if let Some(activity) = self.activity.get() {
            activity.touch();
        }
        let number = worker % SHARDS;
        let entry = Entry {
            unique: Unique(header.unique),
            opcode,
            node: NodeId(header.nodeid),
            pid: header.pid,
            received,
            interrupt: None,
            interrupted: false,
            looked_at: false,
        };
        let reused = self.shards.get(number)?.lock().reuse(entry);
        let slot = match reused {
            Ok(index) => slot_of(number, index),
            Err(entry) => match self.add(number, entry) {
                Some(slot) => slot,
                None => return self.add_beyond(opcode),
            },
        };
        if self.early_count.load(Ordering::SeqCst) > 0
            && self.take_early(Unique(header.unique), received)
        {
            self.interrupt(Unique(header.unique));
        }
        if self.over.load(Ordering::SeqCst) {
            self.interrupt_present(Unique(header.unique));
        }
        Some(slot)
    }

    /// Adds a slot to a shard or, where there may be no more, takes a free one of any other.
    fn add(&self, number: usize, mut entry: Entry) -> Option<u32> {
        let order = Ordering::Relaxed;
        let further = |slots| (slots < self.limit).then_some(slots + 1);
        if self.slots.fetch_update(order, order, further).is_ok() {
            let mut shard = self.shards.get(number)?.lock();
            let index = u32::try_from(shard.slots.len()).ok()?;
            shard.slots.push(Some(entry));
            return Some(slot_of(number, index));
        }
        for (number, shard) in self.shards.iter().enumerate() {
            let reused = shard.lock().reuse(entry);
            match reused {
                Ok(index) => return Some(slot_of(number, index)),
                Err(back) => entry = back,
            }
        }
        None
    }

    fn add_beyond(&self, opcode: Opcode) -> Option<u32> {
        let order = Ordering::Relaxed;
        let further = |count| (count < BEYOND_MAX).then_some(count + 1);
        let counted = gives_back(opcode) && self.beyond.fetch_update(order, order, further).is_ok();
        counted.then_some(BEYOND)
    }

    pub(crate) fn remove(&self, slot: u32) {
        if slot == BEYOND {
            self.beyond.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let Some(shard) = self.shards.get(slot as usize % SHARDS) else {
            return;
        };
        let mut shard = shard.lock();
        let index = slot / SHARDS as u32;
        let removed = shard.slots.get_mut(index as usize).and_then(Option::take);
        if removed.is_some() {
            shard.free.push(index);
        }
        drop(shard);
        // What was to be called at the interrupt is the user's, and may hold another reply.
        if let Some(interrupt) = removed.and_then(|entry| entry.interrupt)
            && catch_unwind(AssertUnwindSafe(|| drop(interrupt))).is_err()
        {
            tracing::error!("what was to be called at an interrupt panicked as it was dropped");
        }
    }

    /// The interrupt of a request, made when it is first asked for. Once the request is answered, its
    /// slot may be another one's: then it is an interrupt that nobody raises.
    pub(crate) fn interrupt_of(&self, slot: u32, unique: Unique) -> Arc<Interrupt> {
        let shard = self.shards.get(slot as usize % SHARDS).map(Shard::lock);
        let mut is_new = false;
        let entry = shard.and_then(|mut shard| {
            let slot = shard.slots.get_mut(slot as usize / SHARDS)?;
            let entry = slot.as_mut().filter(|entry| entry.unique == unique)?;
            is_new = entry.interrupt.is_none();
            let interrupted = entry.interrupted;
            let fresh = || Arc::new(Interrupt::new(interrupted));
            Some(Arc::clone(entry.interrupt.get_or_insert_with(fresh)))
        });
        if is_new
            && let Some(seeker) = self.seeker.get()
            && !seeker.due.swap(true, Ordering::SeqCst)
        {
            (seeker.bell)();
        }
        entry.unwrap_or_default()
    }

    /// Has `bell` called when some request waits for its interrupt: then [`Self::look_at_signals`] is due, until
    /// it says otherwise.
    pub(crate) fn seek_signals(&self, bell: impl Fn() + Send + Sync + 'static) {
        let bell = Box::new(bell);
        let due = AtomicBool::new(false);
        // The first to ask is the only one.
        let _ = self.seeker.set(Seeker { bell, due });
    }

    /// Whether [`Self::look_at_signals`] is due.
    pub(crate) fn seeks_signals(&self) -> bool {
        let seeker = self.seeker.get();
        seeker.is_some_and(|seeker| seeker.due.load(Ordering::SeqCst))
    }

    /// Interrupts the requests that wait for it and whose caller (a thread) has a signal: each is looked at when it is older
    /// than `age`, so that quick ones are not, and once, unless `has_signal` cannot tell yet.
    pub(crate) fn look_at_signals(&self, age: Duration, has_signal: impl Fn(u32) -> Option<bool>) {
        let Some(seeker) = self.seeker.get() else {
            return;
        };
        seeker.due.store(false, Ordering::SeqCst);
        let now = Stamp::now();
        let mut callers = Vec::new();
        for shard in &self.shards {
            for entry in shard.lock().slots.iter_mut().flatten() {
                if entry.interrupt.is_none() || entry.interrupted || entry.looked_at {
                    continue;
                }
                if Duration::from_nanos(now.since(entry.received)) < age {
                    seeker.due.store(true, Ordering::SeqCst);
                    continue;
                }
                entry.looked_at = true;
                callers.push((entry.unique, entry.pid));
            }
        }
        for (unique, caller) in callers {
            // Zero is the kernel itself, or somebody in another pid namespace.
            if caller == 0 {
                continue;
            }
            match has_signal(caller) {
                Some(true) => {
                    self.interrupt_present(unique);
                }
                Some(false) => {}
                None => {
                    self.with_entry(unique, |entry| entry.looked_at = false);
                    seeker.due.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    /// Answers whether the request is here.
    fn with_entry(&self, unique: Unique, change: impl FnOnce(&mut Entry)) -> bool {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut entries = shard.slots.iter_mut().flatten();
            if let Some(entry) = entries.find(|entry| entry.unique == unique) {
                change(entry);
                return true;
            }
        }
        false
    }

    /// The caller of a request wants it to end. Where the request is not here yet, this is
    /// remembered for when it comes.
    pub(crate) fn interrupt(&self, unique: Unique) {
        if self.interrupt_present(unique) {
            return;
        }
        let now = Stamp::now();
        {
            let mut early = locked(&self.early);
            early.retain(|(_, came)| is_fresh(*came, now));
            if early.len() >= EARLY_MAX {
                early.pop_front();
            }
            early.push_back((unique, now));
            self.early_count.store(early.len(), Ordering::SeqCst);
        }
        if self.interrupt_present(unique) {
            self.take_early(unique, now);
        }
    }

    fn interrupt_present(&self, unique: Unique) -> bool {
        let mut interrupt = None;
        let is_here = self.with_entry(unique, |entry| {
            entry.interrupted = true;
            interrupt = entry.interrupt.clone();
        });
        if let Some(interrupt) = interrupt {
            interrupt.raise();
        }
        is_here
    }

    /// The connection has ended: whoever waits for an interrupt waits no longer, nor does who comes
    /// later.
    pub fn end(&self) {
        {
            let mut raising = locked(&self.raising);
            if self.over.swap(true, Ordering::SeqCst) {
                return;
            }
            *raising = Some(thread::current().id());
        }
        for shard in &self.shards {
            let interrupts: Vec<_> = {
                let mut shard = shard.lock();
                let entries = shard.slots.iter_mut().flatten();
                entries
                    .filter_map(|entry| {
                        entry.interrupted = true;
                        entry.interrupt.clone()
                    })
                    .collect()
            };
            for interrupt in interrupts {
                interrupt.raise();
            }
        }
        *locked(&self.raising) = None;
        self.raised.notify_all();
    }

    /// Waits until whoever found the connection to have ended has raised all interrupts, unless that is the
    /// calling thread, in what is called at one of them.
    pub(crate) fn wait_for_end(&self) {
        let this = thread::current().id();
        let another = |raising: &mut Option<ThreadId>| raising.is_some_and(|id| id != this);
        drop(self.raised.wait_while(locked(&self.raising), another));
    }

    fn take_early(&self, unique: Unique, now: Stamp) -> bool {
        let mut early = locked(&self.early);
        let before = early.len();
        let mut found = false;
        early.retain(|(other, came)| {
            found |= *other == unique;
            *other != unique && is_fresh(*came, now)
        });
        if early.len() < before {
            self.early_count.store(early.len(), Ordering::SeqCst);
        }
        found
    }

    /// A copy of the table, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<InFlightRequest> {
        let now = Stamp::now();
        let mut list = Vec::new();
        for shard in &self.shards {
            list.extend(
                shard
                    .lock()
                    .slots
                    .iter()
                    .flatten()
                    .map(|entry| InFlightRequest {
                        unique: entry.unique,
                        opcode: entry.opcode,
                        node: entry.node,
                        pid: entry.pid,
                        age: Duration::from_nanos(now.since(entry.received)),
                        interrupted: entry.interrupted,
                    }),
            );
        }
        list.sort_by_key(|request| std::cmp::Reverse(request.age));
        list
    }
}

#[cfg(test)]
mod tests;
