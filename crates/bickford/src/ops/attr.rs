//! Attributes of inodes, and directory entries that carry them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bickford_abi::{self as abi, AttrFlags, Opcode};
use rustix::fs::FileType;

use super::{Answer, Encoder, Encoding};
use crate::{Generation, NodeId};

/// A point in time with nanoseconds, before or after 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds after that second, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The current time of the realtime clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Whether it is within a second of now, as well as that is told by whole seconds.
    fn is_recent(self) -> bool {
        self.seconds.abs_diff(Self::now().seconds) <= 1
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self {
                        seconds: -seconds,
                        nanoseconds: 0,
                    },
                    nanos => Self {
                        seconds: -seconds - 1,
                        nanoseconds: 1_000_000_000 - nanos,
                    },
                }
            }
        }
    }
}

impl From<rustix::fs::StatxTimestamp> for Timestamp {
    fn from(time: rustix::fs::StatxTimestamp) -> Self {
        Self {
            seconds: time.tv_sec,
            nanoseconds: time.tv_nsec,
        }
    }
}

/// Attributes of an inode (`struct fuse_attr`, stat(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number as stat(2) shows it.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit form.
    pub rdev: u32,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
    /// Whether this is the root of a submount, and so on.
    pub flags: AttrFlags,
}

impl Attr {
    /// Attributes of a directory with these permissions (the type is added), two links and all
    /// times zero.
    #[must_use]
    pub fn directory(ino: u64, permissions: u32) -> Self {
        let mode = 0o040_000 | (permissions & 0o7777);
        Self {
            ino,
            mode,
            links: 2,
            block_size: 4096,
            ..Self::default()
        }
    }

    /// Attributes of a regular file of `size` bytes with these permissions (the type is added), one
    /// link and all times zero.
    #[must_use]
    pub fn file(ino: u64, permissions: u32, size: u64) -> Self {
        let mode = 0o100_000 | (permissions & 0o7777);
        let blocks = size.div_ceil(512);
        Self {
            ino,
            mode,
            size,
            blocks,
            links: 1,
            block_size: 4096,
            ..Self::default()
        }
    }

    /// Attributes of whatever type `mode` tells (a regular file where it tells none), empty, with the
    /// links of something new and all times zero.
    #[must_use]
    pub fn of_mode(ino: u64, mode: u32) -> Self {
        match mode & 0o170_000 {
            0o040_000 => Self::directory(ino, mode),
            0 => Self::file(ino, mode, 0),
            _ => Self {
                mode,
                ..Self::file(ino, mode, 0)
            },
        }
    }

    /// The bits of `mode` that tell the type (`S_IFMT`).
    #[must_use]
    pub fn file_type(&self) -> u32 {
        self.mode & 0o170_000
    }

    /// Whether these are of a regular file that was changed within a second. With its write-back cache the kernel takes the
    /// size of a file when it makes an inode of it, and no other later: an older one, if it has dropped the inode while the
    /// answer was under way. Those of a listing (READDIRPLUS) wait longest, and may be left out of it
    /// ([`Directory::push`](super::Directory::push)): the kernel looks such a file up when it is used.
    #[must_use]
    pub fn is_of_changing_file(&self) -> bool {
        self.is_file() && self.changed.is_recent()
    }

    /// Whether this is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.file_type() == 0o040_000
    }

    /// Whether this is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == 0o100_000
    }

    /// See [`Answer::flaw`].
    pub(super) fn flaw(&self) -> Option<&'static str> {
        if FileType::from_raw_mode(self.mode) == FileType::Unknown {
            return Some("the mode in its attributes tells no type (S_IFREG, S_IFDIR and so on)");
        }
        let too_large = i64::try_from(self.size).is_err();
        too_large.then_some("the size in its attributes is beyond the largest of a file")
    }

    pub(crate) fn to_abi(self) -> abi::Attr {
        abi::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.accessed.seconds.cast_unsigned(),
            mtime: self.modified.seconds.cast_unsigned(),
            ctime: self.changed.seconds.cast_unsigned(),
            atimensec: self.accessed.nanoseconds,
            mtimensec: self.modified.nanoseconds,
            ctimensec: self.changed.nanoseconds,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.block_size,
            flags: self.flags.bits(),
        }
    }
}

impl Attr {
    pub(crate) fn from_abi(attr: &abi::Attr) -> Self {
        let time = |seconds: u64, nanoseconds| Timestamp {
            seconds: seconds.cast_signed(),
            nanoseconds,
        };
        Self {
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            accessed: time(attr.atime, attr.atimensec),
            modified: time(attr.mtime, attr.mtimensec),
            changed: time(attr.ctime, attr.ctimensec),
            mode: attr.mode,
            links: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            block_size: attr.blksize,
            flags: AttrFlags::from_bits_retain(attr.flags),
        }
    }
}

/// A device number in the kernel's 32-bit form (`new_encode_dev`).
#[must_use]
pub fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of a device number in the kernel's 32-bit form.
#[must_use]
pub fn decode_device(device: u32) -> (u32, u32) {
    (
        (device & 0xfff00) >> 8,
        (device & 0xff) | ((device >> 12) & 0xfff00),
    )
}

impl From<&rustix::fs::Stat> for Attr {
    fn from(stat: &rustix::fs::Stat) -> Self {
        // Over libc, rustix has nanoseconds of another type.
        fn time(seconds: i64, nanoseconds: impl TryInto<u32>) -> Timestamp {
            Timestamp {
                seconds,
                nanoseconds: nanoseconds.try_into().unwrap_or(0),
            }
        }
        Self {
            ino: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            accessed: time(stat.st_atime, stat.st_atime_nsec),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            mode: stat.st_mode,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: encode_device(
                rustix::fs::major(stat.st_rdev),
                rustix::fs::minor(stat.st_rdev),
            ),
            block_size: u32::try_from(stat.st_blksize).unwrap_or(4096),
            flags: AttrFlags::empty(),
        }
    }
}

/// Attributes, and how long the kernel may use them without asking (`struct fuse_attr_out`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The attributes.
    pub attr: Attr,
    /// How long they stay right.
    pub valid: Duration,
}

impl Answer for Attributes {
    fn flaw(&self, _: Opcode) -> Option<&'static str> {
        self.attr.flaw()
    }

    fn tells(
        &mut self,
        asked: NodeId,
        _: bool,
        tell: &mut dyn FnMut(NodeId, &Attr, &mut Duration),
    ) {
        tell(asked, &self.attr, &mut self.valid);
    }

    fn encode(self, encoding: &Encoding, out: &mut Encoder) {
        let valid = encoding.attributes_valid(self.valid);
        let value = abi::AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: 0,
            attr: self.attr.to_abi(),
        };
        let known = if encoding.minor < 9 {
            abi::COMPAT_ATTR_OUT_SIZE
        } else {
            usize::MAX
        };
        out.put_prefix(&value, known);
    }
}

/// A name that was found or made, and the inode behind it (`struct fuse_entry_out`).
///
/// Each one that is sent raises the lookup count of `node` by one, but for a negative entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The inode; zero for a negative entry: the name does not exist, and the kernel may remember
    /// that for `entry_valid`.
    pub node: NodeId,
    /// Tells apart inodes that had the same number at different times.
    pub generation: Generation,
    /// The inode's attributes.
    pub attr: Attr,
    /// How long the name stays right.
    pub entry_valid: Duration,
    /// How long the attributes stay right.
    pub attr_valid: Duration,
}

impl Entry {
    /// An inode with attributes, both valid for `valid`.
    #[must_use]
    pub fn new(node: NodeId, attr: Attr, valid: Duration) -> Self {
        Self {
            node,
            generation: Generation(0),
            attr,
            entry_valid: valid,
            attr_valid: valid,
        }
    }

    /// A name that does not exist, which the kernel may remember for `valid`.
    #[must_use]
    pub fn negative(valid: Duration) -> Self {
        Self {
            entry_valid: valid,
            ..Self::default()
        }
    }

    /// Whether the name does not exist.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.node == NodeId(0)
    }

    pub(crate) fn to_abi(self) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: self.node.0,
            generation: self.generation.0,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.entry_valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: self.attr.to_abi(),
        }
    }

    pub(crate) fn from_abi(entry: &abi::EntryOut) -> Self {
        let duration =
            |seconds, nanoseconds: u32| Duration::new(seconds, nanoseconds.min(999_999_999));
        Self {
            node: NodeId(entry.nodeid),
            generation: Generation(entry.generation),
            attr: Attr::from_abi(&entry.attr),
            entry_valid: duration(entry.entry_valid, entry.entry_valid_nsec),
            attr_valid: duration(entry.attr_valid, entry.attr_valid_nsec),
        }
    }

    pub(crate) fn put(mut self, encoding: &Encoding, out: &mut Encoder) {
        if self.node == NodeId::ROOT {
            self.attr_valid = encoding.attributes_valid(self.attr_valid);
        }
        let known = if encoding.minor < 9 {
            abi::COMPAT_ENTRY_OUT_SIZE
        } else {
            usize::MAX
        };
        out.put_prefix(&self.to_abi(), known);
    }
}

impl Answer for Entry {
    fn flaw(&self, opcode: Opcode) -> Option<&'static str> {
        let looked_up = opcode == Opcode::Lookup;
        match self.node {
            NodeId(0) if looked_up => return None,
            NodeId(0) => {
                return Some("its node is 0, which is none: for what was made there has to be one");
            }
            // As another type the kernel would take the root for stale, and with it the whole mount.
            NodeId::ROOT if !looked_up || !self.attr.is_directory() => {
                return Some("its node is 1, which is the root of the mount: begin with 2");
            }
            _ => {}
        }
        match opcode {
            Opcode::Mkdir if !self.attr.is_directory() => {
                Some("the mode in its attributes is not that of a directory (S_IFDIR)")
            }
            Opcode::Symlink if self.attr.file_type() != 0o120_000 => {
                Some("the mode in its attributes is not that of a symbolic link (S_IFLNK)")
            }
            Opcode::Create | Opcode::Tmpfile if !self.attr.is_file() => {
                Some("the mode in its attributes is not that of a regular file (S_IFREG)")
            }
            _ => self.attr.flaw(),
        }
    }

    fn tells(&mut self, _: NodeId, _: bool, tell: &mut dyn FnMut(NodeId, &Attr, &mut Duration)) {
        if !self.is_negative() {
            tell(self.node, &self.attr, &mut self.attr_valid);
        }
    }

    fn encode(self, encoding: &Encoding, out: &mut Encoder) {
        self.put(encoding, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (4095, 0xfffff)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = Timestamp::from(UNIX_EPOCH - Duration::new(1, 250_000_000));
        assert_eq!(
            time,
            Timestamp {
                seconds: -2,
                nanoseconds: 750_000_000
            }
        );
    }
}
