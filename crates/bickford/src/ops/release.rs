//! RELEASE and RELEASEDIR: the last descriptor of an open file is gone.

use bickford_abi::{InHeader, ReleaseFlags, ReleaseIn};

use super::{Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, LockOwner, NodeId};

/// An open file ends; its handle does not come again. The answer reaches nobody.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Release {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Flags of open(2).
    pub flags: u32,
    /// Whose flock lock ends, where [`Release::flock`] says so; else zero.
    pub lock_owner: LockOwner,
    /// Whether flock locks of this open file end.
    pub flock: bool,
}

impl Operation<'_> for Release {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: ReleaseIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            flags: input.flags,
            lock_owner: LockOwner(input.lock_owner),
            flock: ReleaseFlags::from_bits_retain(input.release_flags)
                .contains(ReleaseFlags::FLOCK_UNLOCK),
        })
    }
}

/// An open directory ends.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Releasedir {
    /// The directory.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
}

impl Operation<'_> for Releasedir {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: ReleaseIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
        })
    }
}
