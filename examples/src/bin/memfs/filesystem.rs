//! The operations, each over the tree.

use std::ffi::CStr;
use std::path::Path;

use bickford::ops::{Attr, Data, Opened, Payload, StatfsAnswer, Timestamp};
use bickford::path::{Allocation, FileSystem, Listing, New, Open, Owner};
use bickford::path::{SetXattr, Statx, Subject, Times};
use bickford::{Context, Errno, Result};
use rustix::fs::RenameFlags;

use crate::contents::{self, BLOCKS_MAX};
use crate::{INODES_MAX, MemFs};

/// Attributes with the time of birth.
type Dated = (Attr, Option<Timestamp>);

impl FileSystem for MemFs {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        Ok(self.tree().get(subject)?.attr)
    }

    fn statx(&self, _: &Context<'_>, subject: Subject<'_>, _: Statx) -> Result<Dated> {
        let tree = self.tree();
        let inode = tree.get(subject)?;
        Ok((inode.attr, Some(inode.born)))
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        self.tree().list(at, listing)
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>> {
        Ok(self.tree().get(path)?.target.clone())
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let contents = self.contents()?;
        self.tree().make(cx, path, new, contents).map(drop)
    }

    fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        self.mknod(cx, path, new)
    }

    fn symlink(&self, cx: &Context<'_>, path: &Path, target: &CStr) -> Result<()> {
        let contents = self.contents()?;
        self.tree().symlink(cx, path, target, contents)
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        self.tree().remove(path)
    }

    fn rmdir(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        self.tree().remove(path)
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        self.tree().rename(from, to, flags)
    }

    fn link(&self, _: &Context<'_>, existing: &Path, new: &Path) -> Result<()> {
        self.tree().link(existing, new)
    }

    fn chmod(&self, _: &Context<'_>, subject: Subject<'_>, mode: u32) -> Result<()> {
        self.change(subject, |inode| inode.chmod(mode))
    }

    fn chown(&self, _: &Context<'_>, subject: Subject<'_>, owner: Owner) -> Result<()> {
        self.change(subject, |inode| inode.chown(owner))
    }

    fn utimens(&self, _: &Context<'_>, subject: Subject<'_>, times: Times) -> Result<()> {
        self.change(subject, |inode| inode.utimens(times))
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        contents::truncate(self.tree().get_mut(subject)?, size)
    }

    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened> {
        self.tree().open(path)
    }

    fn tmpfile(&self, cx: &Context<'_>, path: &Path, new: New, _: Open) -> Result<Opened> {
        let contents = self.contents()?;
        self.tree().make_unnamed(cx, path, new, contents)
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        self.tree().release(file)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        let mut tree = self.tree();
        let inode = tree.get_mut(file)?;
        inode.attr.accessed = Timestamp::now();
        let length = inode.attr.size.saturating_sub(offset).min(size.into());
        Ok(inode.data.read(offset, length as usize).into())
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        let data = data.bytes().map_err(|_| Errno::IO)?;
        contents::write(self.tree().get_mut(file)?, at, &data)?;
        Ok(data.len() as u32)
    }

    fn fallocate(&self, _: &Context<'_>, file: Subject<'_>, range: Allocation) -> Result<()> {
        contents::allocate(self.tree().get_mut(file)?, range)
    }

    fn lseek(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, whence: u32) -> Result<u64> {
        contents::seek(self.tree().get(file)?, offset, whence)
    }

    fn statfs(&self, _: &Context<'_>, _: &Path) -> Result<StatfsAnswer> {
        let (inodes, free) = (self.tree().inodes() as u64, BLOCKS_MAX - self.used());
        Ok(StatfsAnswer {
            blocks: BLOCKS_MAX,
            free,
            available: free,
            files: INODES_MAX,
            files_free: INODES_MAX - inodes,
            ..StatfsAnswer::default()
        })
    }

    fn setxattr(&self, _: &Context<'_>, at: Subject<'_>, xattr: SetXattr<'_>) -> Result<()> {
        self.tree().get_mut(at)?.set_xattr(xattr)
    }

    fn getxattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<Vec<u8>> {
        self.tree().get(subject)?.xattrs.get(name)
    }

    fn listxattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Vec<u8>> {
        Ok(self.tree().get(subject)?.xattrs.list())
    }

    fn removexattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<()> {
        self.tree().get_mut(subject)?.remove_xattr(name)
    }
}
