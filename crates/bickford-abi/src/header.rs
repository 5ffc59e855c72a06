//! Headers of requests and replies, and protocol-wide constants.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub const KERNEL_VERSION: u32 = 7;
/// Minor version that this crate describes.
pub const MINOR_VERSION: u32 = 45;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Smallest buffer, in bytes, that a read of `/dev/fuse` accepts.
pub const MIN_READ_BUFFER: usize = 8192;
/// Set in `unique` of a request that was sent before and is sent again after
/// [`NotifyCode::Resend`](crate::NotifyCode::Resend); the reply repeats it.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// User or group id sent where the caller's has no meaning in the mount (since 7.41).
pub const INVALID_UIDGID: u32 = u32::MAX;

/// Begins every request read from the kernel.
///
/// Kernel: `struct fuse_in_header`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct InHeader {
    /// Length of the whole request in bytes, this header included.
    pub len: u32,
    /// Operation asked for; see [`Opcode`](crate::Opcode).
    pub opcode: u32,
    /// Identifies the request; repeated in the reply.
    pub unique: u64,
    /// Node the operation acts on; 0 where it acts on none.
    pub nodeid: u64,
    /// File system user id of the caller.
    pub uid: u32,
    /// File system group id of the caller.
    pub gid: u32,
    /// Process id of the caller as seen by the server; 0 when unknown.
    pub pid: u32,
    /// Length of the extensions at the end, in units of 8 bytes (since 7.38).
    pub total_extlen: u16,
    /// Unused.
    pub padding: u16,
}

/// Begins every reply and every notification written to the kernel.
///
/// Kernel: `struct fuse_out_header`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct OutHeader {
    /// Length of the whole reply in bytes, this header included.
    pub len: u32,
    /// 0, or a negated errno; for a notification the positive [`NotifyCode`](crate::NotifyCode).
    pub error: i32,
    /// The request answered; 0 marks a notification.
    pub unique: u64,
}
