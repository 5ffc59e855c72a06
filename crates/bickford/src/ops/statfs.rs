//! STATFS: how full is the file system?

use bickford_abi::{COMPAT_STATFS_SIZE, InHeader, Kstatfs, StatfsOut};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Asks for the file system's size and use (statfs(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Statfs {
    /// An inode of it.
    pub node: NodeId,
}

impl Operation<'_> for Statfs {
    type Answer = StatfsAnswer;

    fn decode(header: &InHeader, _: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            node: NodeId(header.nodeid),
        })
    }
}

/// Size and use of a file system (`struct fuse_kstatfs`, statvfs(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatfsAnswer {
    /// Blocks in all, of `fragment_size` bytes.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Blocks that ordinary users may take.
    pub available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Unit of the block counts in bytes.
    pub fragment_size: u32,
}

impl Default for StatfsAnswer {
    fn default() -> Self {
        Self {
            blocks: 0,
            free: 0,
            available: 0,
            files: 0,
            files_free: 0,
            block_size: 4096,
            name_max: 255,
            fragment_size: 4096,
        }
    }
}

impl From<&rustix::fs::StatVfs> for StatfsAnswer {
    fn from(stat: &rustix::fs::StatVfs) -> Self {
        let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            blocks: stat.f_blocks,
            free: stat.f_bfree,
            available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            block_size: narrow(stat.f_bsize),
            name_max: narrow(stat.f_namemax),
            fragment_size: narrow(stat.f_frsize),
        }
    }
}

impl Answer for StatfsAnswer {
    fn encode(self, encoding: &Encoding, out: &mut Encoder) {
        let st = Kstatfs {
            blocks: self.blocks,
            bfree: self.free,
            bavail: self.available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.name_max,
            frsize: self.fragment_size,
            ..Kstatfs::default()
        };
        let known = if encoding.minor < 4 {
            COMPAT_STATFS_SIZE
        } else {
            usize::MAX
        };
        out.put_prefix(&StatfsOut { st }, known);
    }
}
