//! CREATE and TMPFILE: make a file and open it.

use std::ffi::CStr;
use std::time::Duration;

use bickford_abi::{self as abi, CreateIn, InHeader, Opcode, OpenInFlags};

use super::{Answer, Attr, Encoder, Encoding, Entry, Opened, Operation, Protocol, Touched};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Makes a regular file and opens it (open(2) with `O_CREAT`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Create<'a> {
    /// The directory.
    pub parent: NodeId,
    /// The new name.
    pub name: &'a CStr,
    /// Type and permissions; the umask is applied already unless `DONT_MASK` was negotiated.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Flags of open(2).
    pub flags: u32,
    /// Whether opening must clear set-id bits (`HANDLE_KILLPRIV_V2`).
    pub open_flags: OpenInFlags,
}

impl<'a> Operation<'a> for Create<'a> {
    type Answer = Created;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'a>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let (input, open_flags) = read_create(body, protocol)?;
        Ok(Self {
            parent: NodeId(header.nodeid),
            name: body.child_name()?,
            mode: input.mode,
            umask: input.umask,
            flags: input.flags,
            open_flags,
        })
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::changes(self.parent)
    }
}

fn read_create(
    body: &mut Cursor<'_>,
    protocol: &Protocol,
) -> Result<(CreateIn, OpenInFlags), Malformed> {
    if protocol.minor < 12 {
        let old: abi::OpenIn = body.read()?;
        let input = CreateIn {
            flags: old.flags,
            mode: old.open_flags,
            umask: 0,
            open_flags: 0,
        };
        return Ok((input, OpenInFlags::empty()));
    }
    let input: CreateIn = body.read()?;
    Ok((input, OpenInFlags::from_bits_retain(input.open_flags)))
}

/// Makes an unnamed regular file in a directory and opens it (open(2) with `O_TMPFILE`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Tmpfile {
    /// The directory.
    pub parent: NodeId,
    /// Type and permissions.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Flags of open(2).
    pub flags: u32,
}

impl Operation<'_> for Tmpfile {
    type Answer = Created;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'_>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let (input, _) = read_create(body, protocol)?;
        Ok(Self {
            parent: NodeId(header.nodeid),
            mode: input.mode,
            umask: input.umask,
            flags: input.flags,
        })
    }
}

/// A file that was made and opened. Raises the lookup count of its node by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The new name and inode.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

impl Answer for Created {
    fn flaw(&self, opcode: Opcode) -> Option<&'static str> {
        let flaw = self.entry.flaw(opcode);
        flaw.or_else(|| self.opened.flaw(opcode))
    }

    fn tells(
        &mut self,
        asked: NodeId,
        losing: bool,
        tell: &mut dyn FnMut(NodeId, &Attr, &mut Duration),
    ) {
        self.entry.tells(asked, losing, tell);
    }

    fn encode(self, encoding: &Encoding, out: &mut Encoder) {
        self.entry.put(encoding, out);
        out.put(&self.opened.to_abi());
    }
}
