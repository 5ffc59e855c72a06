//! Which inodes may be written through a mapping.
//!
//! With kernel pass-through a shared mapping is one of the lower file. It outlives the descriptor it was
//! made of, and its RELEASE; neither the kernel's FUSE nor a request tells that it is there, or that it
//! was written. It keeps the inode, though, so that FORGET tells that none is left.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sharded::Sharded;

/// What tells that a file was written: the times of last change (ctime) and modification, seconds and nanoseconds, and
/// units of 512 bytes. The first alone does not: before Linux 6.13 all that happens in a few milliseconds has one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) changed: (i64, u32),
    pub(crate) modified: (i64, u32),
    pub(crate) blocks: i64,
}

struct Noted {
    /// Opens for reading and writing, without which there is no such mapping.
    opens: usize,
    /// One may be left of an open that has ended.
    mapped: bool,
    /// Of the file when the kernel may have cached its attributes.
    changed: Option<Changed>,
}

/// By node id; bounded by the inodes that the kernel knows.
#[derive(Default)]
pub(crate) struct Mapped {
    nodes: Sharded<HashMap<u64, Noted>>,
    /// Spares a look where there is none, as in most mounts.
    len: AtomicUsize,
}

impl Mapped {
    /// What is noted of a node, where anything is of any.
    fn some(&self, node: u64) -> Option<MutexGuard<'_, HashMap<u64, Noted>>> {
        (self.len.load(Ordering::Acquire) > 0).then(|| self.nodes.of(node))
    }

    /// One more open for reading and writing, of a file last changed as is said, where that is known.
    pub(crate) fn opened(&self, node: u64, changed: Option<Changed>) {
        match self.nodes.of(node).entry(node) {
            Entry::Occupied(mut noted) => noted.get_mut().opens += 1,
            Entry::Vacant(place) => {
                place.insert(Noted {
                    opens: 1,
                    mapped: false,
                    changed,
                });
                self.len.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// An open has ended, for `both` or else for one of the two; whether only mappings can be left.
    pub(crate) fn closed(&self, node: u64, both: bool) -> bool {
        let nodes = self.some(node);
        nodes.is_some_and(|mut nodes| match nodes.get_mut(&node) {
            Some(noted) => {
                noted.opens -= usize::from(both && noted.opens > 0);
                noted.opens == 0
            }
            None => false,
        })
    }

    /// Whether a mapping is left, and when the file was last changed, as was found after the last open had
    /// ended; whether attributes that the kernel cached before may be wrong now or later.
    pub(crate) fn settle(&self, node: u64, mapped: bool, changed: Option<Changed>) -> bool {
        let Some(mut nodes) = self.some(node) else {
            return false;
        };
        let Entry::Occupied(mut noted) = nodes.entry(node) else {
            return false;
        };
        let known = changed.is_some() && noted.get().changed == changed;
        if mapped {
            noted.get_mut().changed = changed;
            return !std::mem::replace(&mut noted.get_mut().mapped, true) || !known;
        }
        if noted.get().opens == 0 {
            noted.remove();
            self.len.fetch_sub(1, Ordering::AcqRel);
        }
        !known
    }

    /// The kernel knows `node` no longer.
    pub(crate) fn forget(&self, node: u64) {
        self.settle(node, false, None);
    }

    /// Whether the node may be written through a mapping now.
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.some(node)
            .is_some_and(|nodes| nodes.contains_key(&node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Changed = Changed {
        changed: (1, 0),
        modified: (0, 5),
        blocks: 8,
    };
    const EARLIER: Option<Changed> = Some(FIRST);
    const LATER: Option<Changed> = Some(Changed {
        changed: (1, 1),
        ..FIRST
    });
    /// At the same time, as far as the lower file system tells.
    const WRITTEN: Option<Changed> = Some(Changed {
        modified: (1, 0),
        ..FIRST
    });
    const GROWN: Option<Changed> = Some(Changed {
        blocks: 16,
        ..FIRST
    });

    #[test]
    fn what_was_never_mapped_is_noted_while_it_is_open() {
        let mapped = Mapped::default();
        mapped.opened(1, EARLIER);
        mapped.opened(1, LATER);
        assert!(!mapped.closed(1, true) && mapped.contains(1) && !mapped.contains(2));
        assert!(!mapped.closed(1, false), "one open is left");
        assert!(mapped.closed(1, true));
        assert!(mapped.settle(1, false, LATER), "changed since the first");
        assert!(!mapped.contains(1));
        assert!(!mapped.closed(1, false), "nothing to look for");
        assert_eq!(mapped.len.into_inner(), 0);
    }

    #[test]
    fn a_mapping_is_noted_until_none_is_found_or_the_inode_is_forgotten() {
        let mapped = Mapped::default();
        for node in [1, 2] {
            mapped.opened(node, EARLIER);
            assert!(mapped.closed(node, true));
            assert!(mapped.settle(node, true, EARLIER), "new");
            assert!(!mapped.settle(node, true, EARLIER), "known");
            assert!(mapped.contains(node));
        }
        assert!(mapped.closed(1, false), "worth another look");
        assert!(!mapped.settle(1, false, EARLIER) && !mapped.contains(1));
        mapped.forget(2);
        assert!(!mapped.contains(2));
        assert_eq!(mapped.len.into_inner(), 0);
    }

    #[test]
    fn cached_attributes_are_wrong_once_the_file_has_changed() {
        for (before, after, wrong) in [
            (EARLIER, EARLIER, false),
            (EARLIER, LATER, true),
            (EARLIER, WRITTEN, true),
            (EARLIER, GROWN, true),
            (None, LATER, true),
            (None, None, true),
        ] {
            for left in [false, true] {
                let mapped = Mapped::default();
                mapped.opened(1, before);
                assert!(mapped.closed(1, true));
                assert_eq!(mapped.settle(1, left, after), wrong || left);
            }
        }
    }
}
