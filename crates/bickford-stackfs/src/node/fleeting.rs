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
use crate::magic::{BTRFS, FAT, FUSE, OVERLAY, magic};
use crate::sys::{self, LowerHandle};

/// Devices that are known at most; others are asked again.
const DEVICES_MAX: usize = 4096;

/// The inode number of each directory that stands in a snapshot of btrfs for a subvolume, which is no part of it
/// (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`). Such a directory is made when it is looked up, and no handle leads back to it.
const LEFT_OUT: u64 = 2;

/// FAT and FUSE find by a handle only what they have in memory.
fn is_fleeting(magic: u32) -> bool {
    matches!(magic, FAT | FUSE)
}

/// The kind of file system that `fd` is on. EOPNOTSUPP for one whose handles do not last.
pub(super) fn lasting(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    let magic = magic(fd)?;
    match is_fleeting(magic) {
        true => Err(Errno::OPNOTSUPP),
        false => Ok(magic),
    }
}

/// Which devices have such handles. Each is asked once: of a FUSE file system it is a request.
#[derive(Default)]
pub(super) struct Fleeting(RwLock<HashMap<u64, u32>>);

impl Fleeting {
    /// Whether the handles of `device`, which `object` is on, are fleeting. Taken for such where it does not say.
    pub(super) fn are_of(&self, object: BorrowedFd<'_>, device: u64) -> bool {
        self.magic(object, device).map_or(true, is_fleeting)
    }

    /// Whether `device`, which `object` is on, is of overlayfs.
    pub(super) fn is_overlay(&self, object: BorrowedFd<'_>, device: u64) -> bool {
        self.magic(object, device) == Ok(OVERLAY)
    }

    /// Whether `object` stands for a subvolume that is not in the snapshot.
    pub(super) fn is_left_out(&self, object: BorrowedFd<'_>, statx: &Statx) -> bool {
        statx.stx_ino == LEFT_OUT && self.magic(object, device(statx)) == Ok(BTRFS)
    }

    fn magic(&self, object: BorrowedFd<'_>, device: u64) -> Result<u32, Errno> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&magic) = known.get(&device) {
            return Ok(magic);
        }
        drop(known);
        let magic = magic(object)?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < DEVICES_MAX {
            known.insert(device, magic);
        }
        Ok(magic)
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
