//! OPEN and OPENDIR.

use bickford_abi::{InHeader, Opcode, OpenIn, OpenInFlags, OpenOut, OpenOutFlags};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Opens a file (open(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Open {
    /// The file.
    pub node: NodeId,
    /// Flags of open(2), without `O_CREAT` and `O_EXCL`; `O_TRUNC` only with `ATOMIC_O_TRUNC`.
    pub flags: u32,
    /// Whether opening must clear set-id bits (`HANDLE_KILLPRIV_V2`).
    pub open_flags: OpenInFlags,
}

impl Operation<'_> for Open {
    type Answer = Opened;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: OpenIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            flags: input.flags,
            open_flags: OpenInFlags::from_bits_retain(input.open_flags),
        })
    }
}

/// Opens a directory (opendir(3)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Opendir {
    /// The directory.
    pub node: NodeId,
    /// Flags of open(2).
    pub flags: u32,
}

impl Operation<'_> for Opendir {
    type Answer = Opened;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: OpenIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            flags: input.flags,
        })
    }
}

/// An open file (`struct fuse_open_out`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Comes back with each operation on the open file.
    pub handle: FileHandle,
    /// How the kernel is to treat it.
    pub flags: OpenOutFlags,
    /// The backing file to read and write, with [`OpenOutFlags::PASSTHROUGH`], beside which the kernel takes no
    /// flags but `DIRECT_IO`, `PARALLEL_DIRECT_WRITES` and `NOFLUSH`.
    pub backing_id: i32,
}

impl Opened {
    /// An open file with default treatment.
    #[must_use]
    pub fn new(handle: FileHandle) -> Self {
        Self {
            handle,
            ..Self::default()
        }
    }

    pub(crate) fn to_abi(self) -> OpenOut {
        OpenOut {
            fh: self.handle.0,
            open_flags: self.flags.bits(),
            backing_id: self.backing_id,
        }
    }
}

impl Answer for Opened {
    fn flaw(&self, opcode: Opcode) -> Option<&'static str> {
        let passthrough = self.flags.contains(OpenOutFlags::PASSTHROUGH);
        if opcode == Opcode::Opendir || !passthrough {
            return None;
        }
        if self.backing_id <= 0 {
            return Some("it has FOPEN_PASSTHROUGH and no backing file");
        }
        let with_it = OpenOutFlags::PASSTHROUGH
            | OpenOutFlags::DIRECT_IO
            | OpenOutFlags::PARALLEL_DIRECT_WRITES
            | OpenOutFlags::NOFLUSH;
        (!with_it.contains(self.flags)).then_some(
            "it has FOPEN_PASSTHROUGH and more than FOPEN_DIRECT_IO, FOPEN_PARALLEL_DIRECT_WRITES and FOPEN_NOFLUSH beside",
        )
    }

    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.put(&self.to_abi());
    }
}
