//! STATX: attributes that stat(2) does not have.

use std::time::Duration;

use bickford_abi::{self as abi, GetattrFlags, InHeader, Opcode, StatxIn, StatxOut, SxTime};

use super::{
    Answer, Attr, Encoder, Encoding, Operation, Protocol, Timestamp, Touched, decode_device,
};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Asks for the attributes of an inode with its time of birth (statx(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Statx {
    /// The inode.
    pub node: NodeId,
    /// The open file that is asked about, if any.
    pub handle: Option<FileHandle>,
    /// Flags `AT_STATX_*`.
    pub flags: u32,
    /// Fields that are of interest (`STATX_*`).
    pub mask: u32,
}

impl Operation<'_> for Statx {
    type Answer = StatxAnswer;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: StatxIn = body.read()?;
        let flags = GetattrFlags::from_bits_retain(input.getattr_flags);
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: flags
                .contains(GetattrFlags::FH)
                .then_some(FileHandle(input.fh)),
            flags: input.sx_flags,
            mask: input.sx_mask,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::Asks
    }
}

/// Attributes with the time of birth (`struct fuse_statx_out`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatxAnswer {
    /// The attributes that stat(2) has.
    pub attr: Attr,
    /// When the inode was made, where that is known.
    pub born: Option<Timestamp>,
    /// How long the attributes stay right.
    pub valid: Duration,
}

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

impl Answer for StatxAnswer {
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
        let time = |time: Timestamp| SxTime {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds,
            ..SxTime::default()
        };
        let (major, minor) = decode_device(self.attr.rdev);
        let born = if self.born.is_some() { STATX_BTIME } else { 0 };
        let stat = abi::Statx {
            mask: STATX_BASIC_STATS | born,
            blksize: self.attr.block_size,
            nlink: self.attr.links,
            uid: self.attr.uid,
            gid: self.attr.gid,
            mode: (self.attr.mode & 0xffff) as u16,
            ino: self.attr.ino,
            size: self.attr.size,
            blocks: self.attr.blocks,
            atime: time(self.attr.accessed),
            btime: time(self.born.unwrap_or_default()),
            ctime: time(self.attr.changed),
            mtime: time(self.attr.modified),
            rdev_major: major,
            rdev_minor: minor,
            ..abi::Statx::default()
        };
        let valid = encoding.attributes_valid(self.valid);
        out.put(&StatxOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            stat,
            ..StatxOut::default()
        });
    }
}
