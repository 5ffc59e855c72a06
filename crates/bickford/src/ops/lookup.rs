//! LOOKUP: from a name to an inode.

use std::ffi::CStr;

use bickford_abi::InHeader;

use super::{Entry, Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Finds a name in a directory. With an export over NFS the name may be `.` or `..`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lookup<'a> {
    /// The directory.
    pub parent: NodeId,
    /// The name.
    pub name: &'a CStr,
}

impl<'a> Operation<'a> for Lookup<'a> {
    type Answer = Entry;

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            parent: NodeId(header.nodeid),
            name: body.name()?,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::Finds
    }
}
