//! MKNOD, MKDIR and SYMLINK: make an inode.

use std::ffi::CStr;

use bickford_abi::{COMPAT_MKNOD_IN_SIZE, InHeader, MkdirIn, MknodIn};

use super::{Entry, Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Makes a regular file, device node, FIFO or socket (mknod(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Mknod<'a> {
    /// The directory.
    pub parent: NodeId,
    /// The new name.
    pub name: &'a CStr,
    /// Type and permissions; the umask is applied already unless `DONT_MASK` was negotiated.
    pub mode: u32,
    /// Device number in the kernel's 32-bit form, for device nodes.
    pub rdev: u32,
    /// The caller's umask.
    pub umask: u32,
}

impl<'a> Operation<'a> for Mknod<'a> {
    type Answer = Entry;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'a>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let known = if protocol.minor < 12 {
            COMPAT_MKNOD_IN_SIZE
        } else {
            usize::MAX
        };
        let input: MknodIn = body.read_old(known)?;
        Ok(Self {
            parent: NodeId(header.nodeid),
            name: body.child_name()?,
            mode: input.mode,
            rdev: input.rdev,
            umask: input.umask,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.parent)
    }
}

/// Makes a directory (mkdir(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Mkdir<'a> {
    /// The directory that the new one is in.
    pub parent: NodeId,
    /// The new name.
    pub name: &'a CStr,
    /// Permissions; the umask is applied already unless `DONT_MASK` was negotiated.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

impl<'a> Operation<'a> for Mkdir<'a> {
    type Answer = Entry;

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        let input: MkdirIn = body.read()?;
        Ok(Self {
            parent: NodeId(header.nodeid),
            name: body.child_name()?,
            mode: input.mode,
            umask: input.umask,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.parent)
    }
}

/// Makes a symbolic link (symlink(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Symlink<'a> {
    /// The directory.
    pub parent: NodeId,
    /// The new name.
    pub name: &'a CStr,
    /// What the link says.
    pub target: &'a CStr,
}

impl<'a> Operation<'a> for Symlink<'a> {
    type Answer = Entry;

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        let name = body.child_name()?;
        Ok(Self {
            parent: NodeId(header.nodeid),
            name,
            target: body.text()?,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.parent)
    }
}
