//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.

use std::ffi::CStr;

use bickford_abi::{
    COMPAT_SETXATTR_IN_SIZE, GetxattrIn, GetxattrOut, InHeader, InitFlags, SetxattrFlags,
    SetxattrIn,
};

use super::{Answer, Data, Encoder, Encoding, Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Sets an extended attribute (setxattr(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setxattr<'a> {
    /// The inode.
    pub node: NodeId,
    /// The attribute.
    pub name: &'a CStr,
    /// Its value.
    pub value: &'a [u8],
    /// `XATTR_CREATE` (1), `XATTR_REPLACE` (2), or zero.
    pub flags: u32,
    /// Whether the set-group-id bit must be cleared with it.
    pub kill_sgid: bool,
}

impl<'a> Operation<'a> for Setxattr<'a> {
    type Answer = ();

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'a>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let extended = protocol.flags.contains(InitFlags::SETXATTR_EXT);
        let known = if extended {
            usize::MAX
        } else {
            COMPAT_SETXATTR_IN_SIZE
        };
        let input: SetxattrIn = body.read_old(known)?;
        let name = body.text()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            name,
            value: body.bytes(input.size as usize)?,
            flags: input.flags,
            kill_sgid: SetxattrFlags::from_bits_retain(input.setxattr_flags)
                .contains(SetxattrFlags::ACL_KILL_SGID),
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.node)
    }
}

/// Asks for the value of an extended attribute (getxattr(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Getxattr<'a> {
    /// The inode.
    pub node: NodeId,
    /// The attribute.
    pub name: &'a CStr,
    /// Room in bytes; zero asks for the length alone.
    pub size: u32,
}

impl<'a> Operation<'a> for Getxattr<'a> {
    type Answer = XattrAnswer;

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        let input: GetxattrIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            name: body.text()?,
            size: input.size,
        })
    }

    fn room(&self) -> usize {
        xattr_room(self.size)
    }
}

/// Asks for the names of an inode's extended attributes, each with a NUL byte (listxattr(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Listxattr {
    /// The inode.
    pub node: NodeId,
    /// Room in bytes; zero asks for the length alone.
    pub size: u32,
}

impl Operation<'_> for Listxattr {
    type Answer = XattrAnswer;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: GetxattrIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            size: input.size,
        })
    }

    fn room(&self) -> usize {
        xattr_room(self.size)
    }
}

fn xattr_room(size: u32) -> usize {
    match size {
        0 => size_of::<GetxattrOut>(),
        size => size as usize,
    }
}

/// Removes an extended attribute (removexattr(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Removexattr<'a> {
    /// The inode.
    pub node: NodeId,
    /// The attribute.
    pub name: &'a CStr,
}

impl<'a> Operation<'a> for Removexattr<'a> {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            node: NodeId(header.nodeid),
            name: body.text()?,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.node)
    }
}

/// A value or list of names, or its length where that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XattrAnswer {
    /// The length in bytes.
    Length(u32),
    /// The bytes.
    Value(Vec<u8>),
}

impl XattrAnswer {
    /// What getxattr(2) or listxattr(2) answers with room for `size` bytes.
    ///
    /// # Errors
    /// ERANGE when it does not fit.
    pub fn fit(value: Vec<u8>, size: u32) -> Result<Self, rustix::io::Errno> {
        match value.len() {
            length if size == 0 => Ok(Self::Length(u32::try_from(length).unwrap_or(u32::MAX))),
            length if length > size as usize => Err(rustix::io::Errno::RANGE),
            _ => Ok(Self::Value(value)),
        }
    }
}

impl Answer for XattrAnswer {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        match self {
            Self::Length(size) => out.put(&GetxattrOut { size, padding: 0 }),
            Self::Value(value) => out.data(Data::Bytes(value)),
        }
    }
}
