//! Listings between one request and the next, where the kernel opens directories without asking.
//!
//! Each READDIR comes without a handle then, and could open its directory anew. One that was left open where the next
//! request goes on spares that, and with it what the lower file system finds out about the place: ext4 sorts a
//! block of names for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::dir::OpenDir;
use crate::sharded::lock;

/// More than are listed at a time, mostly. A listing that is given up keeps its place until others need it, or the
/// kernel forgets the directory.
const KEPT_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Unfinished {
    kept: Mutex<VecDeque<Arc<OpenDir>>>,
    /// How many, to be known without the lock.
    count: AtomicUsize,
}

impl Unfinished {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The listing of `node` that goes on at `offset`. Not one from before a name changed: it knows some of what comes
    /// next already, and who goes on may have begun after the change, and the kernel keeps the listing for all.
    pub(crate) fn take(&self, node: u64, offset: u64, changes: u64) -> Option<Arc<OpenDir>> {
        // What begins shows what is there now.
        if offset == 0 || self.is_empty() {
            return None;
        }
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|dir| {
            dir.node == node && dir.changes() == changes && dir.offset() == offset
        })?;
        let dir = kept.remove(at);
        self.count.store(kept.len(), Ordering::Relaxed);
        dir
    }

    /// Keeps a listing until it goes on; the oldest makes room.
    pub(crate) fn keep(&self, dir: Arc<OpenDir>) {
        let oldest = {
            let mut kept = lock(&self.kept);
            let oldest = (kept.len() >= KEPT_MAX).then(|| kept.pop_front());
            kept.push_back(dir);
            self.count.store(kept.len(), Ordering::Relaxed);
            oldest
        };
        drop(oldest);
    }

    /// The kernel does not know the directory any more.
    pub(crate) fn forget(&self, node: u64) {
        if !self.is_empty() {
            drop(self.leave(|dir| dir.node != node));
        }
    }

    /// Closes all; answers whether there was any.
    pub(crate) fn clear(&self) -> bool {
        !self.leave(|_| false).is_empty()
    }

    /// Leaves those that `stays` says, and gives the others, to be closed without the lock.
    fn leave(&self, stays: impl Fn(&OpenDir) -> bool) -> VecDeque<Arc<OpenDir>> {
        let mut kept = lock(&self.kept);
        let (stay, go): (VecDeque<_>, _) = kept.drain(..).partition(|dir| stays(dir));
        *kept = stay;
        self.count.store(kept.len(), Ordering::Relaxed);
        go
    }
}
