//! READ.

use bickford_abi::{InHeader, ReadFlags, ReadIn};

use super::{Data, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, LockOwner, NodeId};

/// Reads from an open file (pread(2)). Fewer bytes than asked mean the end of the file, except
/// with direct I/O.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Read {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub size: u32,
    /// Flags of open(2) as they are now.
    pub flags: u32,
    /// Who reads, where that matters for mandatory locks.
    pub lock_owner: Option<LockOwner>,
}

impl Operation<'_> for Read {
    type Answer = Data;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'_>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let known = if protocol.minor < 9 { 24 } else { usize::MAX };
        let input: ReadIn = body.read_old(known)?;
        let owned = ReadFlags::from_bits_retain(input.read_flags).contains(ReadFlags::LOCKOWNER);
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            offset: input.offset,
            size: input.size,
            flags: input.flags,
            lock_owner: owned.then_some(LockOwner(input.lock_owner)),
        })
    }

    fn room(&self) -> usize {
        self.size as usize
    }
}
