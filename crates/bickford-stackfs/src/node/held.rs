//! Objects that are known while they are held open.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::hard_links::Watch;
use crate::sys::LowerHandle;

/// What is held of an object.
pub(super) struct Held {
    pub(super) fd: Arc<OwnedFd>,
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
pub(super) struct HeldObject {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) handle: Option<LowerHandle>,
    pub(super) held: Held,
}

impl HeldObject {
    pub(super) fn has(&self, handle: Option<&LowerHandle>) -> bool {
        match (&self.handle, handle) {
            (Some(own), Some(other)) => own.kind() == other.kind() && own.bytes() == other.bytes(),
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}
