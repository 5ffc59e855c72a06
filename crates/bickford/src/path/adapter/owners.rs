//! Who has taken record locks through which open files.
//!
//! What FLUSH leaves are locks of an open file itself (`F_OFD_SETLK`): they end with it, and Linux does not tell.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Errno, FileHandle, LockOwner, NodeId};

/// More are not known at once.
const OWNERS_MAX: usize = 1 << 16;

type One = (NodeId, LockOwner, FileHandle);

/// See the module. In order, so that an owner's open files of a node are found together.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<BTreeSet<One>>);

impl Owners {
    fn known(&self) -> MutexGuard<'_, BTreeSet<One>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// ENOLCK where too many are known.
    pub(super) fn add(
        &self,
        node: NodeId,
        owner: LockOwner,
        handle: FileHandle,
    ) -> Result<(), Errno> {
        let mut known = self.known();
        let one = (node, owner, handle);
        if known.len() >= OWNERS_MAX && !known.contains(&one) {
            return Err(Errno::NOLCK);
        }
        known.insert(one);
        Ok(())
    }

    /// An owner has closed a descriptor of a node.
    pub(super) fn forget(&self, node: NodeId, owner: LockOwner) {
        let last = FileHandle(u64::MAX);
        remove(
            &mut self.known(),
            (node, owner, FileHandle(0)),
            (node, owner, last),
            |_| true,
        );
    }

    /// The owners that are left of an open file. None while `is_open`, for opens may share a handle; nobody is
    /// added between.
    pub(super) fn take(
        &self,
        node: NodeId,
        handle: FileHandle,
        is_open: impl FnOnce() -> bool,
    ) -> Vec<LockOwner> {
        let mut known = self.known();
        if known.is_empty() || is_open() {
            return Vec::new();
        }
        let last = (node, LockOwner(u64::MAX), FileHandle(u64::MAX));
        let ours = |one: &One| one.2 == handle;
        let left = remove(&mut known, (node, LockOwner(0), FileHandle(0)), last, ours);
        left.into_iter().map(|(_, owner, _)| owner).collect()
    }
}

fn remove(
    known: &mut BTreeSet<One>,
    first: One,
    last: One,
    which: impl Fn(&One) -> bool,
) -> Vec<One> {
    let found = known.range(first..=last).copied().filter(which);
    let found: Vec<_> = found.collect();
    for one in &found {
        known.remove(one);
    }
    found
}
