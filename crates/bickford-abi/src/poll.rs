//! The `POLL` request.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Input of `POLL`.
///
/// Kernel: `struct fuse_poll_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PollIn {
    /// File handle.
    pub fh: u64,
    /// Kernel's handle for a later poll wakeup notification.
    pub kh: u64,
    /// [`PollFlags`](crate::PollFlags).
    pub flags: u32,
    /// Events asked for (`POLL*`).
    pub events: u32,
}

/// Answer to `POLL`.
///
/// Kernel: `struct fuse_poll_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PollOut {
    /// Events ready.
    pub revents: u32,
    /// Unused.
    pub padding: u32,
}
