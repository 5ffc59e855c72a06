//! GETLK, SETLK and SETLKW: record locks and flock.

use bickford_abi::{FileLock, InHeader, LkIn, LkOut, LockFlags, Opcode};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, LockOwner, NodeId};

/// Whether a lock is shared, exclusive, or to be given up (`F_RDLCK`, `F_WRLCK`, `F_UNLCK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// No lock.
    Unlock,
}

/// A lock on a range of a file (`struct fuse_file_lock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` means to the end, however long the file gets.
    pub end: u64,
    /// The kind.
    pub kind: LockKind,
    /// The process that holds it.
    pub pid: u32,
}

const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

impl Lock {
    /// No lock.
    #[must_use]
    pub fn none() -> Self {
        Self {
            start: 0,
            end: 0,
            kind: LockKind::Unlock,
            pid: 0,
        }
    }

    fn from_abi(lock: &FileLock) -> Result<Self, Malformed> {
        let kind = match lock.r#type {
            F_RDLCK => LockKind::Read,
            F_WRLCK => LockKind::Write,
            F_UNLCK => LockKind::Unlock,
            other => {
                return Err(Malformed::Length {
                    said: u64::from(other),
                    held: 2,
                });
            }
        };
        Ok(Self {
            start: lock.start,
            end: lock.end,
            kind,
            pid: lock.pid,
        })
    }
}

impl Answer for Lock {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        let kind = match self.kind {
            LockKind::Read => F_RDLCK,
            LockKind::Write => F_WRLCK,
            LockKind::Unlock => F_UNLCK,
        };
        let lk = FileLock {
            start: self.start,
            end: self.end,
            r#type: kind,
            pid: self.pid,
        };
        out.put(&LkOut { lk });
    }
}

/// Asks for a lock that stands in the way of this one (fcntl(2) `F_GETLK`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Getlk {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Who asks.
    pub owner: LockOwner,
    /// The lock that is wanted.
    pub lock: Lock,
}

impl Operation<'_> for Getlk {
    type Answer = Lock;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: LkIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            owner: LockOwner(input.owner),
            lock: Lock::from_abi(&input.lk)?,
        })
    }
}

/// Takes or gives up a lock (fcntl(2) `F_SETLK`, `F_SETLKW`, and flock(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setlk {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Whose lock it is.
    pub owner: LockOwner,
    /// The lock.
    pub lock: Lock,
    /// Whether this is flock(2), which is a lock of the open file as a whole.
    pub flock: bool,
    /// Whether to wait until it can be had. Answer later, and EINTR when interrupted.
    pub wait: bool,
}

impl Operation<'_> for Setlk {
    type Answer = ();

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: LkIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            owner: LockOwner(input.owner),
            lock: Lock::from_abi(&input.lk)?,
            flock: LockFlags::from_bits_retain(input.lk_flags).contains(LockFlags::FLOCK),
            wait: header.opcode == Opcode::Setlkw as u32,
        })
    }
}
