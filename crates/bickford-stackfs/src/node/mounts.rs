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

/// One lower mount.
pub(crate) struct LowerMount {
    pub(crate) number: u16,
    id: i32,
    device: u64,
    /// Any open object of the mount, as `open_by_handle_at` wants it.
    fd: OwnedFd,
    /// Told apart from inode numbers of other lower file systems by these bits.
    inode_tag: u64,
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

    /// The inode number shown for `inode` of this mount.
    pub(crate) fn inode(&self, inode: u64) -> u64 {
        inode ^ self.inode_tag
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

/// The device number of a `statx` answer as one word.
pub(crate) fn device(statx: &Statx) -> u64 {
    u64::from(statx.stx_dev_major) << 32 | u64::from(statx.stx_dev_minor)
}

/// See the module.
pub(crate) struct Mounts {
    list: RwLock<Vec<Arc<LowerMount>>>,
}

impl Mounts {
    /// Starts with the mount of `root`, which is open for reading.
    pub(crate) fn new(root: &OwnedFd, statx: &Statx) -> Result<Self, Errno> {
        let (handle, id) = sys::name_to_handle(root.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        // Proves that the capability is there and the lower file system answers handles.
        sys::open_by_handle(root.as_fd(), &handle, OFlags::PATH)?;
        let direct = rustix::fs::fstatfs(root)?.f_type as i64 == EXT_MAGIC
            && handle.kind() == HANDLE_INODE_GENERATION
            && handle.bytes().len() == 8;
        let mount = LowerMount {
            number: 0,
            id,
            device: device(statx),
            fd: root.try_clone().map_err(|_| Errno::MFILE)?,
            inode_tag: 0,
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
        let device = device(statx);
        let mount = Arc::new(LowerMount {
            number: list.len() as u16,
            id,
            device,
            fd,
            inode_tag: inode_tag(&list, device),
            direct: false,
        });
        list.push(Arc::clone(&mount));
        Ok(mount)
    }
}

/// Bits 48 to 62, the same for every mount of one device and, as far as the order of discovery
/// allows, from one run to the next.
fn inode_tag(list: &[Arc<LowerMount>], device: u64) -> u64 {
    if let Some(mount) = list.iter().find(|mount| mount.device == device) {
        return mount.inode_tag;
    }
    let mut tag = device.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49;
    while tag == 0 || list.iter().any(|mount| mount.inode_tag == tag << 48) {
        tag = (tag + 1) & 0x7fff;
    }
    tag << 48
}
