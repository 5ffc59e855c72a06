//! Open files and their data.

use crate::EntryOut;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`WriteIn`] before 7.9.
pub const COMPAT_WRITE_IN_SIZE: usize = 24;

/// Input of `OPEN` and `OPENDIR`.
///
/// Kernel: `struct fuse_open_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct OpenIn {
    /// Flags of open(2), without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
    pub flags: u32,
    /// [`OpenInFlags`](crate::OpenInFlags).
    pub open_flags: u32,
}

/// Input of `CREATE` and `TMPFILE`; the name follows.
///
/// Kernel: `struct fuse_create_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateIn {
    /// Flags of open(2).
    pub flags: u32,
    /// File type and permissions, the umask applied unless `DONT_MASK`.
    pub mode: u32,
    /// Umask of the caller.
    pub umask: u32,
    /// [`OpenInFlags`](crate::OpenInFlags).
    pub open_flags: u32,
}

/// Answer to `OPEN` and `OPENDIR`.
///
/// Kernel: `struct fuse_open_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct OpenOut {
    /// File handle, given back with every operation on the open file.
    pub fh: u64,
    /// [`OpenOutFlags`](crate::OpenOutFlags).
    pub open_flags: u32,
    /// Backing file id, valid with `PASSTHROUGH` (since 7.40; padding before).
    pub backing_id: i32,
}

/// Answer to `CREATE` and `TMPFILE`: the kernel names no structure for the pair.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateOut {
    /// The node made.
    pub entry_out: EntryOut,
    /// The open file.
    pub open_out: OpenOut,
}

/// Input of `READ`, `READDIR` and `READDIRPLUS`.
///
/// Kernel: `struct fuse_read_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ReadIn {
    /// File handle.
    pub fh: u64,
    /// Where to begin: a byte offset, or the cookie of a directory entry.
    pub offset: u64,
    /// Most bytes to answer.
    pub size: u32,
    /// [`ReadFlags`](crate::ReadFlags).
    pub read_flags: u32,
    /// Owner of locks, valid with `LOCKOWNER`.
    pub lock_owner: u64,
    /// Flags of the open file.
    pub flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `WRITE`; the data follow.
///
/// Kernel: `struct fuse_write_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WriteIn {
    /// File handle.
    pub fh: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes that follow.
    pub size: u32,
    /// [`WriteFlags`](crate::WriteFlags).
    pub write_flags: u32,
    /// Owner of locks, valid with `LOCKOWNER`.
    pub lock_owner: u64,
    /// Flags of the open file.
    pub flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to `WRITE` and `COPY_FILE_RANGE`.
///
/// Kernel: `struct fuse_write_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WriteOut {
    /// Bytes written.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `RELEASE` and `RELEASEDIR`.
///
/// Kernel: `struct fuse_release_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ReleaseIn {
    /// File handle.
    pub fh: u64,
    /// Flags of the open file.
    pub flags: u32,
    /// [`ReleaseFlags`](crate::ReleaseFlags).
    pub release_flags: u32,
    /// Owner of the flock lock that ends, valid with `FLOCK_UNLOCK`.
    pub lock_owner: u64,
}

/// Input of `FLUSH`, sent at each close(2).
///
/// Kernel: `struct fuse_flush_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FlushIn {
    /// File handle.
    pub fh: u64,
    /// Unused.
    pub unused: u32,
    /// Unused.
    pub padding: u32,
    /// Owner whose locks end.
    pub lock_owner: u64,
}

/// Input of `FSYNC` and `FSYNCDIR`.
///
/// Kernel: `struct fuse_fsync_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FsyncIn {
    /// File handle.
    pub fh: u64,
    /// [`FsyncFlags`](crate::FsyncFlags).
    pub fsync_flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `SYNCFS`.
///
/// Kernel: `struct fuse_syncfs_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SyncfsIn {
    /// Unused.
    pub padding: u64,
}

/// Input of `BMAP`.
///
/// Kernel: `struct fuse_bmap_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BmapIn {
    /// Block of the file.
    pub block: u64,
    /// Block size in bytes.
    pub blocksize: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to `BMAP`.
///
/// Kernel: `struct fuse_bmap_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BmapOut {
    /// Block of the device.
    pub block: u64,
}

/// Input of `FALLOCATE`.
///
/// Kernel: `struct fuse_fallocate_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FallocateIn {
    /// File handle.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// `FALLOC_FL_*` of fallocate(2).
    pub mode: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `LSEEK`.
///
/// Kernel: `struct fuse_lseek_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LseekIn {
    /// File handle.
    pub fh: u64,
    /// Where to begin.
    pub offset: u64,
    /// `SEEK_DATA` or `SEEK_HOLE`.
    pub whence: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to `LSEEK`.
///
/// Kernel: `struct fuse_lseek_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LseekOut {
    /// Offset found.
    pub offset: u64,
}

/// Input of `COPY_FILE_RANGE` and `COPY_FILE_RANGE_64`; the header names the source.
///
/// Kernel: `struct fuse_copy_file_range_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CopyFileRangeIn {
    /// File handle of the source.
    pub fh_in: u64,
    /// Offset in the source.
    pub off_in: u64,
    /// Node id of the destination.
    pub nodeid_out: u64,
    /// File handle of the destination.
    pub fh_out: u64,
    /// Offset in the destination.
    pub off_out: u64,
    /// Bytes to copy.
    pub len: u64,
    /// Flags of copy_file_range(2).
    pub flags: u64,
}

/// Answer to `COPY_FILE_RANGE_64`.
///
/// Kernel: `struct fuse_copy_file_range_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CopyFileRangeOut {
    /// Bytes copied.
    pub bytes_copied: u64,
}

/// Input of `SETUPMAPPING` (DAX over virtiofs).
///
/// Kernel: `struct fuse_setupmapping_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SetupmappingIn {
    /// File handle.
    pub fh: u64,
    /// Offset in the file.
    pub foffset: u64,
    /// Bytes to map.
    pub len: u64,
    /// [`SetupmappingFlags`](crate::SetupmappingFlags).
    pub flags: u64,
    /// Offset in the DAX window.
    pub moffset: u64,
}

/// Input of `REMOVEMAPPING`; `count` [`RemovemappingOne`] follow.
///
/// Kernel: `struct fuse_removemapping_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RemovemappingIn {
    /// Number of elements.
    pub count: u32,
}

/// One mapping to remove.
///
/// Kernel: `struct fuse_removemapping_one`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RemovemappingOne {
    /// Offset in the DAX window.
    pub moffset: u64,
    /// Bytes to unmap.
    pub len: u64,
}
