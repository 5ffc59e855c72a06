//! Handles: numbers from 1 for what is open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fuse3::{Errno, Result};

pub(crate) struct Files<T> {
    last: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Files<T> {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            open: RwLock::default(),
        }
    }
}

impl<T> Files<T> {
    pub(crate) fn keep(&self, what: T) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::new(what));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or(Errno::from(libc::EBADF))
    }

    pub(crate) fn drop(&self, number: u64) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let gone = open.remove(&number);
        drop(open);
        drop(gone);
    }
}
