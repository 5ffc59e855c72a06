//! Open directories.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bickford::abi::OpenOutFlags;
use bickford::ops::{Directory, DirectoryEntry, Entry, Fsyncdir, Opendir, Opened, Releasedir};
use bickford::{Context, FileHandle, NodeId};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::Inner;
use crate::descriptors::Permit;
use crate::dir_stream::{DirStream, LowerEntry};
use crate::invalidation::{forget_attributes_now, forget_listing};
use crate::sharded::lock;

/// An open directory.
pub(crate) struct OpenDir {
    pub(crate) node: u64,
    pub(crate) fd: Arc<OwnedFd>,
    stream: Mutex<DirStream>,
    inode_tag: u64,
    /// How often names in it had changed when it was opened or its listing began.
    changes: AtomicU64,
    /// The listing has gone on since they changed.
    outdated: AtomicBool,
    _room: Permit,
}

impl OpenDir {
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Where its listing goes on.
    pub(crate) fn offset(&self) -> u64 {
        lock(&self.stream).offset()
    }
}

impl Inner {
    fn open_dir(&self, node: NodeId) -> Result<OpenDir, Errno> {
        let room = match Permit::of(&self.open_dirs) {
            Err(_) if self.unfinished.clear() => Permit::of(&self.open_dirs)?,
            room => room?,
        };
        let changes = self.name_changes.of(node.0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = Arc::new(self.nodes.open(node.0, flags)?);
        let inode_tag = self.nodes.listed_tag(node.0, fd.as_fd())?;
        let stream = Mutex::new(DirStream::new(Arc::clone(&fd)));
        Ok(OpenDir {
            node: node.0,
            fd,
            stream,
            inode_tag,
            changes: AtomicU64::new(changes),
            outdated: AtomicBool::new(false),
            _room: room,
        })
    }

    /// Whether the kernel has opened a directory without asking.
    fn is_unasked(&self, handle: FileHandle) -> bool {
        handle.0 == 0 && self.in_force().opens_directories
    }

    /// A descriptor of an open directory, or of one opened for this request.
    pub(crate) fn dir(&self, node: NodeId, handle: FileHandle) -> Result<Arc<OwnedFd>, Errno> {
        match self.is_unasked(handle) {
            true => self.open_dir(node).map(|dir| dir.fd),
            false => Ok(Arc::clone(&self.dirs.get(handle.0)?.fd)),
        }
    }

    /// Whether the kernel may keep the listing of a directory until it hears of a change: of those
    /// made through the mount it knows, of others it is told where the directory is watched.
    fn caches_listing(&self, node: NodeId) -> bool {
        let watched = self.is_watched() && self.nodes.on_source(node.0);
        self.settings.exclusive || watched
    }

    pub(crate) fn do_opendir(&self, cx: &Context<'_>, op: &Opendir) -> Result<Opened, Errno> {
        if self.in_force().opens_directories {
            return Err(Errno::NOSYS);
        }
        let handle = self.dirs.insert(self.open_dir(op.node)?);
        let handle = handle.map_err(|_| Errno::NFILE)?;
        let mut flags = OpenOutFlags::empty();
        if self.caches_listing(op.node) {
            flags = OpenOutFlags::CACHE_DIR | OpenOutFlags::KEEP_CACHE;
            if !self.overflows.may_keep(op.node.0) {
                flags -= OpenOutFlags::KEEP_CACHE;
                let why = "changes below were lost";
                forget_attributes_now(cx, op.node, why);
            }
        }
        Ok(Opened {
            handle: FileHandle(handle),
            flags,
            ..Opened::default()
        })
    }

    pub(crate) fn do_readdir(
        &self,
        cx: &Context<'_>,
        (node, handle): (NodeId, FileHandle),
        offset: u64,
        listing: Directory,
    ) -> Result<Directory, Errno> {
        if !self.is_unasked(handle) {
            return self.list_opened(cx, &*self.dirs.get(handle.0)?, offset, listing);
        }
        let changes = self.name_changes.of(node.0);
        if offset == 0 && self.fills.begins(node.0, changes) {
            forget_listing(cx, node);
        }
        let dir = match self.unfinished.take(node.0, offset, changes) {
            Some(dir) => dir,
            None => Arc::new(self.open_dir(node)?),
        };
        let listing = self.list(&dir, offset, listing)?;
        if listing.is_empty() && self.fills.ends(node.0, changes) {
            forget_listing(cx, node);
        }
        // After the last entry one more request comes, which finds none.
        if !listing.is_empty() && !self.open_dirs.is_half_taken() {
            self.unfinished.keep(dir);
        }
        Ok(listing)
    }

    /// What was read of a directory before names in it changed, or is listed as when it was opened, the kernel may add to
    /// a listing that it has begun to keep since. It drops that when the end is reached, or else the directory closed.
    fn list_opened(
        &self,
        cx: &Context<'_>,
        dir: &OpenDir,
        offset: u64,
        listing: Directory,
    ) -> Result<Directory, Errno> {
        let (changes, node) = (self.name_changes.of(dir.node), NodeId(dir.node));
        let caches = self.caches_listing(node);
        if offset == 0 {
            dir.changes.store(changes, Ordering::Relaxed);
            if caches && self.fills.begins(dir.node, changes) {
                forget_listing(cx, node);
            }
        }
        let listing = self.list(dir, offset, listing)?;
        if dir.changes() != changes {
            dir.outdated.store(true, Ordering::Relaxed);
        }
        if listing.is_empty() && caches {
            let overtaken = self.fills.ends(dir.node, changes);
            if dir.outdated.swap(false, Ordering::Relaxed) || overtaken {
                forget_listing(cx, node);
            }
        }
        Ok(listing)
    }

    pub(crate) fn do_releasedir(&self, cx: &Context<'_>, op: &Releasedir) -> Result<(), Errno> {
        let dir = self.dirs.remove(op.handle.0)?;
        let node = NodeId(dir.node);
        if dir.outdated.swap(false, Ordering::Relaxed) && self.caches_listing(node) {
            forget_listing(cx, node);
        }
        Ok(())
    }

    fn list(&self, dir: &OpenDir, offset: u64, mut listing: Directory) -> Result<Directory, Errno> {
        let mut stream = lock(&dir.stream);
        stream.seek(offset)?;
        loop {
            let entry = match stream.peek() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // What was added already counts lookups: the error comes with the next request.
                Err(_) if !listing.is_empty() => break,
                Err(error) => return Err(error),
            };
            if !listing.fits(entry.name.count_bytes()) {
                break;
            }
            if !self.push(dir, &entry, &mut listing) {
                break;
            }
            stream.advance();
        }
        Ok(listing)
    }

    fn push(&self, dir: &OpenDir, lower: &LowerEntry<'_>, listing: &mut Directory) -> bool {
        let mut name = DirectoryEntry {
            name: lower.name.to_bytes(),
            ino: lower.inode ^ dir.inode_tag,
            offset: lower.next_offset,
            mode: u32::from(lower.kind) << 12,
        };
        let dots = matches!(name.name, b"." | b"..");
        if dots || !listing.is_plus() || self.nodes.are_scarce() {
            return listing.push(&name);
        }
        // A name that is gone meanwhile is listed all the same, as readdir(3) may do.
        let Ok(found) = self.nodes.lookup_at(dir.fd.as_fd(), lower.name) else {
            return listing.push_entry(&name, &Entry::default());
        };
        name.ino = found.statx.stx_ino;
        let entry = self.entry(&found);
        let is_changing = || self.writers.any(found.node) || entry.attr.is_of_changing_file();
        if self.write_back() && is_changing() {
            self.nodes.forget(found.node, 1);
            return listing.push(&name);
        }
        let pushed = listing.push_entry(&name, &entry);
        if !pushed {
            self.nodes.forget(found.node, 1);
        }
        pushed
    }

    pub(crate) fn do_fsyncdir(&self, op: &Fsyncdir) -> Result<(), Errno> {
        let dir = self.dir(op.node, op.handle)?;
        match op.data_only {
            true => rustix::fs::fdatasync(&dir),
            false => rustix::fs::fsync(&dir),
        }
    }
}
