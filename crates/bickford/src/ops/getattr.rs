//! GETATTR: attributes of an inode.

use bickford_abi::{GetattrFlags, GetattrIn, InHeader};

use super::{Attributes, Operation, Protocol, Touched};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Asks for the attributes of an inode (stat(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Getattr {
    /// The inode.
    pub node: NodeId,
    /// The open file that is asked about, if any (fstat(2)).
    pub handle: Option<FileHandle>,
}

impl Operation<'_> for Getattr {
    type Answer = Attributes;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'_>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let node = NodeId(header.nodeid);
        if protocol.minor < 9 {
            return Ok(Self { node, handle: None });
        }
        let input: GetattrIn = body.read()?;
        let flags = GetattrFlags::from_bits_retain(input.getattr_flags);
        let handle = flags
            .contains(GetattrFlags::FH)
            .then_some(FileHandle(input.fh));
        Ok(Self { node, handle })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::Asks
    }
}
