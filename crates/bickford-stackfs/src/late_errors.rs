//! What is told of writes when they are synced, and when a file is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bickford::ops::{Flush, Write};
use bickford::{FileHandle, NodeId};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::io::{Need, errno};
use crate::locks::Holder;
use crate::sharded::lock;
use crate::{Inner, sys};

impl Inner {
    /// Whether closing any file does anything: locks of others are let go, or a lower file system says what
    /// became of writes.
    fn hears_of_closes(&self) -> bool {
        let any = self.beneath.any();
        !self.settings.exclusive || any.reports_on_close
    }

    /// Whether closing a file that is open for reading may say so, for as much as that costs where nothing does.
    pub(crate) fn may_report(&self, node: u64, fd: BorrowedFd<'_>) -> bool {
        match self.beneath.mounts.reports_on_close {
            true => self.traits(node, fd).reports_on_close,
            false => self.beneath.source.reports_on_close,
        }
    }

    pub(crate) fn do_flush(&self, op: &Flush) -> Result<(), Errno> {
        // Also in answer to the one that the kernel sends in spite of NOFLUSH, with its write-back cache.
        if !self.hears_of_closes() {
            return Err(Errno::NOSYS);
        }
        if op.handle.0 == 0 {
            return self.flush_unasked(op.node.0);
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
        if file.holds_locks() {
            self.leaving.closed(&mut lock(&file.left), file.node);
        }
        match file.reports {
            true => close_copy(&*self.descriptor(&file)?),
            false => Ok(()),
        }
    }

    /// Of a file that the kernel opened without asking: it has been written through what is kept open of it.
    fn flush_unasked(&self, node: u64) -> Result<(), Errno> {
        if !self.beneath.mounts.reports_on_close {
            return Err(Errno::NOSYS);
        }
        match self.on_demand_writers.get(node) {
            Some(fd) if self.traits(node, fd.as_fd()).reports_on_close => close_copy(&fd),
            _ => Ok(()),
        }
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
            return lower.synced(&file.failures_seen, sync);
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

fn close_copy(fd: &OwnedFd) -> Result<(), Errno> {
    sys::close_reporting(fd.try_clone().map_err(|error| errno(&error))?)
}
