//! The operations, each over the store. An open file's handle is its inode number.

use std::ffi::CStr;
use std::path::Path;

use bickford::ops::{Attr, Data, Opened, Payload, StatfsAnswer, Timestamp};
use bickford::path::{FileSystem, Listing, New, Open, Subject, Times};
use bickford::{Context, Errno, FileHandle};
use rustix::fs::RenameFlags;

use crate::contents::BLOCK;
use crate::data::set_time;
use crate::store::{REGULAR, SYMLINK, Store};
use crate::{CAPACITY, INODES_MAX, MemFs, data, names};

/// Bytes that the extended attributes of one inode may have together.
const XATTRS_MAX: usize = 64 << 10;

type Done = Result<(), Errno>;

fn opened(store: &mut Store, ino: u64) -> Result<Opened, Errno> {
    store.get_mut(ino)?.opens += 1;
    Ok(Opened::new(FileHandle(ino)))
}

impl FileSystem for MemFs {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        self.about(subject, |store, ino| Ok(store.get(ino)?.attr))
    }

    fn statx(
        &self,
        _: &Context<'_>,
        subject: Subject<'_>,
        _: u32,
        _: u32,
    ) -> Result<(Attr, Option<Timestamp>), Errno> {
        self.about(subject, |store, ino| {
            store.get(ino).map(|node| (node.attr, Some(node.born)))
        })
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>, Errno> {
        self.about(Subject::of_path(path), |store, ino| {
            Ok(store.get(ino)?.target.clone())
        })
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Done {
        self.with(|store| names::make(store, cx, path, new).map(drop))
    }

    fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Done {
        self.mknod(cx, path, new)
    }

    fn symlink(&self, cx: &Context<'_>, path: &Path, target: &CStr) -> Done {
        self.with(|store| {
            let ino = names::make(store, cx, path, New::of_mode(SYMLINK | 0o777))?;
            let node = store.get_mut(ino)?;
            node.attr.size = target.count_bytes() as u64;
            node.target = target.to_bytes().to_vec();
            Ok(())
        })
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Done {
        self.with(|store| names::remove(store, path))
    }

    fn rmdir(&self, _: &Context<'_>, path: &Path) -> Done {
        self.with(|store| names::remove(store, path))
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Done {
        self.with(|store| names::rename(store, from, to, flags))
    }

    fn link(&self, _: &Context<'_>, existing: &Path, new: &Path) -> Done {
        self.with(|store| names::link(store, existing, new))
    }

    fn chmod(&self, _: &Context<'_>, subject: Subject<'_>, mode: u32) -> Done {
        self.about(subject, |store, ino| {
            let attr = &mut store.get_mut(ino)?.attr;
            attr.mode = attr.file_type() | mode;
            store.changed(ino, false)
        })
    }

    fn chown(
        &self,
        _: &Context<'_>,
        subject: Subject<'_>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Done {
        self.about(subject, |store, ino| {
            let attr = &mut store.get_mut(ino)?.attr;
            (attr.uid, attr.gid) = (uid.unwrap_or(attr.uid), gid.unwrap_or(attr.gid));
            store.changed(ino, false)
        })
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Done {
        self.about(subject, |store, ino| data::truncate(store, ino, size))
    }

    fn utimens(&self, _: &Context<'_>, subject: Subject<'_>, times: Times) -> Done {
        self.about(subject, |store, ino| {
            let attr = &mut store.get_mut(ino)?.attr;
            set_time(&mut attr.accessed, times.accessed);
            set_time(&mut attr.modified, times.modified);
            store.changed(ino, false)
        })
    }

    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened, Errno> {
        self.about(Subject::of_path(path), opened)
    }

    fn create(&self, cx: &Context<'_>, path: &Path, new: New, _: Open) -> Result<Opened, Errno> {
        self.with(|store| {
            let ino = names::make(store, cx, path, new)?;
            opened(store, ino)
        })
    }

    fn tmpfile(&self, cx: &Context<'_>, path: &Path, new: New, _: Open) -> Result<Opened, Errno> {
        self.about(Subject::of_path(path), |store, parent| {
            let parent = store.get(parent)?.attr;
            let ino = names::new_inode(store, cx, parent, REGULAR | new.mode)?;
            store.get_mut(ino)?.attr.links = 0;
            opened(store, ino)
        })
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Done {
        self.about(file, |store, ino| {
            store.get_mut(ino)?.opens -= 1;
            store.free_if_unused(ino)
        })
    }

    fn read(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        size: u32,
    ) -> Result<Data, Errno> {
        self.about(file, |store, ino| data::read(store, ino, offset, size))
    }

    fn write(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        bytes: Payload<'_>,
    ) -> Result<u32, Errno> {
        let bytes = bytes.bytes().map_err(|_| Errno::IO)?;
        self.about(file, |store, ino| data::write(store, ino, offset, &bytes))
    }

    fn fsync(&self, _: &Context<'_>, _: Subject<'_>, _: bool) -> Done {
        Ok(())
    }

    fn fallocate(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Done {
        self.about(file, |store, ino| {
            data::allocate(store, ino, mode, offset, length)
        })
    }

    fn lseek(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        whence: u32,
    ) -> Result<u64, Errno> {
        self.about(file, |store, ino| data::seek(store, ino, offset, whence))
    }

    fn statfs(&self, _: &Context<'_>, _: &Path) -> Result<StatfsAnswer, Errno> {
        self.with(|store| {
            let (blocks, files) = (CAPACITY / BLOCK, INODES_MAX as u64);
            let free = blocks.saturating_sub(store.used);
            let files_free = files.saturating_sub(store.len() as u64);
            Ok(StatfsAnswer {
                blocks,
                free,
                available: free,
                files,
                files_free,
                ..StatfsAnswer::default()
            })
        })
    }

    fn setxattr(
        &self,
        _: &Context<'_>,
        subject: Subject<'_>,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> Done {
        self.about(subject, |store, ino| {
            let xattrs = &mut store.get_mut(ino)?.xattrs;
            match (xattrs.contains_key(name), flags) {
                (true, 1) => return Err(Errno::EXIST),
                (false, 2) => return Err(Errno::NODATA),
                _ => {}
            }
            let held: usize = xattrs
                .iter()
                .map(|(name, value)| name.count_bytes() + value.len())
                .sum();
            if held + name.count_bytes() + value.len() > XATTRS_MAX {
                return Err(Errno::NOSPC);
            }
            xattrs.insert(name.into(), value.into());
            store.changed(ino, false)
        })
    }

    fn getxattr(
        &self,
        _: &Context<'_>,
        subject: Subject<'_>,
        name: &CStr,
    ) -> Result<Vec<u8>, Errno> {
        self.about(subject, |store, ino| {
            store
                .get(ino)?
                .xattrs
                .get(name)
                .cloned()
                .ok_or(Errno::NODATA)
        })
    }

    fn listxattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Vec<u8>, Errno> {
        self.about(subject, |store, ino| {
            Ok(store
                .get(ino)?
                .xattrs
                .keys()
                .flat_map(|name| name.to_bytes_with_nul().to_vec())
                .collect())
        })
    }

    fn removexattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Done {
        self.about(subject, |store, ino| {
            store
                .get_mut(ino)?
                .xattrs
                .remove(name)
                .ok_or(Errno::NODATA)?;
            store.changed(ino, false)
        })
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        directory: Subject<'_>,
        _: u64,
        listing: &mut Listing,
    ) -> Done {
        self.about(directory, |store, ino| {
            for (name, child) in &store.get(ino)?.children {
                listing.add_attr(name.as_encoded_bytes(), store.get(*child)?.attr);
            }
            Ok(())
        })
    }
}
