//! The file system that the target `paths` is about: a tree in memory.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bickford::ops::{Attr, Data, Opened, Payload};
use bickford::path::memory::{Contents, Limits, Tree};
use bickford::path::{FileSystem, Listing, New, Open, Subject};
use bickford::{Context, Errno, RenameFlags, Result};

/// More than a run of the target makes.
const INODES_MAX: u64 = 1 << 10;
const BYTES_MAX: u64 = 1 << 26;

pub(crate) struct MemFs {
    tree: Mutex<Tree<Contents>>,
    limits: Limits,
}

impl Default for MemFs {
    fn default() -> Self {
        let limits = Limits::new(INODES_MAX, BYTES_MAX);
        let contents = limits.contents().expect("room for the root");
        let tree = Tree::new(Attr::directory(1, 0o755), contents);
        Self {
            tree: Mutex::new(tree.with_names_max(INODES_MAX)),
            limits,
        }
    }
}

impl MemFs {
    fn tree(&self) -> MutexGuard<'_, Tree<Contents>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem for MemFs {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        Ok(self.tree().get(subject)?.attr)
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        self.tree().list(at, listing)
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let contents = self.limits.contents()?;
        self.tree().make(cx, path, new, contents).map(drop)
    }

    fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        self.mknod(cx, path, new)
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

    fn link(&self, _: &Context<'_>, existing: Subject<'_>, new: &Path) -> Result<()> {
        self.tree().link(existing, new)
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        self.tree().get_mut(subject)?.truncate(size)
    }

    fn create(&self, cx: &Context<'_>, path: &Path, new: New, _: Open) -> Result<Opened> {
        self.mknod(cx, path, new)?;
        self.tree().open(path)
    }

    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened> {
        self.tree().open(path)
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        self.tree().release(file)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(self.tree().get_mut(file)?.read(offset, size).into())
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        let data = data.bytes().map_err(|_| Errno::IO)?;
        self.tree().get_mut(file)?.write(at, &data)
    }
}
