//! Open files and directories by the number the kernel knows them under.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use crate::sharded::{SHARDS, lock};

struct Slot<T> {
    value: Option<Arc<T>>,
    generation: u32,
}

struct Shard<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

/// Values by handle: `generation << 32 | slot`, so that a handle that was given up does not mean
/// the next value in its place.
pub(crate) struct HandleTable<T> {
    shards: Vec<Mutex<Shard<T>>>,
    next: AtomicUsize,
    count: AtomicUsize,
    limit: usize,
}

impl<T> HandleTable<T> {
    /// Room for `limit` values.
    pub(crate) fn new(limit: usize) -> Self {
        let shard = || {
            Mutex::new(Shard {
                slots: Vec::new(),
                free: Vec::new(),
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            next: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            limit,
        }
    }

    fn shard(&self, slot: u32) -> Option<MutexGuard<'_, Shard<T>>> {
        let shard = self.shards.get(slot as usize % SHARDS)?;
        Some(lock(shard))
    }

    /// Keeps `value`, or gives it back at the limit.
    pub(crate) fn insert(&self, value: T) -> Result<u64, T> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(value);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let Some(mut shard) = self.shard(number as u32) else {
            return Err(value);
        };
        let index = match shard.free.pop() {
            Some(index) => index,
            None => {
                shard.slots.push(Slot {
                    value: None,
                    generation: 1,
                });
                (shard.slots.len() - 1) as u32
            }
        };
        let Some(slot) = shard.slots.get_mut(index as usize) else {
            return Err(value);
        };
        slot.value = Some(Arc::new(value));
        let place = u64::from(index) * SHARDS as u64 + number as u64;
        Ok(u64::from(slot.generation) << 32 | place)
    }

    /// The value; EBADF for a handle that is not in use.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let place = handle as u32;
        let shard = self.shard(place).ok_or(Errno::BADF)?;
        let slot = shard
            .slots
            .get(place as usize / SHARDS)
            .ok_or(Errno::BADF)?;
        if u64::from(slot.generation) != handle >> 32 {
            return Err(Errno::BADF);
        }
        slot.value.clone().ok_or(Errno::BADF)
    }

    /// Calls `look` with each value, without holding a lock meanwhile.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&T)) {
        for shard in &self.shards {
            let values: Vec<_> = {
                let shard = lock(shard);
                shard
                    .slots
                    .iter()
                    .filter_map(|slot| slot.value.clone())
                    .collect()
            };
            values.iter().for_each(|value| look(value));
        }
    }

    /// Gives the handle up.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let place = handle as u32;
        let mut shard = self.shard(place).ok_or(Errno::BADF)?;
        let index = place as usize / SHARDS;
        let slot = shard.slots.get_mut(index).ok_or(Errno::BADF)?;
        if u64::from(slot.generation) != handle >> 32 {
            return Err(Errno::BADF);
        }
        let value = slot.value.take().ok_or(Errno::BADF)?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        shard.free.push(index as u32);
        drop(shard);
        self.count.fetch_sub(1, Ordering::Relaxed);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_means_its_value_until_it_is_given_up() {
        let table = HandleTable::new(100);
        let handles: Vec<u64> = (0..100).map(|value| table.insert(value).unwrap()).collect();
        for (value, &handle) in handles.iter().enumerate() {
            assert_eq!(*table.get(handle).unwrap(), value);
        }
        for &handle in &handles {
            table.remove(handle).unwrap();
            assert_eq!(table.get(handle), Err(Errno::BADF));
            assert_eq!(table.remove(handle), Err(Errno::BADF));
        }
        let again: Vec<u64> = (0..100).map(|value| table.insert(value).unwrap()).collect();
        assert!(again.iter().all(|handle| !handles.contains(handle)));
    }

    #[test]
    fn the_table_is_bounded() {
        let table = HandleTable::new(2);
        let one = table.insert(()).unwrap();
        table.insert(()).unwrap();
        assert_eq!(table.insert(()), Err(()));
        table.remove(one).unwrap();
        assert!(table.insert(()).is_ok());
    }

    #[test]
    fn numbers_that_were_never_given_are_refused() {
        let table = HandleTable::<()>::new(2);
        for handle in [0, 1, u64::MAX, 1 << 32] {
            assert_eq!(table.get(handle), Err(Errno::BADF));
        }
    }
}
