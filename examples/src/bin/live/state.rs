//! What the file system and its clock share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bickford::ops::PollHandle;
use bickford::path::Names;
use bickford::{Errno, Notifier};

pub(crate) const POLLIN: u32 = 1;
/// How many polls may wait; those beyond are told that the file is ready.
pub(crate) const WAITERS_MAX: usize = 1024;

/// What the file system and the clock share.
pub(crate) struct State {
    pub(crate) started: Instant,
    pub(crate) ticks: AtomicU64,
    pub(crate) handles: AtomicU64,
    /// Open files of `ticks`, with the last tick that each one has read, and who polls.
    pub(crate) seen: Mutex<HashMap<u64, u64>>,
    pub(crate) waiters: Mutex<Vec<PollHandle>>,
}

/// The file system.
pub(crate) struct Live(pub(crate) Arc<State>);

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    pub(crate) fn ticks(&self) -> u64 {
        self.0.ticks.load(Ordering::SeqCst)
    }

    pub(crate) fn contents(&self, path: &Path) -> Result<String, Errno> {
        match path.to_str() {
            Some("/uptime") => Ok(format!("{:.3} s\n", self.0.started.elapsed().as_secs_f64())),
            Some("/ticks") => Ok(format!("{}\n", self.ticks())),
            _ => Err(Errno::NOENT),
        }
    }
}

/// Counts, tells the kernel that what it has is old, and wakes who waits.
pub(crate) fn tick(state: &State, names: &Names, notifier: &Notifier) {
    state.ticks.fetch_add(1, Ordering::SeqCst);
    let invalidated = names.invalidate(notifier, "/ticks").map(drop);
    let waiters = std::mem::take(&mut *locked(&state.waiters));
    let woken = waiters
        .into_iter()
        .try_for_each(|waiter| notifier.wake_poll(waiter));
    if let Err(error) = invalidated.and(woken) {
        eprintln!("tick: {error}");
    }
}
