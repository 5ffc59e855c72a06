//! LINK: another name for an inode.

use std::ffi::CStr;

use bickford_abi::{InHeader, LinkIn};

use super::{Entry, Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Gives an inode another name (link(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Link<'a> {
    /// The inode.
    pub node: NodeId,
    /// The directory of the new name.
    pub new_parent: NodeId,
    /// The new name.
    pub new_name: &'a CStr,
}

impl<'a> Operation<'a> for Link<'a> {
    type Answer = Entry;

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        let input: LinkIn = body.read()?;
        Ok(Self {
            node: NodeId(input.oldnodeid),
            new_parent: NodeId(header.nodeid),
            new_name: body.child_name()?,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.new_parent)
    }
}
