//! WRITE.

use bickford_abi::{COMPAT_WRITE_IN_SIZE, InHeader, InitFlags, WriteFlags, WriteIn, WriteOut};

use super::{Answer, Encoder, Encoding, Operation, Payload, Protocol, Touched};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, LockOwner, NodeId};

/// Writes to an open file (pwrite(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Write<'a> {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// What to write.
    pub data: Payload<'a>,
    /// Flags of open(2) as they are now.
    pub flags: u32,
    /// Whether the data come from the page cache (then the caller is not known), and whether
    /// set-id bits must be cleared.
    pub write_flags: WriteFlags,
    /// Who writes, where that matters for mandatory locks.
    pub lock_owner: Option<LockOwner>,
}

impl<'a> Operation<'a> for Write<'a> {
    type Answer = Written;

    fn decode(
        header: &InHeader,
        body: &mut Cursor<'a>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed> {
        let known = if protocol.minor < 9 {
            COMPAT_WRITE_IN_SIZE
        } else {
            usize::MAX
        };
        let input: WriteIn = body.read_old(known)?;
        let write_flags = WriteFlags::from_bits_retain(input.write_flags);
        let owned = write_flags.contains(WriteFlags::LOCKOWNER);
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            offset: input.offset,
            data: body.payload(input.size as usize)?,
            flags: input.flags,
            write_flags,
            lock_owner: owned.then_some(LockOwner(input.lock_owner)),
        })
    }

    fn to_move(&self) -> u64 {
        self.data.len() as u64
    }

    fn written_back(&self) -> Option<NodeId> {
        let cached = self.write_flags.contains(WriteFlags::CACHE);
        cached.then_some(self.node)
    }

    fn touched(&self, protocol: &Protocol) -> Touched {
        // Of the others the kernel refuses what is older itself, and with its write-back cache it has times of its own.
        let writes_back = protocol.flags.contains(InitFlags::WRITEBACK_CACHE);
        match self.written_back() {
            Some(node) if !writes_back => Touched::changes(node),
            _ => Touched::Nothing,
        }
    }
}

/// How many bytes were written. Of what the kernel writes back from its cache ([`WriteFlags::CACHE`]), fewer
/// than there are become ENOSPC: it would take all as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written(pub u32);

impl Answer for Written {
    fn moved(&self) -> u64 {
        self.0.into()
    }

    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.put(&WriteOut {
            size: self.0,
            padding: 0,
        });
    }
}
