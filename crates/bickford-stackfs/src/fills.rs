//! Listings that the kernel has begun to keep.
//!
//! It drops what it keeps of a directory when somebody begins to list it after a change, but only once it has all of
//! it. A listing of which it has a part goes on being filled, by whoever comes to where the part ends, and the one who
//! reaches the end makes it valid, though names have changed since it was begun: for all that have begun to list
//! before, who then find there the names of then (`fuse_readdir_cached` and `fuse_readdir_cache_end` of the kernel's
//! fs/fuse/readdir.c). So what a change has overtaken is dropped here.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::sharded::lock;

/// Directories that are remembered. Of one that is not, it is taken that names have changed.
const KEPT_MAX: usize = 1024;

/// How often names in each directory had changed (`NameChanges::of`) when the listing was begun.
#[derive(Default)]
pub(crate) struct Fills(Mutex<HashMap<u64, u64>>);

impl Fills {
    /// Somebody begins to list. Whether what the kernel may have is to be dropped.
    pub(crate) fn begins(&self, directory: u64, changes: u64) -> bool {
        let mut begun = lock(&self.0);
        if begun.len() >= KEPT_MAX && !begun.contains_key(&directory) {
            begun.clear();
        }
        let before = begun.insert(directory, changes);
        before.is_some_and(|before| before != changes)
    }

    /// Somebody has reached the end. Whether what the kernel may have is to be dropped.
    pub(crate) fn ends(&self, directory: u64, changes: u64) -> bool {
        lock(&self.0).remove(&directory) != Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_changes_stays() {
        let fills = Fills::default();
        for _ in 0..2 {
            assert!(!fills.begins(1, 5) && !fills.begins(1, 5) && !fills.begins(2, 6));
            assert!(!fills.ends(1, 5) && !fills.ends(2, 6));
        }
    }

    #[test]
    fn what_was_overtaken_is_dropped() {
        let fills = Fills::default();
        assert!(!fills.begins(1, 5));
        assert!(fills.ends(1, 6), "changed since");
        assert!(!fills.begins(1, 6), "nothing is left of it");
        assert!(fills.begins(1, 7), "changed since another began");
        assert!(!fills.ends(1, 7));
        assert!(fills.ends(1, 7), "began before what ended first");
    }

    #[test]
    fn of_what_is_not_remembered_nothing_is_kept() {
        let fills = Fills::default();
        for directory in 0..=KEPT_MAX as u64 {
            assert!(!fills.begins(directory, 5));
        }
        assert!(lock(&fills.0).len() <= KEPT_MAX);
        assert!(fills.ends(0, 5) && !fills.ends(KEPT_MAX as u64, 5));
    }
}
