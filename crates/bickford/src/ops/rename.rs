//! RENAME and RENAME2.

use std::ffi::CStr;

use bickford_abi::{InHeader, Opcode, Rename2In, RenameIn};
use rustix::fs::RenameFlags;

use super::{Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Renames (renameat2(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rename<'a> {
    /// The directory of the old name.
    pub parent: NodeId,
    /// The old name.
    pub name: &'a CStr,
    /// The directory of the new name.
    pub new_parent: NodeId,
    /// The new name.
    pub new_name: &'a CStr,
    /// `NOREPLACE`, `EXCHANGE`, `WHITEOUT`. What is not supported must be refused with EINVAL.
    pub flags: RenameFlags,
}

impl<'a> Operation<'a> for Rename<'a> {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        let (new_parent, flags) = if header.opcode == Opcode::Rename2 as u32 {
            let input: Rename2In = body.read()?;
            (input.newdir, input.flags)
        } else {
            (body.read::<RenameIn>()?.newdir, 0)
        };
        let name = body.child_name()?;
        Ok(Self {
            parent: NodeId(header.nodeid),
            name,
            new_parent: NodeId(new_parent),
            new_name: body.child_name()?,
            flags: RenameFlags::from_bits_retain(flags),
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::Changes {
            nodes: [self.parent, self.new_parent],
            removes: !self
                .flags
                .intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE),
        }
    }
}
