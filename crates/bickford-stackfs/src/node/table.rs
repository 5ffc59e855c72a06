//! The table of nodes whose identity does not fit into a node id.
//!
//! A node id is the slot and two more, past the root; below 2^32, so that it never meets an id that
//! is itself inode number and generation.
//! Two levels of sharding: the hash of the identity picks the shard, and the shard is the low part
//! of the slot, so an id leads back to its shard without a search.

use std::hash::BuildHasher;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::{DefaultHashBuilder, HashTable};
use rustix::io::Errno;

use super::hard_links::Watch;
use crate::descriptors::Share;
use crate::sharded::lock;
use crate::sys::{HandleParts, LowerHandle};

const SHARDS: usize = 64;
const CHUNK: usize = 256;
/// 0 is no node, 1 the root.
const FIRST_ID: u64 = 2;
const INLINE_BYTES: usize = 20;

/// What tells one lower object from every other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key<'a> {
    /// A file handle on one of the lower mounts.
    Handle { mount: u16, handle: HandleParts<'a> },
    /// An object known only while it is held open.
    Object {
        device: u64,
        inode: u64,
        /// Where inode numbers may not tell objects apart.
        handle: Option<HandleParts<'a>>,
    },
}

/// What is held of an object.
pub(super) struct Held {
    fd: Arc<OwnedFd>,
    /// Of an object that its watch tells from others.
    _watch: Option<Watch>,
}

impl Held {
    pub(super) fn new(fd: OwnedFd, watch: Option<Watch>) -> Self {
        Self {
            fd: Arc::new(fd),
            _watch: watch,
        }
    }
}

/// A held object with what tells it from others.
struct HeldObject {
    device: u64,
    inode: u64,
    handle: Option<LowerHandle>,
    held: Held,
}

/// How to come back to the object of a node.
pub(crate) enum Location {
    Handle { mount: u16, handle: LowerHandle },
    Descriptor(Arc<OwnedFd>),
}

enum Identity {
    Free {
        next: Option<u32>,
    },
    Short {
        kind: i32,
        mount: u16,
        length: u8,
        bytes: [u8; INLINE_BYTES],
    },
    Long(Box<(u16, LowerHandle)>),
    Object(Box<HeldObject>),
}

struct Entry {
    identity: Identity,
    lookups: u64,
    generation: u32,
}

impl Identity {
    fn new(key: Key<'_>, held: Option<Held>) -> Result<Self, Errno> {
        let owned = |(kind, bytes)| LowerHandle::new(kind, bytes).ok_or(Errno::INVAL);
        match key {
            Key::Object {
                device,
                inode,
                handle,
            } => Ok(Self::Object(Box::new(HeldObject {
                device,
                inode,
                handle: handle.map(owned).transpose()?,
                held: held.ok_or(Errno::BADF)?,
            }))),
            Key::Handle { mount, handle } => {
                let (kind, own) = handle;
                let mut bytes = [0; INLINE_BYTES];
                match bytes.get_mut(..own.len()) {
                    Some(place) => place.copy_from_slice(own),
                    None => return Ok(Self::Long(Box::new((mount, owned(handle)?)))),
                }
                Ok(Self::Short {
                    kind,
                    mount,
                    length: own.len() as u8,
                    bytes,
                })
            }
        }
    }

    /// What it was made of; none for a free place.
    fn key(&self) -> Option<Key<'_>> {
        match self {
            Self::Free { .. } => None,
            Self::Short {
                kind,
                mount,
                length,
                bytes,
            } => Some(Key::Handle {
                mount: *mount,
                handle: (*kind, bytes.get(..usize::from(*length))?),
            }),
            Self::Long(held) => Some(Key::Handle {
                mount: held.0,
                handle: held.1.parts(),
            }),
            Self::Object(held) => Some(Key::Object {
                device: held.device,
                inode: held.inode,
                handle: held.handle.as_ref().map(LowerHandle::parts),
            }),
        }
    }

    fn location(&self) -> Option<Location> {
        if let Self::Object(held) = self {
            return Some(Location::Descriptor(Arc::clone(&held.held.fd)));
        }
        let Key::Handle { mount, handle } = self.key()? else {
            return None;
        };
        let handle = LowerHandle::new(handle.0, handle.1)?;
        Some(Location::Handle { mount, handle })
    }
}

#[derive(Default)]
struct Shard {
    /// Chunks, so that growth neither moves entries nor reserves double the room.
    chunks: Vec<Vec<Entry>>,
    free: Option<u32>,
    index: HashTable<u32>,
}

impl Shard {
    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.chunks
            .get(slot as usize / CHUNK)?
            .get(slot as usize % CHUNK)
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.chunks
            .get_mut(slot as usize / CHUNK)?
            .get_mut(slot as usize % CHUNK)
    }

    fn find(&self, hash: u64, key: Key<'_>) -> Option<u32> {
        self.index
            .find(hash, |&slot| {
                self.entry(slot)
                    .is_some_and(|entry| entry.identity.key() == Some(key))
            })
            .copied()
    }

    fn insert(&mut self, hash: u64, identity: Identity, hasher: &DefaultHashBuilder) -> (u32, u32) {
        // A file handle of an earlier mount must not mean a node of this one.
        let first = hasher.hash_one(()) as u32;
        let (slot, generation) = self.place(identity, first);
        let Self { chunks, index, .. } = self;
        index.insert_unique(hash, slot, |&slot| {
            chunks
                .get(slot as usize / CHUNK)
                .and_then(|chunk| chunk.get(slot as usize % CHUNK))
                .map_or(0, |entry| hasher.hash_one(entry.identity.key()))
        });
        (slot, generation)
    }

    fn place(&mut self, identity: Identity, first: u32) -> (u32, u32) {
        if let Some(slot) = self.free {
            let mut next_free = None;
            let mut generation = 0;
            if let Some(entry) = self.entry_mut(slot) {
                if let Identity::Free { next } = entry.identity {
                    next_free = next;
                }
                generation = entry.generation;
                entry.identity = identity;
                entry.lookups = 1;
            }
            self.free = next_free;
            return (slot, generation);
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let mut slot = before as u32;
        if let Some(chunk) = self.chunks.last_mut() {
            slot += chunk.len() as u32;
            chunk.push(Entry {
                identity,
                lookups: 1,
                generation: first,
            });
        }
        (slot, first)
    }

    fn remove(&mut self, slot: u32, hasher: &DefaultHashBuilder) -> Option<Identity> {
        let next = self.free;
        let entry = self.entry_mut(slot)?;
        let identity = std::mem::replace(&mut entry.identity, Identity::Free { next });
        entry.generation = entry.generation.wrapping_add(1);
        self.free = Some(slot);
        let hash = hasher.hash_one(identity.key());
        if let Ok(found) = self.index.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        Some(identity)
    }
}

/// See the module.
pub(crate) struct NodeTable {
    shards: Vec<Mutex<Shard>>,
    hasher: DefaultHashBuilder,
    /// Room for what is held.
    pub(super) held: Share,
    /// The part that was offered last to be forgotten.
    offered: AtomicUsize,
}

impl NodeTable {
    /// A table that holds descriptors of `held`.
    pub(crate) fn new(held: Share) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            held,
            offered: AtomicUsize::new(0),
        }
    }

    fn shard(&self, number: usize) -> Result<MutexGuard<'_, Shard>, Errno> {
        let shard = self.shards.get(number).ok_or(Errno::STALE)?;
        Ok(lock(shard))
    }

    /// Not by the lowest bits, which say where in the shard's index a search begins, nor by the highest, which it
    /// compares there.
    fn shard_of(hash: u64) -> usize {
        (hash >> 32) as usize % SHARDS
    }

    fn split(id: u64) -> Result<(usize, u32), Errno> {
        let slot = id.checked_sub(FIRST_ID).ok_or(Errno::STALE)?;
        if id > u64::from(u32::MAX) {
            return Err(Errno::STALE);
        }
        Ok((slot as usize % SHARDS, (slot / SHARDS as u64) as u32))
    }

    fn join(shard: usize, slot: u32) -> Result<u64, Errno> {
        let slot = u64::from(slot) * SHARDS as u64 + shard as u64;
        if slot + FIRST_ID > u64::from(u32::MAX) {
            return Err(Errno::NFILE);
        }
        Ok(slot + FIRST_ID)
    }

    /// The node of `key`, counted once more, as node id and generation. `held` is taken when the
    /// object is known only by its descriptor. ENFILE at the limit of held descriptors, and `held` stays.
    pub(crate) fn enter(&self, key: Key<'_>, held: &mut Option<Held>) -> Result<(u64, u64), Errno> {
        let hash = self.hasher.hash_one(Some(key));
        let number = Self::shard_of(hash);
        let mut shard = self.shard(number)?;
        if let Some(slot) = shard.find(hash, key) {
            let id = Self::join(number, slot)?;
            let entry = shard.entry_mut(slot).ok_or(Errno::STALE)?;
            entry.lookups += 1;
            return Ok((id, u64::from(entry.generation)));
        }
        if matches!(key, Key::Object { .. }) && !self.held.take() {
            return Err(Errno::NFILE);
        }
        let identity = Identity::new(key, held.take())?;
        let (slot, generation) = shard.insert(hash, identity, &self.hasher);
        Ok((Self::join(number, slot)?, u64::from(generation)))
    }

    /// The node of `key` if the kernel knows it; the count stays.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<u64> {
        self.with(key, |id| id)
    }

    /// What `part` makes of the node of `key`, which is not forgotten meanwhile; none where the kernel does not know it.
    pub(crate) fn with<T>(&self, key: Key<'_>, part: impl FnOnce(u64) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(Some(key));
        let number = Self::shard_of(hash);
        let shard = self.shard(number).ok()?;
        let id = Self::join(number, shard.find(hash, key)?).ok()?;
        Some(part(id))
    }

    /// Where the object of a node is; ESTALE for an id that no lookup has answered.
    pub(crate) fn locate(&self, id: u64) -> Result<Location, Errno> {
        let (number, slot) = Self::split(id)?;
        let shard = self.shard(number)?;
        let location = shard
            .entry(slot)
            .and_then(|entry| entry.identity.location());
        location.ok_or(Errno::STALE)
    }

    /// Takes `count` lookups back. When the node is gone with them, answers what `part` has taken of what
    /// others keep for it: before the id can be another node's. `part` must be quick, and close nothing.
    pub(crate) fn forget<T>(&self, id: u64, count: u64, part: impl FnOnce() -> T) -> Option<T> {
        let (number, slot) = Self::split(id).ok()?;
        let mut shard = self.shard(number).ok()?;
        let entry = shard.entry_mut(slot)?;
        if matches!(entry.identity, Identity::Free { .. }) {
            return None;
        }
        debug_assert!(
            entry.lookups >= count,
            "more lookups forgotten than answered"
        );
        entry.lookups = entry.lookups.saturating_sub(count);
        if entry.lookups > 0 {
            return None;
        }
        let parted = part();
        let identity = shard.remove(slot, &self.hasher);
        drop(shard);
        if matches!(identity, Some(Identity::Object(_))) {
            self.held.give();
        }
        Some(parted)
    }

    /// About `count` nodes that hold a descriptor each, others the next time.
    pub(crate) fn some_held(&self, count: usize) -> Vec<u64> {
        let mut some = Vec::new();
        for _ in 0..SHARDS {
            let number = self.offered.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if let Ok(shard) = self.shard(number) {
                let held = shard.index.iter().copied().filter(|&slot| {
                    let entry = shard.entry(slot);
                    entry.is_some_and(|entry| matches!(entry.identity, Identity::Object(_)))
                });
                some.extend(held.filter_map(|slot| Self::join(number, slot).ok()));
            }
            if some.len() >= count {
                break;
            }
        }
        some
    }

    /// The number of nodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        (0..SHARDS)
            .filter_map(|number| self.shard(number).ok())
            .map(|s| s.index.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u32) -> LowerHandle {
        LowerHandle::new(7, &number.to_le_bytes()).unwrap()
    }

    fn enter(table: &NodeTable, mount: u16, number: u32) -> (u64, u64) {
        table
            .enter(
                Key::Handle {
                    mount,
                    handle: handle(number).parts(),
                },
                &mut None,
            )
            .unwrap()
    }

    #[test]
    fn one_object_is_one_node_until_every_lookup_is_forgotten() {
        let table = NodeTable::new(Share::alone(0));
        let first = enter(&table, 0, 1);
        assert_eq!(first, enter(&table, 0, 1));
        assert!(table.forget(first.0, 1, || ()).is_none());
        assert!(table.locate(first.0).is_ok());
        assert!(table.forget(first.0, 1, || ()).is_some());
        assert!(matches!(table.locate(first.0), Err(Errno::STALE)));
        let again = enter(&table, 0, 1);
        assert_eq!(again.0, first.0);
        assert_ne!(again.1, first.1, "a reused node id has another generation");
    }

    #[test]
    fn equal_handles_of_two_mounts_are_two_nodes() {
        let table = NodeTable::new(Share::alone(0));
        assert_ne!(enter(&table, 0, 1).0, enter(&table, 1, 1).0);
    }

    #[test]
    fn many_nodes_keep_their_handles_and_leave_nothing_behind() {
        let table = NodeTable::new(Share::alone(0));
        let ids: Vec<u64> = (0..20_000)
            .map(|number| enter(&table, 0, number).0)
            .collect();
        for (number, &id) in ids.iter().enumerate() {
            assert!((2..1 << 32).contains(&id));
            match table.locate(id).unwrap() {
                Location::Handle { handle: found, .. } => {
                    assert_eq!(found.bytes(), (number as u32).to_le_bytes());
                }
                Location::Descriptor(_) => panic!("kept a descriptor"),
            }
        }
        assert_eq!(table.len(), 20_000);
        assert!(ids.iter().all(|&id| table.forget(id, 1, || ()).is_some()));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn long_handles_are_told_apart() {
        let table = NodeTable::new(Share::alone(0));
        let [one, two] = [1, 2].map(|byte| LowerHandle::new(1, &[byte; 100]).unwrap());
        let [one, two] = [&one, &two].map(|handle| Key::Handle {
            mount: 0,
            handle: handle.parts(),
        });
        let (id, _) = table.enter(one, &mut None).unwrap();
        assert_ne!(id, table.enter(two, &mut None).unwrap().0);
        assert_eq!(table.find(one), Some(id));
    }

    #[test]
    fn held_descriptors_are_bounded_and_given_back() {
        let table = NodeTable::new(Share::alone(1));
        let enter = |inode| {
            let held = Held::new(std::fs::File::open("/").unwrap().into(), None);
            let key = Key::Object {
                device: 1,
                inode,
                handle: None,
            };
            table.enter(key, &mut Some(held))
        };
        let (id, _) = enter(1).unwrap();
        assert!(enter(1).is_ok());
        assert_eq!(enter(2), Err(Errno::NFILE));
        assert!(table.forget(id, 2, || ()).is_some());
        assert!(enter(2).is_ok());
    }

    #[test]
    fn ids_that_were_never_given_are_stale() {
        let table = NodeTable::new(Share::alone(0));
        for id in [0, 1, 2, 500, 5 << 32, (5 << 32) | 7, u64::MAX] {
            assert!(matches!(table.locate(id), Err(Errno::STALE)));
            assert!(table.forget(id, 1, || ()).is_none());
        }
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 56, "{}", size_of::<Entry>());
    }
}
