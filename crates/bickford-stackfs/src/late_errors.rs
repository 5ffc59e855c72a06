//! What is told of writes when they are synced, and when a file is closed.

use std::os::fd::OwnedFd;

use bickford::ops::{Flush, Write};
use bickford::{FileHandle, NodeId};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::io::Need;
use crate::locks::Holder;
use crate::{Inner, sys};

impl Inner {
    /// Whether anything is done when a descriptor is closed: locks of others are let go, or the lower file
    /// system says what became of writes.
    pub(crate) fn hears_of_closes(&self) -> bool {
        !self.settings.exclusive || self.lower_reports_on_close
    }

    pub(crate) fn do_flush(&self, op: &Flush) -> Result<(), Errno> {
        // Also in answer to the one that the kernel sends in spite of NOFLUSH, with its write-back cache.
        if op.handle.0 == 0 || !self.hears_of_closes() {
            return Err(Errno::NOSYS);
        }
        let file = self.files.get(op.handle.0)?;
        let holder = Holder {
            node: file.node,
            owner: op.lock_owner.0,
        };
        if self.locks.release(holder) {
            self.waiting.wake();
        }
        file.claims.prune();
        if self.lower_reports_on_close {
            let fd = self.descriptor(&file)?;
            let fd = fd.try_clone().map_err(|error| crate::io::errno(&error))?;
            sys::close_reporting(fd)?;
        }
        Ok(())
    }

    /// fsync(2), or fdatasync(2) where the data are enough.
    pub(crate) fn sync(
        &self,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<(), Errno> {
        let sync = |fd: &OwnedFd| match data_only {
            true => rustix::fs::fdatasync(fd),
            false => rustix::fs::fsync(fd),
        };
        if let Ok(file) = self.files.get(handle.0)
            && let Some(lower) = &file.lower
        {
            return lower.synced(&file.failures_seen, sync(&lower.fd));
        }
        sync(&*self.file(node, handle, Need::Read)?)
    }

    /// Past its cache the kernel leaves it to us to heed `RWF_DSYNC` and `RWF_SYNC` (pwritev2(2)).
    pub(crate) fn sync_written(&self, op: &Write<'_>) -> Result<(), Errno> {
        let wanted = OFlags::from_bits_retain(op.flags) & OFlags::SYNC;
        if wanted.is_empty() {
            return Ok(());
        }
        match self.files.get(op.handle.0) {
            Ok(file) if self.is_direct(&file) && !file.lower_flags.contains(wanted) => {
                self.sync(op.node, op.handle, wanted != OFlags::SYNC)
            }
            _ => Ok(()),
        }
    }
}
