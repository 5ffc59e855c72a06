//! Negotiation: `INIT` and `CUSE_INIT`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`InitIn`] sent by kernels before 7.36.
pub const COMPAT_INIT_IN_SIZE: usize = 16;
/// Bytes of [`InitOut`] that a kernel before 7.5 takes.
pub const COMPAT_INIT_OUT_SIZE: usize = 8;
/// Bytes of [`InitOut`] that a kernel before 7.23 takes.
pub const COMPAT_22_INIT_OUT_SIZE: usize = 24;
/// Most bytes of device description after [`CuseInitOut`].
pub const CUSE_INIT_INFO_MAX: usize = 4096;

/// What the kernel offers in `INIT`; kernels before 7.36 send only the first
/// [`COMPAT_INIT_IN_SIZE`] bytes.
///
/// Kernel: `struct fuse_init_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct InitIn {
    /// Major version of the kernel.
    pub major: u32,
    /// Minor version of the kernel.
    pub minor: u32,
    /// Largest read-ahead the kernel would do, in bytes.
    pub max_readahead: u32,
    /// Low word of [`InitFlags`](crate::InitFlags) offered.
    pub flags: u32,
    /// High word of the flags, valid with `INIT_EXT`.
    pub flags2: u32,
    /// Reserved, zero.
    pub unused: [u32; 11],
}

/// What the server answers to `INIT`.
///
/// Kernel: `struct fuse_init_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct InitOut {
    /// Major version of the server.
    pub major: u32,
    /// Minor version of the server; the smaller of both is spoken.
    pub minor: u32,
    /// Largest read-ahead wanted, in bytes; at most what was offered.
    pub max_readahead: u32,
    /// Low word of the flags taken.
    pub flags: u32,
    /// Limit of outstanding background requests; 0 keeps the kernel's default.
    pub max_background: u16,
    /// Background requests from which the mount counts as congested; 0 keeps the default.
    pub congestion_threshold: u16,
    /// Largest `WRITE` payload in bytes.
    pub max_write: u32,
    /// Granularity of time stamps in nanoseconds: a power of ten up to 10^9.
    pub time_gran: u32,
    /// Largest request payload in pages, valid with `MAX_PAGES`.
    pub max_pages: u16,
    /// Base-2 logarithm of the alignment of DAX mappings, valid with `MAP_ALIGNMENT`.
    pub map_alignment: u16,
    /// High word of the flags taken, valid with `INIT_EXT`.
    pub flags2: u32,
    /// File system stacking depth allowed with `PASSTHROUGH`: 1 or 2.
    pub max_stack_depth: u32,
    /// Seconds after which an unanswered request aborts the connection, valid with
    /// `REQUEST_TIMEOUT`.
    pub request_timeout: u16,
    /// Reserved, zero.
    pub unused: [u16; 11],
}

/// What the kernel offers in `CUSE_INIT`.
///
/// Kernel: `struct cuse_init_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CuseInitIn {
    /// Major version of the kernel.
    pub major: u32,
    /// Minor version of the kernel.
    pub minor: u32,
    /// Reserved.
    pub unused: u32,
    /// [`CuseInitFlags`](crate::CuseInitFlags) offered.
    pub flags: u32,
}

/// What the server answers to `CUSE_INIT`; NUL-terminated `KEY=VALUE` strings follow.
///
/// Kernel: `struct cuse_init_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CuseInitOut {
    /// Major version of the server.
    pub major: u32,
    /// Minor version of the server.
    pub minor: u32,
    /// Reserved.
    pub unused: u32,
    /// [`CuseInitFlags`](crate::CuseInitFlags) taken.
    pub flags: u32,
    /// Largest read in bytes.
    pub max_read: u32,
    /// Largest write in bytes.
    pub max_write: u32,
    /// Major number of the character device.
    pub dev_major: u32,
    /// Minor number of the character device.
    pub dev_minor: u32,
    /// Reserved, zero.
    pub spare: [u32; 10],
}
