//! SETATTR: change attributes of an inode.

use bickford_abi::{InHeader, InitFlags, SetattrIn, SetattrValid};

use super::{Attributes, Operation, Protocol, Timestamp, Touched};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, LockOwner, NodeId};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which it is set (`UTIME_NOW`).
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes attributes (chmod(2), chown(2), truncate(2), utimensat(2)); what is `None` stays.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setattr {
    /// The inode.
    pub node: NodeId,
    /// The open file through which it is changed, if any.
    pub handle: Option<FileHandle>,
    /// New permissions (with the type, which stays).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New time of the last access.
    pub accessed: Option<SetTime>,
    /// New time of the last change of the contents.
    pub modified: Option<SetTime>,
    /// New time of the last change of the inode; only sent with a write-back cache.
    pub changed: Option<Timestamp>,
    /// Who changes the size, where that matters for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// Whether set-id bits must be cleared with the change (`HANDLE_KILLPRIV_V2`).
    pub kill_suidgid: bool,
}

impl Operation<'_> for Setattr {
    type Answer = Attributes;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: SetattrIn = body.read()?;
        let valid = SetattrValid::from_bits_retain(input.valid);
        let has = |flag| valid.contains(flag);
        let time = |seconds: u64, nanoseconds| Timestamp {
            seconds: seconds.cast_signed(),
            nanoseconds,
        };
        let set = |flag, now, at| match () {
            () if has(now) => Some(SetTime::Now),
            () if has(flag) => Some(SetTime::At(at)),
            () => None,
        };
        let accessed = time(input.atime, input.atimensec);
        let modified = time(input.mtime, input.mtimensec);
        let changed = time(input.ctime, input.ctimensec);
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: has(SetattrValid::FH).then_some(FileHandle(input.fh)),
            mode: has(SetattrValid::MODE).then_some(input.mode),
            uid: has(SetattrValid::UID).then_some(input.uid),
            gid: has(SetattrValid::GID).then_some(input.gid),
            size: has(SetattrValid::SIZE).then_some(input.size),
            accessed: set(SetattrValid::ATIME, SetattrValid::ATIME_NOW, accessed),
            modified: set(SetattrValid::MTIME, SetattrValid::MTIME_NOW, modified),
            changed: has(SetattrValid::CTIME).then_some(changed),
            lock_owner: has(SetattrValid::LOCKOWNER).then_some(LockOwner(input.lock_owner)),
            kill_suidgid: has(SetattrValid::KILL_SUIDGID),
        })
    }

    fn touched(&self, protocol: &Protocol) -> Touched {
        // The kernel writes back times of its own, and takes no attributes for that. With its write-back cache it takes
        // no times from others either.
        let writes_back = protocol.flags.contains(InitFlags::WRITEBACK_CACHE);
        match self.changed {
            Some(_) if !writes_back => Touched::changes(self.node),
            _ => Touched::Nothing,
        }
    }
}
