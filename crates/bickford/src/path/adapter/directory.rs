//! Listings: snapshots for those who list in one piece, entries with attributes where they are
//! known and fresh.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bickford_abi::InitFlags;
use slab::Slab;

use super::Core;
use crate::inode::{Found, Want};
use crate::ops::{Directory, DirectoryEntry, Opendir, Opened, Readdir, Releasedir};
use crate::path::Listing;
use crate::path::future::FileSystem;
use crate::path::listing::Name;
use crate::{Context, Errno, FileHandle, NodeId};

/// An open directory.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    /// The file system's own handle.
    pub(super) handle: FileHandle,
    /// What was listed in one piece.
    snapshot: Mutex<Option<Arc<[Name]>>>,
}

/// Open directories by the handle that the kernel has; as many as the kernel has open.
#[derive(Debug, Default)]
pub(super) struct Directories {
    open: Mutex<Slab<Arc<OpenDirectory>>>,
}

impl Directories {
    fn open(&self) -> MutexGuard<'_, Slab<Arc<OpenDirectory>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, handle: FileHandle) -> Result<Arc<OpenDirectory>, Errno> {
        let key = usize::try_from(handle.0).map_err(|_| Errno::BADF)?;
        self.open().get(key).cloned().ok_or(Errno::BADF)
    }
}

impl OpenDirectory {
    fn snapshot(&self) -> MutexGuard<'_, Option<Arc<[Name]>>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const DIRECTORY: u32 = 0o040_000;

impl<F: FileSystem> Core<F> {
    pub(super) async fn opendir(&self, cx: &Context<'_>, op: Opendir) -> Result<Opened, Errno> {
        let claim = self.claim(cx, Want::node(op.node)).await?;
        let mut opened = match self.filesystem.opendir(cx, claim.path()).await {
            Err(Errno::NOSYS) => Opened::default(),
            other => other?,
        };
        let directory = OpenDirectory {
            handle: opened.handle,
            snapshot: Mutex::default(),
        };
        let key = self.directories.open().insert(Arc::new(directory));
        opened.handle = FileHandle(key as u64);
        Ok(opened)
    }

    pub(super) async fn releasedir(&self, cx: &Context<'_>, op: Releasedir) -> Result<(), Errno> {
        let directory = self.directories.get(op.handle)?;
        if let Ok(key) = usize::try_from(op.handle.0) {
            self.directories.open().try_remove(key);
        }
        let held = self.file(cx, op.node, directory.handle).await?;
        match self.filesystem.releasedir(cx, held.subject()).await {
            Err(Errno::NOSYS) => Ok(()),
            other => other,
        }
    }

    pub(super) async fn list(
        &self,
        cx: &Context<'_>,
        ask: Readdir,
        mut into: Directory,
    ) -> Result<Directory, Errno> {
        let directory = self.directories.get(ask.handle)?;
        let known = directory.snapshot().clone().filter(|_| ask.offset > 0);
        if let Some(names) = known {
            self.fill(ask, &names, false, &mut into);
            return Ok(into);
        }
        let mut listing = Listing::new(ask.offset, ask.size, into.is_plus());
        let held = self.file(cx, ask.node, directory.handle).await?;
        self.filesystem
            .readdir(cx, held.subject(), &mut listing)
            .await?;
        if listing.overflowed() {
            return Err(Errno::OVERFLOW);
        }
        let in_parts = listing.is_in_parts();
        let mut names = listing.into_names();
        if cx.protocol().flags.contains(InitFlags::WRITEBACK_CACHE) {
            names.iter_mut().for_each(Name::leave_out_if_changing);
        }
        if in_parts {
            let names = names.iter();
            self.fill_from(ask, names, true, &mut into);
            return Ok(into);
        }
        if names.is_empty() && ask.offset > 0 {
            return Ok(into); // The end of a listing in parts, most likely.
        }
        let names: Arc<[Name]> = names.into();
        *directory.snapshot() = Some(Arc::clone(&names));
        self.fill(ask, &names, true, &mut into);
        Ok(into)
    }

    /// From a listing in one piece. Its names have the offsets 3, 4, ... after `.` and `..`.
    fn fill(&self, ask: Readdir, names: &[Name], fresh: bool, into: &mut Directory) {
        for (name, ino, offset) in [(&b"."[..], self.number(ask.node), 1), (b"..", 0, 2)] {
            let entry = DirectoryEntry {
                name,
                ino,
                offset,
                mode: DIRECTORY,
            };
            if ask.offset < offset && !into.push(&entry) {
                return;
            }
        }
        let skipped = usize::try_from(ask.offset.saturating_sub(2)).unwrap_or(usize::MAX);
        self.fill_from(ask, names.iter().skip(skipped), fresh, into);
    }

    /// The inode number of a node, as its attributes tell it; zero where it is not known.
    fn number(&self, node: NodeId) -> u64 {
        if !self.options.use_ino {
            return node.0;
        }
        match self.table.ino(node) {
            // The root is never looked up; of others the file system said none.
            0 if node != NodeId::ROOT => node.0,
            ino => ino,
        }
    }

    /// Attributes that were got in an earlier request may be those of a name that is gone; then
    /// the kernel is left to look the name up.
    fn fill_from<'a>(
        &self,
        ask: Readdir,
        names: impl Iterator<Item = &'a Name>,
        fresh: bool,
        into: &mut Directory,
    ) {
        for name in names {
            if !into.fits(name.name.len()) {
                return;
            }
            let node = match name.attr.filter(|_| fresh && into.is_plus()) {
                Some(attr) => {
                    let found = Found::new(&attr, self.options.use_ino);
                    // Whether it is this one a LOOKUP finds out.
                    let bind = || self.table.bind_free(ask.node, &name.name, found);
                    let node = match self.table.nameless(found) {
                        Some(_) => None,
                        None => bind(),
                    };
                    node.map(|node| (node, attr))
                }
                None => None,
            };
            let known = || match &*name.name {
                b"." => Some(ask.node),
                name => self.table.child(ask.node, name),
            };
            let ino = match node {
                _ if self.options.use_ino && name.ino != 0 => name.ino,
                Some((node, _)) => node.0,
                None => known().map_or(0, |node| self.number(node)),
            };
            let entry = DirectoryEntry {
                name: &name.name,
                ino,
                offset: name.offset,
                mode: name.mode,
            };
            let pushed = match node {
                Some((node, attr)) => into.push_entry(&entry, &self.entry(node, attr)),
                None => into.push(&entry),
            };
            debug_assert!(pushed, "it was asked whether the name fits");
        }
    }
}
