//! How often names have changed.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sharded::spread;

/// Directories share counters; a change of another one costs no more than reading again.
const COUNTERS: usize = 256;

/// Counts the changes of names by directory.
pub(crate) struct NameChanges([AtomicU64; COUNTERS]);

impl Default for NameChanges {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl NameChanges {
    fn counter(&self, directory: u64) -> &AtomicU64 {
        let [first, ..] = &self.0;
        let place = spread(directory, COUNTERS.ilog2());
        self.0.get(place).unwrap_or(first)
    }

    /// A name in `directory` was made or removed below, and nobody has heard of it yet.
    pub(crate) fn count(&self, directory: u64) {
        self.counter(directory).fetch_add(1, Ordering::SeqCst);
    }

    /// The same as long as no name in `directory` changes.
    pub(crate) fn of(&self, directory: u64) -> u64 {
        self.counter(directory).load(Ordering::SeqCst)
    }
}
