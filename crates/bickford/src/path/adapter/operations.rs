//! Operations over inodes that are one over paths; `tree.rs`, `files.rs` and `directory.rs` have the others.

use super::Core;
use super::tree::edge;
#[allow(
    clippy::wildcard_imports,
    reason = "every operation and answer is named here"
)]
use crate::ops::*;
use crate::path::future::FileSystem;
use crate::path::{Allocation, New, SetXattr, Statx as Asked};
use crate::{Context, Errno};

type Answered<A> = Result<A, Errno>;

impl<F: FileSystem> Core<F> {
    pub(super) async fn getattr(&self, cx: &Context<'_>, op: Getattr) -> Answered<Attributes> {
        let held = self.about(cx, op.node, op.handle).await?;
        let attr = self.filesystem.getattr(cx, held.subject()).await?;
        Ok(self.attributes(op.node, attr))
    }

    pub(super) async fn readlink(&self, cx: &Context<'_>, op: Readlink) -> Answered<Target> {
        let held = self.about(cx, op.node, None).await?;
        let target = self.filesystem.readlink(cx, held.subject().path()?).await?;
        Ok(Target(target))
    }

    pub(super) async fn symlink(&self, cx: &Context<'_>, op: Symlink<'_>) -> Answered<Entry> {
        let claim = self.claim_change(cx, op.parent, op.name).await?;
        self.filesystem.symlink(cx, claim.path(), op.target).await?;
        self.made(cx, &claim).await
    }

    pub(super) async fn mknod(&self, cx: &Context<'_>, op: Mknod<'_>) -> Answered<Entry> {
        let new = New::with_mode(op.mode, op.rdev, op.umask);
        let claim = self.claim_change(cx, op.parent, op.name).await?;
        self.filesystem.mknod(cx, claim.path(), new).await?;
        self.made(cx, &claim).await
    }

    pub(super) async fn mkdir(&self, cx: &Context<'_>, op: Mkdir<'_>) -> Answered<Entry> {
        let new = New::with_mode(op.mode | 0o040_000, 0, op.umask);
        let claim = self.claim_change(cx, op.parent, op.name).await?;
        self.filesystem.mkdir(cx, claim.path(), new).await?;
        self.made(cx, &claim).await
    }

    pub(super) async fn unlink(&self, cx: &Context<'_>, op: Unlink<'_>) -> Answered<()> {
        if self.options.hide_removed
            && let Some(hidden) = self.hide(cx, op.parent, op.name).await?
        {
            self.end_hidden(cx, hidden).await;
            return Ok(());
        }
        let claim = self.claim_change(cx, op.parent, op.name).await?;
        self.filesystem.unlink(cx, claim.path()).await?;
        self.table.unbind(edge(&claim)?);
        Ok(())
    }

    pub(super) async fn rmdir(&self, cx: &Context<'_>, op: Rmdir<'_>) -> Answered<()> {
        let claim = self.claim_change(cx, op.parent, op.name).await?;
        self.filesystem.rmdir(cx, claim.path()).await?;
        self.table.unbind(edge(&claim)?);
        Ok(())
    }

    pub(super) async fn read(&self, cx: &Context<'_>, op: Read) -> Answered<Data> {
        let held = self.file(cx, op.node, op.handle).await?;
        self.filesystem
            .read(cx, held.subject(), op.offset, op.size)
            .await
    }

    pub(super) async fn write(&self, cx: &Context<'_>, op: Write<'_>) -> Answered<Written> {
        let held = self.file(cx, op.node, op.handle).await?;
        let written = self
            .filesystem
            .write(cx, held.subject(), op.offset, op.data)
            .await?;
        Ok(Written(written))
    }

    pub(super) async fn statfs(&self, cx: &Context<'_>, op: Statfs) -> Answered<StatfsAnswer> {
        let held = self.about(cx, op.node, None).await;
        let path = held
            .as_ref()
            .ok()
            .and_then(|held| held.subject().path().ok());
        let path = path.unwrap_or("/".as_ref());
        match self.filesystem.statfs(cx, path).await {
            Err(Errno::NOSYS) => Ok(StatfsAnswer::default()),
            other => other,
        }
    }

    pub(super) async fn fsync(&self, cx: &Context<'_>, op: Fsync) -> Answered<()> {
        let held = self.file(cx, op.node, op.handle).await?;
        self.filesystem
            .fsync(cx, held.subject(), op.data_only)
            .await
    }

    pub(super) async fn setxattr(&self, cx: &Context<'_>, op: Setxattr<'_>) -> Answered<()> {
        let held = self.about(cx, op.node, None).await?;
        self.filesystem
            .setxattr(
                cx,
                held.subject(),
                SetXattr::with_flags(op.name, op.value, op.flags),
            )
            .await?;
        // It comes with an ACL for what will be made in a directory, too, which changes no mode.
        if op.kill_sgid && op.name == c"system.posix_acl_access" {
            self.clear_set_group_id(cx, held.subject()).await?;
        }
        Ok(())
    }

    pub(super) async fn getxattr(
        &self,
        cx: &Context<'_>,
        op: Getxattr<'_>,
    ) -> Answered<XattrAnswer> {
        let held = self.about(cx, op.node, None).await?;
        let value = self
            .filesystem
            .getxattr(cx, held.subject(), op.name)
            .await?;
        XattrAnswer::fit(value, op.size)
    }

    pub(super) async fn listxattr(&self, cx: &Context<'_>, op: Listxattr) -> Answered<XattrAnswer> {
        let held = self.about(cx, op.node, None).await?;
        let names = self.filesystem.listxattr(cx, held.subject()).await?;
        XattrAnswer::fit(names, op.size)
    }

    pub(super) async fn removexattr(&self, cx: &Context<'_>, op: Removexattr<'_>) -> Answered<()> {
        let held = self.about(cx, op.node, None).await?;
        self.filesystem
            .removexattr(cx, held.subject(), op.name)
            .await
    }

    pub(super) async fn readdir(&self, cx: &Context<'_>, op: Readdir) -> Answered<Directory> {
        self.list(cx, op, op.listing()).await
    }

    pub(super) async fn readdirplus(
        &self,
        cx: &Context<'_>,
        op: Readdirplus,
    ) -> Answered<Directory> {
        let ask = Readdir {
            node: op.node,
            handle: op.handle,
            offset: op.offset,
            size: op.size,
        };
        self.list(cx, ask, op.listing()).await
    }

    pub(super) async fn fsyncdir(&self, cx: &Context<'_>, op: Fsyncdir) -> Answered<()> {
        let directory = self.directories.get(op.handle)?;
        let held = self.file(cx, op.node, directory.handle).await?;
        self.filesystem
            .fsyncdir(cx, held.subject(), op.data_only)
            .await
    }

    pub(super) async fn getlk(&self, cx: &Context<'_>, op: Getlk) -> Answered<Lock> {
        let held = self.file(cx, op.node, op.handle).await?;
        self.filesystem
            .getlk(cx, held.subject(), op.owner, op.lock)
            .await
    }

    pub(super) async fn access(&self, cx: &Context<'_>, op: Access) -> Answered<()> {
        let held = self.about(cx, op.node, None).await?;
        self.filesystem.access(cx, held.subject(), op.mask).await
    }

    pub(super) async fn bmap(&self, cx: &Context<'_>, op: Bmap) -> Answered<Block> {
        let held = self.about(cx, op.node, None).await?;
        let path = held.subject().path()?;
        let block = self
            .filesystem
            .bmap(cx, path, op.block_size, op.block)
            .await?;
        Ok(Block(block))
    }

    pub(super) async fn poll(&self, cx: &Context<'_>, op: Poll) -> Answered<PollAnswer> {
        let held = self.file(cx, op.node, op.handle).await?;
        let ready = self
            .filesystem
            .poll(cx, held.subject(), op.events, op.waiter)
            .await?;
        Ok(PollAnswer(ready))
    }

    pub(super) async fn fallocate(&self, cx: &Context<'_>, op: Fallocate) -> Answered<()> {
        let held = self.file(cx, op.node, op.handle).await?;
        self.filesystem
            .fallocate(
                cx,
                held.subject(),
                Allocation::new(op.mode, op.offset, op.length),
            )
            .await
    }

    pub(super) async fn lseek(&self, cx: &Context<'_>, op: Lseek) -> Answered<Offset> {
        let held = self.file(cx, op.node, op.handle).await?;
        let offset = self
            .filesystem
            .lseek(cx, held.subject(), op.offset, op.whence)
            .await?;
        Ok(Offset(offset))
    }

    pub(super) async fn syncfs(&self, cx: &Context<'_>, _: Syncfs) -> Answered<()> {
        self.filesystem.syncfs(cx).await
    }

    pub(super) async fn statx(&self, cx: &Context<'_>, op: Statx) -> Answered<StatxAnswer> {
        let held = self.about(cx, op.node, op.handle).await?;
        let (attr, born) = self
            .filesystem
            .statx(cx, held.subject(), Asked::new(op.flags, op.mask))
            .await?;
        let Attributes { attr, valid } = self.attributes(op.node, attr);
        Ok(StatxAnswer { attr, born, valid })
    }
}
