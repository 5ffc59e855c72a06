//! COPY_FILE_RANGE and COPY_FILE_RANGE_64: copy within the file system.

use bickford_abi::{CopyFileRangeIn, CopyFileRangeOut, InHeader, Opcode, WriteOut};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Copies a range from one open file to another (copy_file_range(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CopyFileRange {
    /// The file that is read.
    pub node_in: NodeId,
    /// Its handle.
    pub handle_in: FileHandle,
    /// Where reading begins, in bytes.
    pub offset_in: u64,
    /// The file that is written.
    pub node_out: NodeId,
    /// Its handle.
    pub handle_out: FileHandle,
    /// Where writing begins, in bytes.
    pub offset_out: u64,
    /// How many bytes.
    pub length: u64,
    /// No flags exist yet.
    pub flags: u64,
}

impl Operation<'_> for CopyFileRange {
    type Answer = Copied;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: CopyFileRangeIn = body.read()?;
        Ok(Self {
            node_in: NodeId(header.nodeid),
            handle_in: FileHandle(input.fh_in),
            offset_in: input.off_in,
            node_out: NodeId(input.nodeid_out),
            handle_out: FileHandle(input.fh_out),
            offset_out: input.off_out,
            length: input.len,
            flags: input.flags,
        })
    }

    fn to_move(&self) -> u64 {
        self.length
    }
}

/// How many bytes were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied(pub u64);

impl Answer for Copied {
    fn moved(&self) -> u64 {
        self.0
    }

    fn encode(self, encoding: &Encoding, out: &mut Encoder) {
        if encoding.opcode == Opcode::CopyFileRange64 {
            out.put(&CopyFileRangeOut {
                bytes_copied: self.0,
            });
        } else {
            let size = u32::try_from(self.0).unwrap_or(u32::MAX);
            out.put(&WriteOut { size, padding: 0 });
        }
    }
}
