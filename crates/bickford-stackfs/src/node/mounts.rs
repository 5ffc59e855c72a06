//! The lower mounts that nodes live on: that of SOURCE and those below it.
//!
//! A file that is reached through two mounts of one file system (bind mounts) is one node, as a file with two names
//! is: with two the kernel would cache its contents and its size twice. Directories are a node for each mount, since
//! what is mounted in them differs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use bickford::mount::MountEntry;
use rustix::fs::{AtFlags, FileType, OFlags, StatVfsMountFlags, Statx};
use rustix::io::Errno;

use crate::magic::{EXT, Traits, magic};
use crate::sys::{self, HANDLE_INODE_GENERATION, LowerHandle};

use super::devices::device;
use super::fleeting::lasting;
use super::table::Location;
use super::{Nodes, ProcFd, ROOT};

/// Mounts below SOURCE that are known at most; objects on further ones are held by descriptor.
const MOUNTS_MAX: usize = 4096;

/// One lower mount.
pub(crate) struct LowerMount {
    pub(crate) number: u16,
    id: i32,
    /// Any open object of the mount, as `open_by_handle_at` wants it.
    fd: OwnedFd,
    /// Of `fd`, which is not asked again: what it is on may hang.
    device: u64,
    /// A handle here is inode number and generation, 32 bits each.
    pub(crate) direct: bool,
    /// The mount whose nodes its files are.
    files: u16,
    /// Its names may have several spellings.
    folds_case: bool,
}

/// What two mounts must have in common for their files to be the same nodes: device, flags of the mount, and the
/// owner that an object has through either (id-mapped mounts).
#[derive(PartialEq, Eq)]
struct View {
    device: u64,
    inode: u64,
    flags: StatVfsMountFlags,
    owner: (u32, u32),
}

impl View {
    fn of(object: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(object)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            flags: rustix::fs::fstatvfs(object)?.f_flag,
            owner: (stat.st_uid, stat.st_gid),
        })
    }
}

impl LowerMount {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether it shows the object that another mount knows by `handle` as `view`.
    fn shows(&self, handle: &LowerHandle, view: &View) -> bool {
        self.device == view.device
            && sys::open_by_handle(self.fd(), handle, OFlags::PATH)
                .and_then(|object| View::of(object.as_fd()))
                .is_ok_and(|shown| shown == *view)
    }

    pub(crate) fn has_id(&self, id: i32) -> bool {
        self.id == id
    }

    /// `inode number << 32 | (generation ^ inode number)` if a handle of this mount is just these two:
    /// the kernel's hash of inodes wants its low bits to differ, and generations may all be zero.
    pub(crate) fn direct_id(&self, handle: &LowerHandle) -> Option<u64> {
        if !self.direct || handle.kind() != HANDLE_INODE_GENERATION {
            return None;
        }
        let bytes: [u8; 8] = handle.bytes().try_into().ok()?;
        // Two native words: the inode number, then the generation.
        let (inode, generation) = bytes.split_at(4);
        let inode = u32::from_ne_bytes(inode.try_into().ok()?);
        let generation = u32::from_ne_bytes(generation.try_into().ok()?);
        // The ids of the last inode number are those of layers: `NodeId::FIRST_OF_LAYERS`.
        if inode == u32::MAX {
            return None;
        }
        Some(u64::from(inode) << 32 | u64::from(generation ^ inode))
    }

    /// The handle that [`Self::direct_id`] was made of.
    pub(crate) fn direct_handle(id: u64) -> Option<LowerHandle> {
        let inode = (id >> 32) as u32;
        let generation = id as u32 ^ inode;
        let bytes = [inode.to_ne_bytes(), generation.to_ne_bytes()].concat();
        LowerHandle::new(HANDLE_INODE_GENERATION, &bytes)
    }
}

/// Whether a node id is a handle rather than a place in the table: no inode has the number 0.
pub(crate) fn is_direct(id: u64) -> bool {
    id >> 32 != 0
}

/// Whether a mount at or below `source`, an open directory, is id-mapped; also where that cannot be known.
pub(crate) fn are_mapped(source: BorrowedFd<'_>) -> bool {
    let Some((path, all)) = mounts_about(source) else {
        return true;
    };
    let on = MountEntry::containing(&all, &path);
    let below = all
        .iter()
        .filter(|mount| mount.mountpoint.starts_with(&path));
    let mut options = below.chain(on).flat_map(|mount| mount.options.split(','));
    options.any(|option| option == "idmapped")
}

/// Where an open directory is, and all mounts. None where that cannot be known.
pub(crate) fn mounts_about(directory: BorrowedFd<'_>) -> Option<(PathBuf, Vec<MountEntry>)> {
    let path = std::fs::read_link(ProcFd::path(directory)).ok()?;
    // Outside the root of this process it is told without.
    let told = path.is_absolute().then_some(path)?;
    Some((told, MountEntry::all().ok()?))
}

/// See the module.
pub(crate) struct Mounts {
    list: RwLock<Vec<Arc<LowerMount>>>,
    /// Some show other owners than others, which one object of each cannot tell: no files are shared.
    mapped: bool,
}

impl Mounts {
    /// Starts with the mount of `root`, which is open for reading; see [`are_mapped`].
    pub(crate) fn new(root: &OwnedFd, mapped: bool) -> Result<Self, Errno> {
        let magic = lasting(root.as_fd())?;
        let (handle, id) = sys::name_to_handle(root.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        // Proves that the capability is there and the lower file system answers handles.
        sys::open_by_handle(root.as_fd(), &handle, OFlags::PATH)?;
        let direct =
            magic == EXT && handle.kind() == HANDLE_INODE_GENERATION && handle.bytes().len() == 8;
        let mount = LowerMount {
            number: 0,
            id,
            fd: root.try_clone().map_err(|_| Errno::MFILE)?,
            device: rustix::fs::fstat(root)?.st_dev,
            direct,
            files: 0,
            folds_case: Traits::of_magic(magic).folds_case,
        };
        Ok(Self {
            list: RwLock::new(vec![Arc::new(mount)]),
            mapped,
        })
    }

    fn read<T>(&self, look: impl FnOnce(&[Arc<LowerMount>]) -> T) -> T {
        look(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn get(&self, number: u16) -> Option<Arc<LowerMount>> {
        self.read(|list| list.get(usize::from(number)).cloned())
    }

    /// The mount with this id, if anything on it was looked up before.
    pub(crate) fn known(&self, id: i32) -> Option<Arc<LowerMount>> {
        self.read(|list| list.iter().find(|mount| mount.id == id).cloned())
    }

    /// The mount with this id, remembered from now on; `object` is an `O_PATH` descriptor on it.
    fn enter(
        &self,
        id: i32,
        object: BorrowedFd<'_>,
        statx: &Statx,
        proc: &ProcFd,
    ) -> Result<Arc<LowerMount>, Errno> {
        // Only what opens without side effects can stand for a mount.
        let kind = FileType::from_raw_mode(statx.stx_mode.into());
        if !kind.is_dir() && !kind.is_file() {
            return Err(Errno::OPNOTSUPP);
        }
        let fd = proc.reopen(object, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let (handle, opened) = sys::name_to_handle(fd.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        if opened != id {
            return Err(Errno::STALE);
        }
        sys::open_by_handle(fd.as_fd(), &handle, OFlags::PATH)?;
        let view = View::of(fd.as_fd())?;
        let folds_case = Traits::of_magic(magic(&fd)?).folds_case;
        loop {
            let known = self.read(<[_]>::to_vec);
            let same = self.showing(&known, &handle, &view);
            let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(mount) = list.iter().find(|mount| mount.id == id) {
                return Ok(Arc::clone(mount));
            }
            if list.len() >= MOUNTS_MAX {
                return Err(Errno::NFILE);
            }
            // One that came meanwhile may be it.
            if list.len() > known.len() {
                continue;
            }
            let number = list.len() as u16;
            let mount = Arc::new(LowerMount {
                number,
                id,
                fd,
                device: view.device,
                direct: false,
                files: same.unwrap_or(number),
                folds_case,
            });
            list.push(Arc::clone(&mount));
            return Ok(mount);
        }
    }

    /// The mount of these whose nodes the files of another are that shows an object with this handle as `view`.
    fn showing(&self, known: &[Arc<LowerMount>], handle: &LowerHandle, view: &View) -> Option<u16> {
        let mut own = known.iter().filter(|mount| mount.files == mount.number);
        let found = own.find(|mount| !self.mapped && mount.shows(handle, view));
        found.map(|mount| mount.number)
    }

    /// The mount with the id `to`, if its files are the same nodes as those of the mount with the id `from`.
    pub(crate) fn sharing(&self, from: i32, to: i32) -> Option<Arc<LowerMount>> {
        let (from, to) = (self.known(from)?, self.known(to)?);
        (from.files == to.files).then_some(to)
    }

    /// The mount that an object of the kind that `mode` tells, which is on `mount`, is known by. Only where mounts
    /// share files is the mode asked for.
    pub(crate) fn of_object(
        &self,
        mount: Arc<LowerMount>,
        mode: impl FnOnce() -> Option<u32>,
    ) -> Option<Arc<LowerMount>> {
        if mount.files == mount.number || FileType::from_raw_mode(mode()?).is_dir() {
            return Some(mount);
        }
        self.get(mount.files)
    }
}

/// What an object is known by.
pub(super) struct Identified {
    pub(super) mount: Arc<LowerMount>,
    pub(super) handle: LowerHandle,
    /// It is on another mount, which shares its files.
    pub(super) elsewhere: bool,
}

impl Nodes {
    /// None for what is known by a descriptor.
    pub(super) fn identify(&self, fd: BorrowedFd<'_>, statx: &Statx) -> Option<Identified> {
        let mounts = self.mounts.as_ref()?;
        if self.fleeting.is_left_out(fd, statx) {
            return None;
        }
        let (handle, id) = sys::name_to_handle(fd, c"", AtFlags::EMPTY_PATH).ok()?;
        let mount = match mounts.known(id) {
            Some(mount) => mount,
            None if self.fleeting.are_of(fd, device(statx)) => return None,
            None => mounts.enter(id, fd, statx, &self.proc).ok()?,
        };
        let on = mount.number;
        let mount = mounts.of_object(mount, || Some(statx.stx_mode.into()))?;
        Some(Identified {
            elsewhere: mount.number != on,
            mount,
            handle,
        })
    }

    /// Whether names in such a directory may have several spellings, or the name of such an object, where that is so
    /// on some mount below SOURCE.
    pub(crate) fn may_fold_case(&self, node: u64) -> bool {
        match self.locate(node) {
            Ok(Location::Handle { mount, .. }) => {
                self.mount(mount).is_none_or(|mount| mount.folds_case)
            }
            // Few of those file systems have handles that last.
            _ => node != ROOT,
        }
    }

    /// The same object on the mount of `dir`. EXDEV where that is not one through which files are the same nodes.
    pub(crate) fn beside(
        &self,
        object: BorrowedFd<'_>,
        dir: BorrowedFd<'_>,
    ) -> Result<OwnedFd, Errno> {
        let mounts = self.mounts.as_ref().ok_or(Errno::XDEV)?;
        let (handle, from) = sys::name_to_handle(object, c"", AtFlags::EMPTY_PATH)?;
        let (_, to) = sys::name_to_handle(dir, c"", AtFlags::EMPTY_PATH)?;
        let to = mounts.sharing(from, to).ok_or(Errno::XDEV)?;
        sys::open_by_handle(to.fd(), &handle, OFlags::PATH)
    }
}
