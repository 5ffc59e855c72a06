//! Which inodes may be written through a mapping.
//!
//! With kernel pass-through a shared mapping is one of the lower file. It outlives the descriptor it was
//! made of, and its RELEASE; neither the kernel's FUSE nor a request tells that it is there, or that it
//! was written. It keeps the inode, though, so that FORGET tells that none is left.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

/// Node ids; bounded by the inodes that the kernel knows.
pub(crate) struct Mapped {
    shards: [Mutex<HashSet<u64>>; SHARDS],
    /// Spares a look where there is none, as in most mounts.
    len: AtomicUsize,
}

impl Default for Mapped {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            len: AtomicUsize::new(0),
        }
    }
}

impl Mapped {
    fn shard(&self, node: u64) -> Option<MutexGuard<'_, HashSet<u64>>> {
        let mixed = node.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let shard = self.shards.get(mixed as usize % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes `node`; whether that is new.
    pub(crate) fn insert(&self, node: u64) -> bool {
        let new = self.shard(node).is_some_and(|mut shard| shard.insert(node));
        if new {
            self.len.fetch_add(1, Ordering::AcqRel);
        }
        new
    }

    /// The kernel knows `node` no longer.
    pub(crate) fn remove(&self, node: u64) {
        if self.len.load(Ordering::Acquire) > 0
            && self
                .shard(node)
                .is_some_and(|mut shard| shard.remove(&node))
        {
            self.len.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn contains(&self, node: u64) -> bool {
        self.len.load(Ordering::Acquire) > 0
            && self.shard(node).is_some_and(|shard| shard.contains(&node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_noted_until_it_is_forgotten() {
        let mapped = Mapped::default();
        assert!(mapped.insert(1) && !mapped.insert(1));
        assert!(mapped.contains(1) && !mapped.contains(2));
        mapped.remove(2);
        mapped.remove(1);
        assert!(!mapped.contains(1));
        assert_eq!(mapped.len.into_inner(), 0);
    }
}
