//! File locks and interrupted requests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A lock.
///
/// Kernel: `struct fuse_file_lock`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `OFFSET_MAX` is the end of the file.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub r#type: u32,
    /// Process id of the holder (thread group).
    pub pid: u32,
}

/// Input of `GETLK`, `SETLK` and `SETLKW`.
///
/// Kernel: `struct fuse_lk_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LkIn {
    /// File handle.
    pub fh: u64,
    /// Lock owner.
    pub owner: u64,
    /// The lock.
    pub lk: FileLock,
    /// [`LockFlags`](crate::LockFlags).
    pub lk_flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to `GETLK`.
///
/// Kernel: `struct fuse_lk_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LkOut {
    /// The lock in the way, or `F_UNLCK`.
    pub lk: FileLock,
}

/// Input of `INTERRUPT`.
///
/// Kernel: `struct fuse_interrupt_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct InterruptIn {
    /// The request to interrupt.
    pub unique: u64,
}
