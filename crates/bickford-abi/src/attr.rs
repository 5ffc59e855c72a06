//! Attributes: `GETATTR`, `SETATTR`, `STATX`, `STATFS`, `ACCESS`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`AttrOut`] before 7.9.
pub const COMPAT_ATTR_OUT_SIZE: usize = 96;
/// Bytes of [`StatfsOut`] before 7.4.
pub const COMPAT_STATFS_SIZE: usize = 48;

/// Attributes of a node.
///
/// Kernel: `struct fuse_attr`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Attr {
    /// Inode number shown to applications.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of 512 bytes allocated.
    pub blocks: u64,
    /// Last access, seconds since the epoch (signed).
    pub atime: u64,
    /// Last modification, seconds since the epoch (signed).
    pub mtime: u64,
    /// Last status change, seconds since the epoch (signed).
    pub ctime: u64,
    /// Nanoseconds of `atime`.
    pub atimensec: u32,
    /// Nanoseconds of `mtime`.
    pub mtimensec: u32,
    /// Nanoseconds of `ctime`.
    pub ctimensec: u32,
    /// File type and permissions, as `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Preferred block size for I/O in bytes; 0 takes the mount's.
    pub blksize: u32,
    /// [`AttrFlags`](crate::AttrFlags) (since 7.32; padding before).
    pub flags: u32,
}

/// Answer to `GETATTR` and `SETATTR`.
///
/// Kernel: `struct fuse_attr_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AttrOut {
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds added to `attr_valid`.
    pub attr_valid_nsec: u32,
    /// Unused.
    pub dummy: u32,
    /// The attributes.
    pub attr: Attr,
}

/// Input of `GETATTR`; absent before 7.9.
///
/// Kernel: `struct fuse_getattr_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct GetattrIn {
    /// [`GetattrFlags`](crate::GetattrFlags).
    pub getattr_flags: u32,
    /// Unused.
    pub dummy: u32,
    /// Open file handle, valid with `FH`.
    pub fh: u64,
}

/// Input of `SETATTR`.
///
/// Kernel: `struct fuse_setattr_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SetattrIn {
    /// [`SetattrValid`](crate::SetattrValid): which fields are to be set.
    pub valid: u32,
    /// Unused.
    pub padding: u32,
    /// Open file handle, valid with `FH`.
    pub fh: u64,
    /// New size in bytes.
    pub size: u64,
    /// Owner of locks, valid with `LOCKOWNER`.
    pub lock_owner: u64,
    /// New access time, seconds.
    pub atime: u64,
    /// New modification time, seconds.
    pub mtime: u64,
    /// New change time, seconds.
    pub ctime: u64,
    /// Nanoseconds of `atime`.
    pub atimensec: u32,
    /// Nanoseconds of `mtime`.
    pub mtimensec: u32,
    /// Nanoseconds of `ctime`.
    pub ctimensec: u32,
    /// New mode.
    pub mode: u32,
    /// Unused.
    pub unused4: u32,
    /// New owner.
    pub uid: u32,
    /// New group.
    pub gid: u32,
    /// Unused.
    pub unused5: u32,
}

/// A time stamp of [`Statx`].
///
/// Kernel: `struct fuse_sx_time`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SxTime {
    /// Seconds since the epoch.
    pub tv_sec: i64,
    /// Nanoseconds.
    pub tv_nsec: u32,
    /// Reserved.
    pub __reserved: i32,
}

/// Extended attributes of a node, laid out as `struct statx`.
///
/// Kernel: `struct fuse_statx`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Statx {
    /// Fields that are filled in (`STATX_*`).
    pub mask: u32,
    /// Preferred block size for I/O in bytes.
    pub blksize: u32,
    /// Attributes set (`STATX_ATTR_*`).
    pub attributes: u64,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// File type and permissions.
    pub mode: u16,
    /// Reserved.
    pub __spare0: [u16; 1],
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of 512 bytes allocated.
    pub blocks: u64,
    /// Attributes that the file system supports.
    pub attributes_mask: u64,
    /// Last access.
    pub atime: SxTime,
    /// Creation.
    pub btime: SxTime,
    /// Last status change.
    pub ctime: SxTime,
    /// Last modification.
    pub mtime: SxTime,
    /// Major number of a device node.
    pub rdev_major: u32,
    /// Minor number of a device node.
    pub rdev_minor: u32,
    /// Major number of the device that holds the file.
    pub dev_major: u32,
    /// Minor number of the device that holds the file.
    pub dev_minor: u32,
    /// Reserved.
    pub __spare2: [u64; 14],
}

/// Input of `STATX`.
///
/// Kernel: `struct fuse_statx_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct StatxIn {
    /// [`GetattrFlags`](crate::GetattrFlags).
    pub getattr_flags: u32,
    /// Unused.
    pub reserved: u32,
    /// Open file handle, valid with `FH`.
    pub fh: u64,
    /// Synchronisation wanted (`AT_STATX_*`).
    pub sx_flags: u32,
    /// Fields wanted (`STATX_*`).
    pub sx_mask: u32,
}

/// Answer to `STATX`.
///
/// Kernel: `struct fuse_statx_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct StatxOut {
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds added to `attr_valid`.
    pub attr_valid_nsec: u32,
    /// [`AttrFlags`](crate::AttrFlags).
    pub flags: u32,
    /// Reserved.
    pub spare: [u64; 2],
    /// The attributes.
    pub stat: Statx,
}

/// File system statistics.
///
/// Kernel: `struct fuse_kstatfs`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Kstatfs {
    /// Blocks in total, in units of `frsize`.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Blocks free to unprivileged users.
    pub bavail: u64,
    /// Inodes in total.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred block size for I/O in bytes.
    pub bsize: u32,
    /// Longest file name in bytes.
    pub namelen: u32,
    /// Fragment size in bytes.
    pub frsize: u32,
    /// Unused.
    pub padding: u32,
    /// Reserved.
    pub spare: [u32; 6],
}

/// Answer to `STATFS`.
///
/// Kernel: `struct fuse_statfs_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct StatfsOut {
    /// The statistics.
    pub st: Kstatfs,
}

/// Input of `ACCESS`.
///
/// Kernel: `struct fuse_access_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AccessIn {
    /// `R_OK`, `W_OK`, `X_OK` or `F_OK`.
    pub mask: u32,
    /// Unused.
    pub padding: u32,
}
