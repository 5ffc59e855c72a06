//! LSEEK: find data and holes.

use bickford_abi::{InHeader, LseekIn, LseekOut};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Finds data or a hole (lseek(2) with `SEEK_DATA` or `SEEK_HOLE`); other seeks stay in the kernel.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lseek {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// `SEEK_DATA` (3) or `SEEK_HOLE` (4).
    pub whence: u32,
}

impl Operation<'_> for Lseek {
    type Answer = Offset;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: LseekIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            offset: input.offset,
            whence: input.whence,
        })
    }
}

/// An offset in a file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset(pub u64);

impl Answer for Offset {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.put(&LseekOut { offset: self.0 });
    }
}
