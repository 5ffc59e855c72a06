//! Nodes: what the kernel knows by a number and we by the lower object behind it.
//!
//! | SOURCE is on | node id | kept per node |
//! |---|---|---|
//! | ext2, ext3, ext4 | inode number and generation, which are the file handle | nothing |
//! | another file system with handles | below 2^32 | the handle |
//! | anything, without `CAP_DAC_READ_SEARCH` or lasting handles | below 2^32 | an `O_PATH` descriptor, bounded |
//!
//! Objects on mounts below SOURCE always take the table. The root is 1 in every case.

mod cache;
mod devices;
mod doomed;
mod fleeting;
mod hard_links;
mod mounts;
mod parked;
mod prune;
mod table;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bickford::notify::Notifier;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::descriptors::{Budget, as_seen_by_callers};
use crate::leases::AT_ONCE;
use crate::sys;

pub(crate) use cache::DescriptorCache;
use devices::{Devices, device};
pub(crate) use doomed::Doomed;
use fleeting::Fleeting;
use hard_links::Watches;
use mounts::{Identified, LowerMount, Mounts};
pub(crate) use mounts::{are_mapped, mounts_about};
use parked::Parked;
use table::{Held, Key, Location, NodeTable};

/// `FUSE_ROOT_ID`.
pub(crate) const ROOT: u64 = 1;

/// Directories that are kept open at most, so that a daemon whose files are closed has no more than
/// 1,024 descriptors, whatever its limit.
const DIRECTORIES_MAX: usize = 768;

const STATX_WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// `/proc/self/fd`, held open: the way to reopen an `O_PATH` descriptor.
pub(crate) struct ProcFd(OwnedFd);

impl ProcFd {
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).map(Self)
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The name of `fd` in this directory.
    pub(crate) fn name(fd: BorrowedFd<'_>) -> String {
        fd.as_raw_fd().to_string()
    }

    /// A path that leads to the object of `fd`, be it a symbolic link.
    pub(crate) fn path(fd: BorrowedFd<'_>) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }

    /// Opens the object behind `fd` again.
    pub(crate) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, Self::name(fd), flags, Mode::empty())
            .map_err(as_seen_by_callers)
    }

    /// The same in the first of these ways that can be had, to lock it: ENOLCK where there is none. EACCES would say
    /// that somebody else has the lock.
    pub(crate) fn reopen_to_lock(
        &self,
        fd: BorrowedFd<'_>,
        ways: impl IntoIterator<Item = OFlags>,
    ) -> Result<OwnedFd, Errno> {
        let mut refused = Errno::NOLCK;
        for flags in ways {
            match self.reopen(fd, flags | AT_ONCE) {
                Err(error) => refused = error,
                opened => return opened,
            }
        }
        Err(match refused {
            Errno::AGAIN | Errno::INTR | Errno::NFILE => refused,
            _ => Errno::NOLCK,
        })
    }
}

/// A node that was looked up and counted.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) node: u64,
    pub(crate) generation: u64,
    /// Attributes, with the inode number as it is shown.
    pub(crate) statx: Statx,
    /// It was found on another mount than that of its node.
    pub(crate) elsewhere: bool,
}

/// See the module.
pub(crate) struct Nodes {
    root: Arc<OwnedFd>,
    proc: ProcFd,
    /// `None` where file handles are of no use.
    mounts: Option<Mounts>,
    fleeting: Fleeting,
    watches: Arc<Watches>,
    devices: Devices,
    root_direct: bool,
    root_handle: Option<sys::LowerHandle>,
    table: NodeTable,
    directories: DescriptorCache,
    parked: Arc<Parked>,
    /// The kernel opens files without asking: nothing but what is parked keeps what has no name.
    opens_unasked: AtomicBool,
    limit_said: AtomicBool,
    budget: Budget,
    /// Lookups while descriptors were scarce.
    scarce_lookups: AtomicUsize,
    /// When somebody last waited for room and none came.
    in_vain: Mutex<Option<Instant>>,
    /// The kernel forgets what it is asked to.
    kernel_prunes: AtomicBool,
}

fn statx_of(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(fd, c"", flags, STATX_WANTED)
}

/// Refuses what is not one component: the kernel never sends such names.
pub(crate) fn checked(name: &CStr) -> Result<&CStr, Errno> {
    match name.to_bytes() {
        b"" | b"." | b".." => Err(Errno::INVAL),
        bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(name),
    }
}

impl Nodes {
    /// Nodes below `root`, a directory open for reading. At most `descriptors` are kept open. Handles are used
    /// where there are any to be used; `mapped` says whether owners differ between the mounts.
    pub(crate) fn new(
        root: OwnedFd,
        descriptors: usize,
        handles: bool,
        mapped: bool,
    ) -> Result<Self, Errno> {
        let statx = statx_of(root.as_fd())?;
        let mounts = match handles {
            true => Mounts::new(&root, mapped).ok(),
            false => None,
        };
        let root_direct = mounts
            .as_ref()
            .and_then(|m| m.get(0))
            .is_some_and(|m| m.direct);
        let root_handle = sys::name_to_handle(root.as_fd(), c"", AtFlags::EMPTY_PATH).ok();
        let directories = DescriptorCache::new((descriptors / 8).min(DIRECTORIES_MAX));
        let budget = Budget::new(descriptors.saturating_sub(directories.capacity()));
        let all = budget.limit();
        Ok(Self {
            root: Arc::new(root),
            proc: ProcFd::open()?,
            mounts,
            fleeting: Fleeting::default(),
            watches: Arc::default(),
            devices: Devices::new(&statx),
            root_direct,
            root_handle: root_handle.map(|(handle, _)| handle),
            table: NodeTable::new(budget.share(all / 2)),
            directories,
            parked: Parked::new(budget.share(all / 4)),
            opens_unasked: AtomicBool::new(false),
            limit_said: AtomicBool::new(false),
            budget,
            scarce_lookups: AtomicUsize::new(0),
            in_vain: Mutex::default(),
            kernel_prunes: AtomicBool::new(false),
        })
    }

    pub(crate) fn proc(&self) -> &ProcFd {
        &self.proc
    }

    /// All descriptors, but for those of [`Self::directory`].
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether nodes are kept as file handles, where their file system has them.
    pub(crate) fn has_handles(&self) -> bool {
        self.mounts.is_some()
    }

    /// Whether the node ids of SOURCE's file system are file handles.
    pub(crate) fn are_handles(&self) -> bool {
        self.root_direct
    }

    /// How nodes are told apart, for the line at start and the tests.
    pub(crate) fn identity(&self) -> &'static str {
        match (&self.mounts, self.root_direct) {
            (None, _) => "descriptors",
            (Some(_), false) => "table of file handles",
            (Some(_), true) => "file handles as node ids",
        }
    }

    /// Nodes in the table; nodes that are their own handle are not counted.
    pub(crate) fn table_len(&self) -> usize {
        self.table.len()
    }

    /// Looks `name` up and counts the node.
    pub(crate) fn lookup(&self, parent: u64, name: &CStr) -> Result<Found, Errno> {
        let dir = self.directory(parent)?;
        self.lookup_at(dir.as_fd(), checked(name)?)
    }

    /// The same below an open directory.
    pub(crate) fn lookup_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Found, Errno> {
        if self.root_direct
            && let Some(found) = self.lookup_direct(dir, name)?
        {
            return Ok(found);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(dir, name, flags, Mode::empty());
        self.enter(opened.map_err(as_seen_by_callers)?)
    }

    /// Two system calls instead of four; `None` when the object is on another mount or the name
    /// changed hands between them.
    fn lookup_direct(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Option<Found>, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let statx = rustix::fs::statx(dir, name, flags, STATX_WANTED)?;
        let (handle, mount_id) = match sys::name_to_handle(dir, name, AtFlags::empty()) {
            Ok(named) => named,
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(mount) = self.mount(0).filter(|mount| mount.has_id(mount_id)) else {
            return Ok(None);
        };
        Ok(mount
            .direct_id(&handle)
            .filter(|id| id >> 32 == statx.stx_ino)
            .map(|node| Found {
                node,
                generation: 0,
                statx,
                elsewhere: false,
            }))
    }

    /// The object of a node id that somebody kept while the kernel dropped it, counted. ESTALE where
    /// it is gone, and for ids of the table, which mean nothing once they are forgotten.
    pub(crate) fn again(&self, node: u64) -> Result<Found, Errno> {
        if !mounts::is_direct(node) {
            return Err(Errno::STALE);
        }
        // What opens may be a successor: ext4 takes a handle of generation 0 to mean any.
        let object = self.object(node)?;
        let found = self.enter_opened(object.as_fd())?;
        if found.node != node || self.is_root(object.as_fd()) {
            return Err(Errno::STALE);
        }
        Ok(found)
    }

    /// The parent of such a directory, counted. ESTALE at the top of the lower file system, to which
    /// it leads only from beside SOURCE.
    pub(crate) fn parent(&self, node: u64) -> Result<Found, Errno> {
        let dir = self.directory(node)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(&dir, c"..", flags, Mode::empty())?;
        if self.is_root(parent.as_fd()) {
            return Ok(Found {
                node: ROOT,
                generation: 0,
                statx: statx_of(parent.as_fd())?,
                elsewhere: false,
            });
        }
        let found = self.enter(parent)?;
        if found.node == node {
            self.forget(node, 1);
            return Err(Errno::STALE);
        }
        Ok(found)
    }

    fn is_root(&self, fd: BorrowedFd<'_>) -> bool {
        sys::name_to_handle(fd, c"", AtFlags::EMPTY_PATH)
            .is_ok_and(|(handle, _)| self.node_of_handle(&handle) == Some(ROOT))
    }

    fn mount(&self, number: u16) -> Option<Arc<LowerMount>> {
        self.mounts.as_ref()?.get(number)
    }

    /// The node of an open object (`O_PATH` will do), counted.
    pub(crate) fn enter(&self, fd: OwnedFd) -> Result<Found, Errno> {
        let statx = statx_of(fd.as_fd())?;
        match self.identify(fd.as_fd(), &statx) {
            Some(identified) => self.enter_handle(&identified, statx),
            None => self.enter_descriptor(fd, statx),
        }
    }

    /// The same for an object that stays open elsewhere.
    pub(crate) fn enter_opened(&self, fd: BorrowedFd<'_>) -> Result<Found, Errno> {
        let statx = statx_of(fd)?;
        match self.identify(fd, &statx) {
            Some(identified) => self.enter_handle(&identified, statx),
            None => self.enter_descriptor(self.proc.reopen(fd, OFlags::PATH)?, statx),
        }
    }

    fn enter_handle(&self, known: &Identified, mut statx: Statx) -> Result<Found, Errno> {
        statx.stx_ino = self.devices.shown_inode(&statx);
        let (mount, handle) = (&known.mount, &known.handle);
        let (node, generation) = match mount.direct_id(handle) {
            Some(node) => (node, 0),
            None => {
                let key = Key::Handle {
                    mount: mount.number,
                    handle: handle.parts(),
                };
                self.table.enter(key, &mut None)?
            }
        };
        Ok(Found {
            node,
            generation,
            statx,
            elsewhere: known.elsewhere,
        })
    }

    fn enter_descriptor(&self, fd: OwnedFd, mut statx: Statx) -> Result<Found, Errno> {
        let handle = self.fleeting_handle(fd.as_fd(), &statx);
        let watch = self.watch_of(fd.as_fd(), &statx);
        let by_number = Key::Object {
            device: device(&statx),
            inode: statx.stx_ino,
            handle: handle.as_ref().map(sys::LowerHandle::parts),
        };
        let key = watch.as_ref().map_or(by_number, |watch| watch.key());
        let held = Held::new(fd, watch);
        let (node, generation) = self.enter_held(key, held).inspect_err(|&error| {
            if error == Errno::NFILE && !self.limit_said.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "StackFS: {} inodes are in use and held as descriptors, the limit; run with \
                     CAP_DAC_READ_SEARCH on a file system whose file handles last, or raise ulimit -Hn",
                    self.table.held.taken()
                );
            }
        })?;
        statx.stx_ino = self.devices.shown_inode(&statx);
        Ok(Found {
            node,
            generation,
            statx,
            elsewhere: false,
        })
    }

    /// An `O_PATH` descriptor of a node.
    pub(crate) fn object(&self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.kept(node) {
            return Ok(fd);
        }
        match self.locate(node)? {
            Location::Descriptor(fd) => Ok(fd),
            Location::Handle { mount, handle } => {
                self.open_handle(mount, &handle, OFlags::PATH).map(Arc::new)
            }
        }
    }

    /// An `O_PATH` descriptor of a directory, kept for the next time.
    pub(crate) fn directory(&self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.kept(node) {
            return Ok(fd);
        }
        match self.locate(node)? {
            Location::Descriptor(fd) => Ok(fd),
            Location::Handle { mount, handle } => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let fd = Arc::new(self.open_handle(mount, &handle, flags)?);
                self.directories.insert(node, Arc::clone(&fd));
                Ok(fd)
            }
        }
    }

    /// Opens the object of a node with `flags`.
    pub(crate) fn open(&self, node: u64, flags: OFlags) -> Result<OwnedFd, Errno> {
        if let Some(fd) = self.kept(node) {
            return self.proc.reopen(fd.as_fd(), flags);
        }
        match self.locate(node)? {
            Location::Descriptor(fd) => self.proc.reopen(fd.as_fd(), flags),
            Location::Handle { mount, handle } => self.open_handle(mount, &handle, flags),
        }
    }

    /// Whether an object that is open somewhere can be opened again without a descriptor of ours.
    pub(crate) fn is_handle(&self, node: u64) -> bool {
        matches!(self.locate(node), Ok(Location::Handle { .. }))
    }

    fn open_handle(
        &self,
        mount: u16,
        handle: &sys::LowerHandle,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let mount = self.mount(mount).ok_or(Errno::STALE)?;
        sys::open_by_handle(mount.fd(), handle, flags).map_err(as_seen_by_callers)
    }

    fn kept(&self, node: u64) -> Option<Arc<OwnedFd>> {
        if node == ROOT {
            return Some(Arc::clone(&self.root));
        }
        self.directories.get(node).or_else(|| self.parked.get(node))
    }

    fn locate(&self, node: u64) -> Result<Location, Errno> {
        if !mounts::is_direct(node) {
            return self.table.locate(node);
        }
        let handle = LowerMount::direct_handle(node).filter(|_| self.root_direct);
        Ok(Location::Handle {
            mount: 0,
            handle: handle.ok_or(Errno::STALE)?,
        })
    }

    /// Attributes of a node, with the inode number as it is shown.
    #[cfg(test)]
    pub(crate) fn attributes(&self, node: u64) -> Result<Statx, Errno> {
        let fd = self.object(node)?;
        self.attributes_of(fd.as_fd())
    }

    /// Attributes of a node through a descriptor of it.
    pub(crate) fn attributes_of(&self, fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
        let mut statx = statx_of(fd)?;
        statx.stx_ino = self.devices.shown_inode(&statx);
        Ok(statx)
    }

    /// What the inode numbers that a directory lists are to be changed with (xor) to be shown.
    pub(crate) fn listed_tag(&self, node: u64, dir: BorrowedFd<'_>) -> Result<u64, Errno> {
        if node == ROOT || mounts::is_direct(node) {
            return Ok(0);
        }
        Ok(self.devices.tag(device(&statx_of(dir)?)))
    }

    /// The node of an object on the file system of SOURCE. The kernel need not know it.
    pub(crate) fn node_of_handle(&self, handle: &sys::LowerHandle) -> Option<u64> {
        if self.root_handle.as_ref()?.parts() == handle.parts() {
            return Some(ROOT);
        }
        self.node_on(&*self.mount(0)?, handle)
    }

    fn node_on(&self, mount: &LowerMount, handle: &sys::LowerHandle) -> Option<u64> {
        mount.direct_id(handle).or_else(|| {
            self.table.find(Key::Handle {
                mount: mount.number,
                handle: handle.parts(),
            })
        })
    }

    /// Whether objects can be told by handles, which is all that fanotify(7) tells of them.
    pub(crate) fn can_be_told(&self) -> bool {
        self.mounts.is_some() && self.root_handle.is_some()
    }

    /// Whether [`Self::node_of_handle`] leads to a node: not on a mount below SOURCE, nor where the
    /// object is known by a descriptor alone.
    pub(crate) fn on_source(&self, node: u64) -> bool {
        if node == ROOT || mounts::is_direct(node) {
            return self.can_be_told();
        }
        matches!(
            self.table.locate(node),
            Ok(Location::Handle { mount: 0, .. })
        )
    }

    /// Takes `count` lookups of a node back.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        if node == ROOT {
            return;
        }
        if mounts::is_direct(node) {
            self.directories.remove(node);
            self.parked.doubt(node);
        } else {
            // Closed after the table's lock.
            let kept = || (self.directories.take(node), self.parked.take(node));
            drop(self.table.forget(node, count, kept));
        }
    }

    /// How the kernel is asked whether it knows an inode.
    pub(crate) fn ask_through(&self, notifier: &Notifier) {
        self.parked.ask_through(notifier);
    }

    /// No file is held open by a handle: what handles would take is left for nameless objects, and for
    /// `cached` files.
    pub(crate) fn without_handles(&self, cached: usize) {
        self.opens_unasked.store(true, Ordering::Relaxed);
        self.budget.reduce(cached);
        self.parked.set_limit(self.budget.limit() / 2);
    }

    /// Keeps an object without a name until the kernel forgets its node; false where there is no descriptor
    /// for it.
    pub(crate) fn keep(&self, node: u64, fd: OwnedFd) -> bool {
        self.parked.park(node, fd)
    }
}

#[cfg(test)]
mod tests;
