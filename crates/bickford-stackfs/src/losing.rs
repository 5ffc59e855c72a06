//! Inodes that are losing a name.
//!
//! When a request that removed a name is answered, the kernel takes one from the link count that it has of the inode
//! (`fuse_entry_unlinked` of its fs/fuse/dir.c). Had it the count of after the removal by then, from a GETATTR of
//! somebody else, a LOOKUP of another name or a listing, it would be one too low: link(2) fails with ENOENT where it is
//! zero, whatever the daemon says. So what is asked for meanwhile the kernel is not to keep: a notification before the
//! answer raises the `attr_version` of the inode, and the kernel drops what was asked for before.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bickford::NodeId;

use crate::Inner;
use crate::invalidation::warn_of_stale_attributes;
use crate::node::Doom;
use crate::racing::{PLACES, UNDER_WAY, now_ms};
use crate::sharded::spread;

#[derive(Default)]
struct Place {
    /// Removals that are being made.
    now: AtomicU32,
    /// When the last one was made that left names, in milliseconds; zero for never.
    last: AtomicU64,
}

/// By node id. Nodes that share a place cost a notification too many at worst.
pub(crate) struct Losing(Box<[Place]>);

impl Default for Losing {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Place::default()).collect())
    }
}

impl Losing {
    fn place(&self, node: u64) -> Option<&Place> {
        self.0.get(spread(node, PLACES.ilog2()))
    }

    fn begins(&self, node: u64) {
        if let Some(place) = self.place(node) {
            place.now.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn ends(&self, node: u64, are_left: bool, now: u64) {
        if let Some(place) = self.place(node) {
            if are_left {
                place.last.fetch_max(now, Ordering::SeqCst);
            }
            place.now.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether the answer to a removal of one of its names may not have reached the kernel yet.
    fn any(&self, node: u64, now: impl FnOnce() -> u64) -> bool {
        self.place(node).is_some_and(|place| {
            if place.now.load(Ordering::SeqCst) > 0 {
                return true;
            }
            let last = place.last.load(Ordering::SeqCst);
            last != 0 && now().saturating_sub(last) < UNDER_WAY
        })
    }
}

/// A name of a node is being removed, until this is dropped.
pub(crate) struct Loss<'a> {
    inner: &'a Inner,
    node: u64,
    /// It was looked up for this.
    counted: bool,
    /// It is gone, and others are left.
    are_left: bool,
}

impl Loss<'_> {
    /// The name is gone. `are_left` where others may be, if that is known.
    pub(crate) fn made(mut self, are_left: Option<bool>) {
        self.are_left = are_left.unwrap_or(true);
    }
}

impl Drop for Loss<'_> {
    fn drop(&mut self) {
        self.inner.losing.ends(self.node, self.are_left, now_ms());
        if self.counted {
            self.inner.nodes.forget(self.node, 1);
        }
    }
}

impl Inner {
    /// `name` is about to be removed. None where the kernel takes nothing from a count for it.
    pub(crate) fn loses(&self, doom: &Doom, dir: BorrowedFd<'_>, name: &CStr) -> Option<Loss<'_>> {
        let (node, counted) = match doom {
            Doom::Nothing => return None,
            Doom::Unheld => (self.nodes.lookup_linked(dir, name)?, true),
            Doom::Held(doomed) => (doomed.node, false),
        };
        self.losing.begins(node);
        Some(Loss {
            inner: self,
            node,
            counted,
            are_left: false,
        })
    }

    /// How long attributes of a node that were just read are cached.
    pub(crate) fn keeps_attributes(&self, node: u64) -> Duration {
        if !self.losing.any(node, now_ms) {
            return self.attr_timeout(node);
        }
        if let Some(Err(error)) = self.nodes.forget_attributes(NodeId(node)) {
            warn_of_stale_attributes(NodeId(node), "a name of it is being removed", error);
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_loses_a_name_from_before_it_is_removed_until_that_has_been_told() {
        let losing = Losing::default();
        let any = |now| losing.any(7, || now);
        assert!(!any(5_000));
        losing.begins(7);
        losing.begins(7);
        assert!(any(5_000) && any(500_000));
        losing.ends(7, true, 500_000);
        assert!(any(500_000 + UNDER_WAY), "another one");
        losing.ends(7, false, 500_001);
        assert!(any(500_001) && !any(500_000 + UNDER_WAY));
    }

    #[test]
    fn a_last_name_leaves_nothing_to_be_told() {
        let losing = Losing::default();
        losing.begins(7);
        losing.ends(7, false, 5_000);
        assert!(!losing.any(7, || 5_000));
    }
}
