//! FLUSH: a descriptor of an open file was closed.

use bickford_abi::{FlushIn, InHeader};

use super::{Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, LockOwner, NodeId};

/// A descriptor was closed (close(2)); others of the same open file may remain. Its error reaches
/// the caller of close.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Flush {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Whose record locks end.
    pub lock_owner: LockOwner,
}

impl Operation<'_> for Flush {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: FlushIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            lock_owner: LockOwner(input.lock_owner),
        })
    }
}
