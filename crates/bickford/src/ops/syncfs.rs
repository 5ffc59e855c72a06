//! SYNCFS: put the whole file system on stable storage.

use bickford_abi::InHeader;

use super::{Operation, Protocol};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Puts everything on stable storage (syncfs(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Syncfs {
    /// The root of the file system.
    pub node: NodeId,
}

impl Operation<'_> for Syncfs {
    type Answer = ();

    fn decode(header: &InHeader, _: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            node: NodeId(header.nodeid),
        })
    }
}
