//! FSYNC and FSYNCDIR: put what was written on stable storage.

use bickford_abi::{FsyncFlags, FsyncIn, InHeader};

use super::{Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Puts a file on stable storage (fsync(2), fdatasync(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fsync {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Whether the data are enough (fdatasync(2)).
    pub data_only: bool,
}

impl Operation<'_> for Fsync {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: FsyncIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            data_only: FsyncFlags::from_bits_retain(input.fsync_flags)
                .contains(FsyncFlags::FDATASYNC),
        })
    }
}

/// Puts a directory on stable storage.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fsyncdir {
    /// The directory.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Whether the entries are enough (fdatasync(2)).
    pub data_only: bool,
}

impl Operation<'_> for Fsyncdir {
    type Answer = ();

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'_>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let Fsync {
            node,
            handle,
            data_only,
        } = Fsync::decode(header, body, protocol)?;
        Ok(Self {
            node,
            handle,
            data_only,
        })
    }
}
