//! The lower mounts that nodes live on: that of SOURCE and those below it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{AtFlags, OFlags, Statx};
use rustix::io::Errno;

use crate::sys::{self, HANDLE_INODE_GENERATION, LowerHandle};

use super::ProcFd;

/// Mounts below SOURCE that are known at most; objects on further ones are held by descriptor.
const MOUNTS_MAX: usize = 4096;
const EXT_MAGIC: i64 = 0xef53;
/// FAT and FUSE find by a handle only what they have in memory.
const FORGETFUL: [i64; 2] = [0x4d44, 0x6573_5546];

/// One lower mount.
pub(crate) struct LowerMount {
    pub(crate) number: u16,
    id: i32,
    /// Any open object of the mount, as `open_by_handle_at` wants it.
    fd: OwnedFd,
    /// A handle here is inode number and generation, 32 bits each.
    pub(crate) direct: bool,
}

impl LowerMount {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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

/// The kind of file system that `fd` is on. EOPNOTSUPP for one whose handles do not last.
fn lasting(fd: BorrowedFd<'_>) -> Result<i64, Errno> {
    let magic = rustix::fs::fstatfs(fd)?.f_type as i64;
    match FORGETFUL.contains(&magic) {
        true => Err(Errno::OPNOTSUPP),
        false => Ok(magic),
    }
}

/// See the module.
pub(crate) struct Mounts {
    list: RwLock<Vec<Arc<LowerMount>>>,
}

impl Mounts {
    /// Starts with the mount of `root`, which is open for reading.
    pub(crate) fn new(root: &OwnedFd) -> Result<Self, Errno> {
        let magic = lasting(root.as_fd())?;
        let (handle, id) = sys::name_to_handle(root.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        // Proves that the capability is there and the lower file system answers handles.
        sys::open_by_handle(root.as_fd(), &handle, OFlags::PATH)?;
        let direct = magic == EXT_MAGIC
            && handle.kind() == HANDLE_INODE_GENERATION
            && handle.bytes().len() == 8;
        let mount = LowerMount {
            number: 0,
            id,
            fd: root.try_clone().map_err(|_| Errno::MFILE)?,
            direct,
        };
        Ok(Self {
            list: RwLock::new(vec![Arc::new(mount)]),
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
    pub(crate) fn enter(
        &self,
        id: i32,
        object: BorrowedFd<'_>,
        statx: &Statx,
        proc: &ProcFd,
    ) -> Result<Arc<LowerMount>, Errno> {
        if let Some(mount) = self.known(id) {
            return Ok(mount);
        }
        // Only what opens without side effects can stand for a mount.
        let kind = rustix::fs::FileType::from_raw_mode(statx.stx_mode.into());
        if !kind.is_dir() && !kind.is_file() {
            return Err(Errno::OPNOTSUPP);
        }
        lasting(object)?;
        let fd = proc.reopen(object, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let (handle, opened) = sys::name_to_handle(fd.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        if opened != id {
            return Err(Errno::STALE);
        }
        sys::open_by_handle(fd.as_fd(), &handle, OFlags::PATH)?;
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(mount) = list.iter().find(|mount| mount.id == id) {
            return Ok(Arc::clone(mount));
        }
        if list.len() >= MOUNTS_MAX {
            return Err(Errno::NFILE);
        }
        let mount = Arc::new(LowerMount {
            number: list.len() as u16,
            id,
            fd,
            direct: false,
        });
        list.push(Arc::clone(&mount));
        Ok(mount)
    }
}
