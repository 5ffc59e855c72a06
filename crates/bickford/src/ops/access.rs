//! ACCESS: may the caller use this inode so? (access(2))

use bickford_abi::{AccessIn, InHeader};

use super::{Operation, Protocol};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Whether the caller may use an inode so. Not asked with `default_permissions`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Access {
    /// The inode.
    pub node: NodeId,
    /// `F_OK`, or `R_OK`, `W_OK` and `X_OK` together.
    pub mask: u32,
}

impl Operation<'_> for Access {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: AccessIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            mask: input.mask,
        })
    }
}
