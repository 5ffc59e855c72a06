//! Each operation over inodes as one over paths.

use super::Core;
use super::directory::Ask;
use crate::filesystem::blocking;
#[allow(
    clippy::wildcard_imports,
    reason = "every operation and answer is named here"
)]
use crate::ops::*;
use crate::path::{FileSystem, New};
use crate::{Context, Errno};

type Answered<A> = Result<A, Errno>;

impl<F: FileSystem> blocking::FileSystem for Core<F> {
    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>) -> Answered<Entry> {
        self.find_name(cx, op)
    }

    fn getattr(&self, cx: &Context<'_>, op: Getattr) -> Answered<Attributes> {
        let attr = self.attr_of(cx, op.node, op.handle)?;
        Ok(self.attributes(op.node, attr))
    }

    fn setattr(&self, cx: &Context<'_>, op: Setattr) -> Answered<Attributes> {
        self.change(cx, op)
    }

    fn readlink(&self, cx: &Context<'_>, op: Readlink) -> Answered<Target> {
        let held = self.about(cx, op.node, None)?;
        let target = self.filesystem.readlink(cx, held.subject().path()?)?;
        Ok(Target(target))
    }

    fn symlink(&self, cx: &Context<'_>, op: Symlink<'_>) -> Answered<Entry> {
        self.make(cx, op.parent, op.name, |path| {
            self.filesystem.symlink(cx, path, op.target)
        })
    }

    fn mknod(&self, cx: &Context<'_>, op: Mknod<'_>) -> Answered<Entry> {
        let new = New::with_mode(op.mode, op.rdev, op.umask);
        self.make(cx, op.parent, op.name, |path| {
            self.filesystem.mknod(cx, path, new)
        })
    }

    fn mkdir(&self, cx: &Context<'_>, op: Mkdir<'_>) -> Answered<Entry> {
        let new = New::with_mode(op.mode | 0o040_000, 0, op.umask);
        self.make(cx, op.parent, op.name, |path| {
            self.filesystem.mkdir(cx, path, new)
        })
    }

    fn unlink(&self, cx: &Context<'_>, op: Unlink<'_>) -> Answered<()> {
        if self.options.hide_removed && self.hide(cx, op.parent, op.name)? {
            return Ok(());
        }
        self.remove(cx, op.parent, op.name, |path| {
            self.filesystem.unlink(cx, path)
        })
    }

    fn rmdir(&self, cx: &Context<'_>, op: Rmdir<'_>) -> Answered<()> {
        self.remove(cx, op.parent, op.name, |path| {
            self.filesystem.rmdir(cx, path)
        })
    }

    fn rename(&self, cx: &Context<'_>, op: Rename<'_>) -> Answered<()> {
        self.change_name(cx, op)
    }

    fn link(&self, cx: &Context<'_>, op: Link<'_>) -> Answered<Entry> {
        self.give_name(cx, op)
    }

    fn open(&self, cx: &Context<'_>, op: Open) -> Answered<Opened> {
        self.open_file(cx, op)
    }

    fn read(&self, cx: &Context<'_>, op: Read) -> Answered<Data> {
        let held = self.file(cx, op.node, op.handle)?;
        self.filesystem.read(cx, held.subject(), op.offset, op.size)
    }

    fn write(&self, cx: &Context<'_>, op: Write<'_>) -> Answered<Written> {
        let held = self.file(cx, op.node, op.handle)?;
        let written = self
            .filesystem
            .write(cx, held.subject(), op.offset, op.data)?;
        Ok(Written(written))
    }

    fn statfs(&self, cx: &Context<'_>, op: Statfs) -> Answered<StatfsAnswer> {
        let held = self.about(cx, op.node, None);
        let path = held
            .as_ref()
            .ok()
            .and_then(|held| held.subject().path().ok());
        match self.filesystem.statfs(cx, path.unwrap_or("/".as_ref())) {
            Err(Errno::NOSYS) => Ok(StatfsAnswer::default()),
            other => other,
        }
    }

    fn release(&self, cx: &Context<'_>, op: Release) -> Answered<()> {
        self.release_file(cx, op.node, op.handle)
    }

    fn fsync(&self, cx: &Context<'_>, op: Fsync) -> Answered<()> {
        let held = self.file(cx, op.node, op.handle)?;
        self.filesystem.fsync(cx, held.subject(), op.data_only)
    }

    fn setxattr(&self, cx: &Context<'_>, op: Setxattr<'_>) -> Answered<()> {
        let held = self.about(cx, op.node, None)?;
        self.filesystem
            .setxattr(cx, held.subject(), op.name, op.value, op.flags)
    }

    fn getxattr(&self, cx: &Context<'_>, op: Getxattr<'_>) -> Answered<XattrAnswer> {
        let held = self.about(cx, op.node, None)?;
        let value = self.filesystem.getxattr(cx, held.subject(), op.name)?;
        XattrAnswer::fit(value, op.size)
    }

    fn listxattr(&self, cx: &Context<'_>, op: Listxattr) -> Answered<XattrAnswer> {
        let held = self.about(cx, op.node, None)?;
        let names = self.filesystem.listxattr(cx, held.subject())?;
        XattrAnswer::fit(names, op.size)
    }

    fn removexattr(&self, cx: &Context<'_>, op: Removexattr<'_>) -> Answered<()> {
        let held = self.about(cx, op.node, None)?;
        self.filesystem.removexattr(cx, held.subject(), op.name)
    }

    fn flush(&self, cx: &Context<'_>, op: Flush) -> Answered<()> {
        let held = self.file(cx, op.node, op.handle)?;
        self.filesystem.flush(cx, held.subject(), op.lock_owner)
    }

    fn opendir(&self, cx: &Context<'_>, op: Opendir) -> Answered<Opened> {
        self.open_directory(cx, op)
    }

    fn readdir(&self, cx: &Context<'_>, op: Readdir) -> Answered<Directory> {
        let ask = Ask {
            node: op.node,
            handle: op.handle,
            offset: op.offset,
            size: op.size,
        };
        self.list(cx, &ask, op.listing())
    }

    fn readdirplus(&self, cx: &Context<'_>, op: Readdirplus) -> Answered<Directory> {
        let ask = Ask {
            node: op.node,
            handle: op.handle,
            offset: op.offset,
            size: op.size,
        };
        self.list(cx, &ask, op.listing())
    }

    fn releasedir(&self, cx: &Context<'_>, op: Releasedir) -> Answered<()> {
        self.close_directory(cx, op.node, op.handle)
    }

    fn fsyncdir(&self, cx: &Context<'_>, op: Fsyncdir) -> Answered<()> {
        let directory = self.directories.get(op.handle)?;
        let held = self.file(cx, op.node, directory.handle)?;
        self.filesystem.fsyncdir(cx, held.subject(), op.data_only)
    }

    fn getlk(&self, cx: &Context<'_>, op: Getlk) -> Answered<Lock> {
        let held = self.file(cx, op.node, op.handle)?;
        self.filesystem.getlk(cx, held.subject(), op.owner, op.lock)
    }

    fn setlk(&self, cx: &Context<'_>, op: Setlk) -> Answered<()> {
        self.lock(cx, op)
    }

    fn access(&self, cx: &Context<'_>, op: Access) -> Answered<()> {
        let held = self.about(cx, op.node, None)?;
        self.filesystem.access(cx, held.subject(), op.mask)
    }

    fn create(&self, cx: &Context<'_>, op: Create<'_>) -> Answered<Created> {
        self.make_open(cx, op)
    }

    fn bmap(&self, cx: &Context<'_>, op: Bmap) -> Answered<Block> {
        let held = self.about(cx, op.node, None)?;
        let path = held.subject().path()?;
        let block = self.filesystem.bmap(cx, path, op.block_size, op.block)?;
        Ok(Block(block))
    }

    fn ioctl(&self, cx: &Context<'_>, op: Ioctl<'_>) -> Answered<IoctlAnswer> {
        self.command(cx, &op)
    }

    fn poll(&self, cx: &Context<'_>, op: Poll) -> Answered<PollAnswer> {
        let held = self.file(cx, op.node, op.handle)?;
        let ready = self
            .filesystem
            .poll(cx, held.subject(), op.events, op.waiter)?;
        Ok(PollAnswer(ready))
    }

    fn fallocate(&self, cx: &Context<'_>, op: Fallocate) -> Answered<()> {
        let held = self.file(cx, op.node, op.handle)?;
        self.filesystem
            .fallocate(cx, held.subject(), op.mode, op.offset, op.length)
    }

    fn lseek(&self, cx: &Context<'_>, op: Lseek) -> Answered<Offset> {
        let held = self.file(cx, op.node, op.handle)?;
        let offset = self
            .filesystem
            .lseek(cx, held.subject(), op.offset, op.whence)?;
        Ok(Offset(offset))
    }

    fn copy_file_range(&self, cx: &Context<'_>, op: CopyFileRange) -> Answered<Copied> {
        Ok(Copied(self.copy(cx, op)?))
    }

    fn syncfs(&self, cx: &Context<'_>, _: Syncfs) -> Answered<()> {
        self.filesystem.syncfs(cx)
    }

    fn tmpfile(&self, cx: &Context<'_>, op: Tmpfile) -> Answered<Created> {
        self.make_unnamed(cx, op)
    }

    fn statx(&self, cx: &Context<'_>, op: Statx) -> Answered<StatxAnswer> {
        let held = self.about(cx, op.node, op.handle)?;
        let (attr, born) = self
            .filesystem
            .statx(cx, held.subject(), op.flags, op.mask)?;
        Ok(StatxAnswer {
            attr: self.dress(op.node, attr),
            born,
            valid: self.options.attr_timeout,
        })
    }
}
