//! How often names have changed.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

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
        // Ids come in runs and with tags above: the highest bits of a product have something of each bit.
        let mixed = directory.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let [first, ..] = &self.0;
        self.0.get(mixed as usize).unwrap_or(first)
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
