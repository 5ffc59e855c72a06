//! UNLINK and RMDIR: remove a name.

use std::ffi::CStr;

use bickford_abi::InHeader;

use super::{Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Removes a name of anything but a directory (unlink(2)). The inode stays until it is forgotten.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unlink<'a> {
    /// The directory.
    pub parent: NodeId,
    /// The name.
    pub name: &'a CStr,
}

impl<'a> Operation<'a> for Unlink<'a> {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            parent: NodeId(header.nodeid),
            name: body.child_name()?,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::Changes {
            nodes: [self.parent, NodeId(0)],
            removes: true,
        }
    }
}

/// Removes an empty directory (rmdir(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rmdir<'a> {
    /// The directory that it is in.
    pub parent: NodeId,
    /// The name.
    pub name: &'a CStr,
}

impl<'a> Operation<'a> for Rmdir<'a> {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            parent: NodeId(header.nodeid),
            name: body.child_name()?,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.parent)
    }
}
