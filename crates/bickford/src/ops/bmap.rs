//! BMAP: where a block of a file lies on its device (FIBMAP).

use bickford_abi::{BmapIn, BmapOut, InHeader};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Which device block holds a block of a file. Only asked of mounts of a block device
/// ([`MountOptions::block_device`](crate::MountOptions::block_device)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bmap {
    /// The file.
    pub node: NodeId,
    /// Number of the block within the file.
    pub block: u64,
    /// Bytes of a block.
    pub block_size: u32,
}

impl Operation<'_> for Bmap {
    type Answer = Block;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: BmapIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            block: input.block,
            block_size: input.blocksize,
        })
    }
}

/// Number of a block on its device; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block(pub u64);

impl Answer for Block {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.put(&BmapOut { block: self.0 });
    }
}
