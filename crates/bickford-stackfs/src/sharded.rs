//! State by node id, in parts of which each has a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also where a thread has panicked that held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number of so many bits that differs for ids that come in runs, or have tags above: the highest bits of a product
/// have something of each bit.
pub(crate) fn spread(id: u64, bits: u32) -> usize {
    (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - bits)) as usize
}

/// Parts: enough that requests for different nodes seldom meet at one.
pub(crate) const SHARDS: usize = 16;

/// Parts that differ by node; what is of one node is in one part.
pub(crate) struct Sharded<T>([Mutex<T>; SHARDS]);

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<T> Sharded<T> {
    /// The part that `node` belongs to, locked.
    pub(crate) fn of(&self, node: u64) -> MutexGuard<'_, T> {
        let [first, ..] = &self.0;
        lock(self.0.get(spread(node, SHARDS.ilog2())).unwrap_or(first))
    }

    /// Calls `look` with each part, locked.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&mut T)) {
        for part in &self.0 {
            look(&mut lock(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_one_after_the_other_spread_over_all_parts() {
        let counts: Sharded<usize> = Sharded::default();
        let nodes = 1600_u64;
        for node in 0..nodes {
            *counts.of(node) += 1;
        }
        let counts = counts.0.map(|count| count.into_inner().unwrap());
        assert_eq!(counts.iter().sum::<usize>(), nodes as usize);
        assert!(
            counts.iter().all(|count| (50..200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_part_outlives_a_panic_of_its_holder() {
        let parts: Sharded<u8> = Sharded::default();
        let held = std::panic::AssertUnwindSafe(|| {
            let _held = parts.of(7);
            panic!("while it is held");
        });
        assert!(std::panic::catch_unwind(held).is_err());
        *parts.of(7) += 1;
        assert_eq!(*parts.of(7), 1);
    }
}
