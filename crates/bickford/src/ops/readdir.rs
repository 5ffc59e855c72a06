//! READDIR and READDIRPLUS.

use bickford_abi::{InHeader, ReadIn};

use super::{Directory, Operation, Protocol, Touched};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Lists names of a directory, from an offset on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Readdir {
    /// The directory.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Zero for the beginning, else the offset of the last name that the caller took.
    pub offset: u64,
    /// How many bytes the listing may take.
    pub size: u32,
}

impl Readdir {
    /// An empty listing to fill.
    #[must_use]
    pub fn listing(&self) -> Directory {
        Directory::new(self.size, false)
    }
}

impl Operation<'_> for Readdir {
    type Answer = Directory;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'_>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let known = if protocol.minor < 9 { 24 } else { usize::MAX };
        let input: ReadIn = body.read_old(known)?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            offset: input.offset,
            size: input.size,
        })
    }

    fn room(&self) -> usize {
        self.size as usize
    }
}

/// Lists names of a directory with their entries, as if each were looked up.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Readdirplus {
    /// The directory.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Zero for the beginning, else the offset of the last name that the caller took.
    pub offset: u64,
    /// How many bytes the listing may take.
    pub size: u32,
}

impl Readdirplus {
    /// An empty listing to fill.
    #[must_use]
    pub fn listing(&self) -> Directory {
        Directory::new(self.size, true)
    }
}

impl Operation<'_> for Readdirplus {
    type Answer = Directory;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'_>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let Readdir {
            node,
            handle,
            offset,
            size,
        } = Readdir::decode(header, body, protocol)?;
        Ok(Self {
            node,
            handle,
            offset,
            size,
        })
    }

    fn room(&self) -> usize {
        self.size as usize
    }

    fn touched(&self, _: &Protocol) -> Touched {
        Touched::Lists
    }
}
