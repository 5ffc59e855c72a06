//! Extended attributes of files.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`SetxattrIn`] sent unless `SETXATTR_EXT` was negotiated.
pub const COMPAT_SETXATTR_IN_SIZE: usize = 8;

/// Input of `SETXATTR`; name and value follow. Without `SETXATTR_EXT` only
/// [`COMPAT_SETXATTR_IN_SIZE`] bytes are sent.
///
/// Kernel: `struct fuse_setxattr_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SetxattrIn {
    /// Bytes of value.
    pub size: u32,
    /// `XATTR_CREATE` or `XATTR_REPLACE`.
    pub flags: u32,
    /// [`SetxattrFlags`](crate::SetxattrFlags).
    pub setxattr_flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `GETXATTR` (the name follows) and `LISTXATTR`.
///
/// Kernel: `struct fuse_getxattr_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct GetxattrIn {
    /// Room for the answer in bytes; 0 asks for the size, answered by [`GetxattrOut`].
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to `GETXATTR` and `LISTXATTR` of size 0.
///
/// Kernel: `struct fuse_getxattr_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct GetxattrOut {
    /// Bytes of the value or list.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}
