//! Descriptors kept for nodes: a bounded cache of directories' (`second chance` replacement), and
//! those of removed objects the kernel still knows.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::descriptors::Share;
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
    /// How many descriptors a cache for about `capacity` holds at most.
    pub(crate) fn capacity_of(capacity: usize) -> usize {
        (capacity / SHARDS).max(1) * SHARDS
    }

    /// Room for about `capacity` descriptors.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            shards: Sharded::default(),
            shard_capacity: Self::capacity_of(capacity) / SHARDS,
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
        let mut shard = self.shards.of(id);
        if let Some(position) = shard.position(id) {
            shard.ids.swap_remove(position);
            let removed = shard.cached.swap_remove(position);
            drop(shard);
            drop(removed);
        }
    }
}

/// Descriptors that keep removed objects reachable until the kernel forgets them.
pub(crate) struct Parked {
    descriptors: Sharded<HashMap<u64, Arc<OwnedFd>>>,
    room: Share,
}

impl Parked {
    pub(crate) fn new(room: Share) -> Self {
        Self {
            descriptors: Sharded::default(),
            room,
        }
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.room.set_limit(limit);
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<OwnedFd>> {
        if self.room.taken() == 0 {
            return None;
        }
        self.descriptors.of(id).get(&id).cloned()
    }

    /// Keeps `fd` for the node; false at the limit, when the object lives only as long as
    /// somebody else has it open.
    pub(crate) fn park(&self, id: u64, fd: OwnedFd) -> bool {
        let mut descriptors = self.descriptors.of(id);
        if descriptors.contains_key(&id) || !self.room.take() {
            return false;
        }
        descriptors.insert(id, Arc::new(fd));
        true
    }

    pub(crate) fn release(&self, id: u64) {
        if self.room.taken() == 0 {
            return;
        }
        let removed = self.descriptors.of(id).remove(&id);
        if removed.is_some() {
            self.room.give();
        }
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

    #[test]
    fn parking_stops_at_the_limit() {
        let parked = Parked::new(Share::alone(2));
        assert!(parked.park(1, descriptor()));
        assert!(!parked.park(1, descriptor()), "one descriptor a node");
        assert!(parked.park(2, descriptor()));
        assert!(!parked.park(3, descriptor()));
        parked.release(1);
        assert!(parked.get(1).is_none());
        assert!(parked.park(3, descriptor()));
    }
}
