//! Descriptors kept for nodes: a bounded cache (`second chance` replacement).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sharded::{SHARDS, Sharded};

struct Cached {
    fd: Arc<OwnedFd>,
    used: bool,
}

#[derive(Default)]
struct CacheShard {
    /// Apart from the rest, so that the search runs over consecutive words.
    ids: Vec<u64>,
    cached: Vec<Cached>,
    hand: usize,
}

impl CacheShard {
    fn position(&self, id: u64) -> Option<usize> {
        self.ids.iter().position(|&other| other == id)
    }

    fn insert(&mut self, id: u64, fd: Arc<OwnedFd>, capacity: usize) -> Option<Cached> {
        if self.position(id).is_some() {
            return None;
        }
        if self.ids.len() < capacity {
            self.ids.push(id);
            self.cached.push(Cached { fd, used: false });
            return None;
        }
        for _ in 0..=self.ids.len() {
            self.hand = (self.hand + 1) % self.ids.len().max(1);
            let place = self.cached.get_mut(self.hand)?;
            if !std::mem::take(&mut place.used) {
                let evicted = std::mem::replace(place, Cached { fd, used: false });
                *self.ids.get_mut(self.hand)? = id;
                return Some(evicted);
            }
        }
        None
    }
}

/// A bounded cache of descriptors by node id.
pub(crate) struct DescriptorCache {
    shards: Sharded<CacheShard>,
    shard_capacity: usize,
}

impl DescriptorCache {
    /// Room for about `capacity` descriptors.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            shards: Sharded::default(),
            shard_capacity: (capacity / SHARDS).max(1),
        }
    }

    /// How many descriptors it holds at most.
    pub(crate) fn capacity(&self) -> usize {
        self.shard_capacity * SHARDS
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<OwnedFd>> {
        let mut shard = self.shards.of(id);
        let position = shard.position(id)?;
        let cached = shard.cached.get_mut(position)?;
        cached.used = true;
        Some(Arc::clone(&cached.fd))
    }

    pub(crate) fn insert(&self, id: u64, fd: Arc<OwnedFd>) {
        // Closed after the lock: closing can take the lower file system a while.
        let evicted = self.shards.of(id).insert(id, fd, self.shard_capacity);
        drop(evicted);
    }

    pub(crate) fn remove(&self, id: u64) {
        drop(self.take(id));
    }

    /// What was kept, to be closed by the caller, which may hold a lock.
    pub(crate) fn take(&self, id: u64) -> Option<Arc<OwnedFd>> {
        let mut shard = self.shards.of(id);
        let position = shard.position(id)?;
        shard.ids.swap_remove(position);
        Some(shard.cached.swap_remove(position).fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        OwnedFd::from(std::fs::File::open("/").unwrap())
    }

    #[test]
    fn the_cache_never_outgrows_its_capacity() {
        let cache = DescriptorCache::new(32);
        for id in 0..1000 {
            cache.insert(id, Arc::new(descriptor()));
        }
        let kept = (0..1000).filter(|&id| cache.get(id).is_some()).count();
        assert!(kept > 0 && kept <= 32, "{kept}");
    }

    #[test]
    fn a_removed_descriptor_is_gone() {
        let cache = DescriptorCache::new(32);
        cache.insert(5, Arc::new(descriptor()));
        assert!(cache.get(5).is_some());
        cache.remove(5);
        assert!(cache.get(5).is_none());
    }
}
