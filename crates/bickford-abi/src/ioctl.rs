//! The `IOCTL` request.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most areas that an [`IoctlOut`] may ask for, input and output together.
pub const IOCTL_MAX_IOV: usize = 256;

/// Input of `IOCTL`; `in_size` bytes follow.
///
/// Kernel: `struct fuse_ioctl_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IoctlIn {
    /// File handle.
    pub fh: u64,
    /// [`IoctlFlags`](crate::IoctlFlags).
    pub flags: u32,
    /// Command.
    pub cmd: u32,
    /// Argument.
    pub arg: u64,
    /// Bytes of input that follow.
    pub in_size: u32,
    /// Room for output in bytes.
    pub out_size: u32,
}

/// One area of the caller's memory, for a retried unrestricted `IOCTL`.
///
/// Kernel: `struct fuse_ioctl_iovec`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IoctlIovec {
    /// Address in the caller.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// Answer to `IOCTL`; output, or [`IoctlIovec`]s with `RETRY`, follow.
///
/// Kernel: `struct fuse_ioctl_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IoctlOut {
    /// Result of ioctl(2).
    pub result: i32,
    /// [`IoctlFlags`](crate::IoctlFlags): 0 or `RETRY`.
    pub flags: u32,
    /// Input areas that follow.
    pub in_iovs: u32,
    /// Output areas that follow.
    pub out_iovs: u32,
}
