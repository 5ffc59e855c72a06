//! Operations on attributes and open files.

use std::sync::atomic::Ordering;

use bickford_abi::{IoctlFlags, OpenOutFlags};

use super::Core;
use crate::inode::{Claim, Ending, Want};
use crate::ops::{
    self, Attributes, Copied, CopyFileRange, IoctlAnswer, Lock, LockKind, Opened, Setattr, Setlk,
};
use crate::path::future::FileSystem;
use crate::path::{Ioctl, Open, Owner, Subject, Times};
use crate::{Context, Errno, FileHandle, LockOwner, NodeId};

impl<F: FileSystem> Core<F> {
    pub(super) async fn setattr(&self, cx: &Context<'_>, op: Setattr) -> Result<Attributes, Errno> {
        let held = self.about(cx, op.node, op.handle).await?;
        let subject = held.subject();
        if let Some(mode) = op.mode {
            self.filesystem.chmod(cx, subject, mode & 0o7777).await?;
        }
        if let Some(owner) = Owner::new(op.uid, op.gid) {
            self.filesystem.chown(cx, subject, owner).await?;
        }
        if let Some(size) = op.size {
            self.filesystem.truncate(cx, subject, size).await?;
        }
        if let Some(times) = Times::new(op.accessed, op.modified) {
            match self.filesystem.utimens(cx, subject, times).await {
                // truncate(2) comes with the time of its own change.
                Err(Errno::NOSYS) if op.size.is_some() => {}
                other => other?,
            }
        }
        let attr = self.filesystem.getattr(cx, subject).await?;
        Ok(self.attributes(op.node, attr))
    }

    /// What chmod(2) and an ACL do when they come from somebody who is not of the group.
    pub(super) async fn clear_set_group_id(
        &self,
        cx: &Context<'_>,
        subject: Subject<'_>,
    ) -> Result<(), Errno> {
        const SET_GROUP_ID: u32 = 0o2000;
        let mode = self.filesystem.getattr(cx, subject).await?.mode & 0o7777;
        match mode & SET_GROUP_ID {
            0 => Ok(()),
            _ => {
                self.filesystem
                    .chmod(cx, subject, mode & !SET_GROUP_ID)
                    .await
            }
        }
    }

    pub(super) fn dress_open(&self, mut opened: Opened) -> Opened {
        if opened.flags.contains(OpenOutFlags::PASSTHROUGH) {
            // The options are about data that come by requests.
            return opened;
        }
        if self.options.direct_io {
            opened.flags |= OpenOutFlags::DIRECT_IO;
        }
        if self.options.kernel_cache {
            opened.flags |= OpenOutFlags::KEEP_CACHE;
        }
        opened
    }

    pub(super) async fn open(&self, cx: &Context<'_>, op: ops::Open) -> Result<Opened, Errno> {
        let claim = self.claim(cx, Want::node(op.node)).await?;
        let open = Open::new(op.flags, op.open_flags);
        let opened = match self.filesystem.open(cx, claim.path(), open).await {
            Err(Errno::NOSYS) if self.may_not_open() => return Err(Errno::NOSYS),
            Err(Errno::NOSYS) => Opened::default(),
            other => other?,
        };
        let mut opening = self.opening(cx, opened.handle);
        opening.bind(op.node);
        let mut opened = self.dress_open(opened);
        if self.options.auto_cache
            && !opened.flags.contains(OpenOutFlags::PASSTHROUGH)
            && let Ok(attr) = self.attr_at(cx, claim.path()).await
            && self.table.opened_as(op.node, attr.modified, attr.size)
        {
            opened.flags |= OpenOutFlags::KEEP_CACHE;
        }
        opening.keep();
        Ok(opened)
    }

    fn may_not_open(&self) -> bool {
        !self.opens_needed.load(Ordering::Relaxed)
    }

    pub(super) async fn release(&self, cx: &Context<'_>, op: ops::Release) -> Result<(), Errno> {
        if op.flock {
            self.give_up_flock(cx, &op).await;
        }
        if self.table.released(op.node, op.handle) == Ending::Now {
            self.end(cx, Some(op.node), op.handle).await;
        }
        Ok(())
    }

    /// A path for what must be done to the end, if the operation is to have one.
    async fn claim_to_end(&self, node: Option<NodeId>, handle: FileHandle) -> Option<Claim> {
        let node = node.filter(|_| !self.comes_by_handle(handle))?;
        self.table.claim(Want::node(node), || None).await.ok()
    }

    /// A descriptor is closed, and with it the record locks of its owner end: the kernel leaves that to whoever
    /// keeps them. Its answer is not ENOSYS then, after which it would not come again.
    pub(super) async fn flush(&self, cx: &Context<'_>, op: ops::Flush) -> Result<(), Errno> {
        let locks_here = self.locks_here.load(Ordering::Relaxed);
        let held = match self.file(cx, op.node, op.handle).await {
            Err(_) if locks_here => Ok(self.handle_only(cx, op.node, op.handle)),
            held => held,
        }?;
        let file = held.subject();
        let flushed = self.filesystem.flush(cx, file, op.lock_owner).await;
        if !locks_here {
            return flushed;
        }
        let unlocked = self.unlock(cx, file, op.lock_owner).await;
        self.owners.forget(op.node, op.lock_owner);
        match (unlocked, flushed) {
            (Err(Errno::NOSYS), flushed) => flushed,
            (_, Err(Errno::NOSYS)) => Ok(()),
            (_, flushed) => flushed,
        }
    }

    /// Gives up all record locks of an owner.
    async fn unlock(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        let all = Lock {
            end: i64::MAX.cast_unsigned(),
            pid: cx.pid(),
            ..Lock::none()
        };
        let unlocking = self.filesystem.setlk(cx, file, owner, all, false);
        unlocking.await
    }

    /// An open file ends with its lock as a whole; the kernel tells by RELEASE alone.
    async fn give_up_flock(&self, cx: &Context<'_>, op: &ops::Release) {
        let claim = self.claim_to_end(Some(op.node), op.handle).await;
        let file = Subject::new(claim.as_ref().map(|claim| claim.path()), Some(op.handle));
        let unlocking = self
            .filesystem
            .flock(cx, file, op.lock_owner, LockKind::Unlock, false);
        if let Err(errno) = unlocking.await {
            tracing::debug!(node = op.node.0, "give up a lock: {errno}");
        }
    }

    /// An open file has ended, and nobody borrows its handle.
    pub(super) async fn end(&self, cx: &Context<'_>, node: Option<NodeId>, handle: FileHandle) {
        let claim = self.claim_to_end(node, handle).await;
        let subject = Subject::new(claim.as_ref().map(|claim| claim.path()), Some(handle));
        let is_open = |node| move || self.table.is_open(node, handle);
        let owners = node.map(|node| self.owners.take(node, handle, is_open(node)));
        for owner in owners.into_iter().flatten() {
            if let Err(errno) = self.unlock(cx, subject, owner).await {
                tracing::debug!(?node, "give up the locks of an open file: {errno}");
            }
        }
        match self.filesystem.release(cx, subject).await {
            Ok(()) | Err(Errno::NOSYS) => {}
            Err(errno) => tracing::debug!(?node, "release: {errno}"),
        }
        drop(claim);
        if let Some((parent, name)) = node.and_then(|node| self.table.closed(node)) {
            self.unhide(cx, parent, &name).await;
        }
    }

    pub(super) async fn setlk(&self, cx: &Context<'_>, op: Setlk) -> Result<(), Errno> {
        let held = match op.wait {
            true => self.handle_only(cx, op.node, op.handle),
            false => self.file(cx, op.node, op.handle).await?,
        };
        let file = held.subject();
        if op.flock {
            let kind = op.lock.kind;
            let locking = self.filesystem.flock(cx, file, op.owner, kind, op.wait);
            return locking.await;
        }
        if op.lock.kind != LockKind::Unlock {
            self.owners.add(op.node, op.owner, op.handle)?;
        }
        let locking = self.filesystem.setlk(cx, file, op.owner, op.lock, op.wait);
        locking.await
    }

    pub(super) async fn ioctl(
        &self,
        cx: &Context<'_>,
        op: ops::Ioctl<'_>,
    ) -> Result<IoctlAnswer, Errno> {
        let handle = if op.flags.contains(IoctlFlags::DIR) {
            self.directories.get(op.handle)?.handle
        } else {
            op.handle
        };
        let held = self.file(cx, op.node, handle).await?;
        let ioctl = Ioctl::new(&op);
        self.filesystem.ioctl(cx, held.subject(), &ioctl).await
    }

    /// Both paths have to be claimed together, so that two copies cannot wait for each other.
    pub(super) async fn copy_file_range(
        &self,
        cx: &Context<'_>,
        op: CopyFileRange,
    ) -> Result<Copied, Errno> {
        let mut claims = [None, None];
        let mut both = None;
        let handles = [op.handle_in, op.handle_out];
        if !handles.iter().all(|handle| self.comes_by_handle(*handle)) {
            match self.claim(cx, Want::nodes(op.node_in, op.node_out)).await {
                Ok(claim) => both = Some(claim),
                Err(Errno::NOENT) => {
                    claims = self.claim_either(cx, op.node_in, op.node_out).await?;
                }
                Err(errno) => return Err(errno),
            }
        }
        let [first, second] = &claims;
        let first = both.as_ref().or(first.as_ref()).map(|claim| claim.path());
        let second = second.as_ref().map(|claim| claim.path());
        let second = both.as_ref().map(|claim| claim.second_path()).or(second);
        let copying = self.filesystem.copy_file_range(
            cx,
            Subject::new(first, Some(op.handle_in)),
            op.offset_in,
            Subject::new(second, Some(op.handle_out)),
            op.offset_out,
            op.length,
        );
        copying.await.map(Copied)
    }

    /// A path of the first node, or else of the second.
    async fn claim_either(
        &self,
        cx: &Context<'_>,
        first: NodeId,
        second: NodeId,
    ) -> Result<[Option<Claim>; 2], Errno> {
        match self.claim(cx, Want::node(first)).await {
            Ok(claim) => return Ok([Some(claim), None]),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        match self.claim(cx, Want::node(second)).await {
            Ok(claim) => Ok([None, Some(claim)]),
            Err(Errno::NOENT) => Ok([None, None]),
            Err(errno) => Err(errno),
        }
    }
}
