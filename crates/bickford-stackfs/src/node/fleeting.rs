//! File systems whose handles lead to what is in memory alone.
//!
//! Their objects are held by descriptor. While one is held, its handle is its own and stays, which cannot be said of the
//! inode numbers that a FUSE file system tells: some tell none, or those of several devices below.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx};

use super::Nodes;
use super::devices::device;
use crate::sys::{self, LowerHandle};

impl Nodes {
    /// The handle of an object on such a file system.
    pub(super) fn fleeting_handle(&self, fd: BorrowedFd<'_>, statx: &Statx) -> Option<LowerHandle> {
        let device = device(statx);
        let forgets = match self.devices.is_source(device) {
            true => self.root_forgets,
            false => self
                .mounts
                .as_ref()
                .is_some_and(|mounts| mounts.forget(device)),
        };
        let handle = forgets.then(|| sys::name_to_handle(fd, c"", AtFlags::EMPTY_PATH).ok());
        handle.flatten().map(|(handle, _)| handle)
    }
}
