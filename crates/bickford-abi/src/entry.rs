//! Names and nodes: `LOOKUP`, `FORGET`, and what makes, moves and links names.

use crate::Attr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`EntryOut`] before 7.9.
pub const COMPAT_ENTRY_OUT_SIZE: usize = 120;
/// Bytes of [`MknodIn`] before 7.12.
pub const COMPAT_MKNOD_IN_SIZE: usize = 8;

/// A node found or made: answers `LOOKUP`, `MKNOD`, `MKDIR`, `SYMLINK`, `LINK`, and begins
/// `CREATE`'s.
///
/// Kernel: `struct fuse_entry_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct EntryOut {
    /// Node id; 0 is a negative entry, cached for `entry_valid`.
    pub nodeid: u64,
    /// Generation; node id and generation together never repeat.
    pub generation: u64,
    /// Seconds for which the name may be cached.
    pub entry_valid: u64,
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds added to `entry_valid`.
    pub entry_valid_nsec: u32,
    /// Nanoseconds added to `attr_valid`.
    pub attr_valid_nsec: u32,
    /// The attributes.
    pub attr: Attr,
}

/// Input of `FORGET`.
///
/// Kernel: `struct fuse_forget_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ForgetIn {
    /// Lookups to take off the node's count.
    pub nlookup: u64,
}

/// One element of `BATCH_FORGET`.
///
/// Kernel: `struct fuse_forget_one`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ForgetOne {
    /// Node to forget.
    pub nodeid: u64,
    /// Lookups to take off the node's count.
    pub nlookup: u64,
}

/// Input of `BATCH_FORGET`; `count` [`ForgetOne`] follow.
///
/// Kernel: `struct fuse_batch_forget_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BatchForgetIn {
    /// Number of elements.
    pub count: u32,
    /// Unused.
    pub dummy: u32,
}

/// Input of `MKNOD`; the name follows.
///
/// Kernel: `struct fuse_mknod_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MknodIn {
    /// File type and permissions, the umask applied unless `DONT_MASK`.
    pub mode: u32,
    /// Device number.
    pub rdev: u32,
    /// Umask of the caller.
    pub umask: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `MKDIR`; the name follows.
///
/// Kernel: `struct fuse_mkdir_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MkdirIn {
    /// Permissions, the umask applied unless `DONT_MASK`.
    pub mode: u32,
    /// Umask of the caller.
    pub umask: u32,
}

/// Input of `RENAME`; the old and the new name follow.
///
/// Kernel: `struct fuse_rename_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RenameIn {
    /// Node id of the new parent.
    pub newdir: u64,
}

/// Input of `RENAME2`; the old and the new name follow.
///
/// Kernel: `struct fuse_rename2_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Rename2In {
    /// Node id of the new parent.
    pub newdir: u64,
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    pub flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `LINK`; the new name follows.
///
/// Kernel: `struct fuse_link_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LinkIn {
    /// Node that gets another name.
    pub oldnodeid: u64,
}
