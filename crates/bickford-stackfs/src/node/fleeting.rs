//! File systems whose handles lead to what is in memory alone.
//!
//! Their objects are held by descriptor. While one is held, its handle is its own and stays, which cannot be said of the
//! inode numbers that a FUSE file system tells: some tell none, or those of several devices below.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, Statx};
use rustix::io::Errno;

use super::Nodes;
use super::devices::device;
use crate::sys::{self, LowerHandle};

/// FAT and FUSE find by a handle only what they have in memory.
const FORGETFUL: [i64; 2] = [0x4d44, 0x6573_5546];
/// Devices that are known at most; others are asked again.
const DEVICES_MAX: usize = 4096;

/// The kind of file system that `fd` is on. EOPNOTSUPP for one whose handles do not last.
pub(super) fn lasting(fd: BorrowedFd<'_>) -> Result<i64, Errno> {
    let magic = rustix::fs::fstatfs(fd)?.f_type as i64;
    match FORGETFUL.contains(&magic) {
        true => Err(Errno::OPNOTSUPP),
        false => Ok(magic),
    }
}

/// Which devices have such handles. Each is asked once: of a FUSE file system it is a request.
#[derive(Default)]
pub(super) struct Fleeting(RwLock<HashMap<u64, bool>>);

impl Fleeting {
    /// Whether the handles of `device`, which `object` is on, are fleeting. Taken for such where it does not say.
    pub(super) fn are_of(&self, object: BorrowedFd<'_>, device: u64) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&fleeting) = known.get(&device) {
            return fleeting;
        }
        drop(known);
        let fleeting = match lasting(object) {
            Ok(_) => false,
            Err(Errno::OPNOTSUPP) => true,
            Err(_) => return true,
        };
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < DEVICES_MAX {
            known.insert(device, fleeting);
        }
        fleeting
    }
}

impl Nodes {
    /// The handle of an object on such a file system.
    pub(super) fn fleeting_handle(&self, fd: BorrowedFd<'_>, statx: &Statx) -> Option<LowerHandle> {
        let fleeting = self.fleeting.are_of(fd, device(statx));
        let handle = fleeting.then(|| sys::name_to_handle(fd, c"", AtFlags::EMPTY_PATH).ok());
        handle.flatten().map(|(handle, _)| handle)
    }
}
