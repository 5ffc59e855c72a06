//! FALLOCATE: allocate or free parts of a file.

use bickford_abi::{FallocateIn, InHeader};

use super::{Operation, Protocol, Touched};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Allocates, frees, zeroes or shifts a range (fallocate(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fallocate {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Flags `FALLOC_FL_*`.
    pub mode: u32,
}

impl Operation<'_> for Fallocate {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: FallocateIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            offset: input.offset,
            length: input.length,
            mode: input.mode,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.node)
    }
}
