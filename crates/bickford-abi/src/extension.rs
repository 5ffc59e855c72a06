//! Extensions at the end of a request, and security contexts.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Types of extension up to this one give the number of security contexts instead.
pub const MAX_NR_SECCTX: u32 = 31;
/// Type of extension: supplementary groups, [`SuppGroups`].
pub const EXT_GROUPS: u32 = 32;

/// Begins each extension.
///
/// Kernel: `struct fuse_ext_header`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExtHeader {
    /// Bytes of the extension, this header included, a multiple of 8.
    pub size: u32,
    /// Number of security contexts up to [`MAX_NR_SECCTX`], or a type such as [`EXT_GROUPS`].
    pub r#type: u32,
}

/// Begins the security contexts; the same bytes as [`ExtHeader`].
///
/// Kernel: `struct fuse_secctx_header`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SecctxHeader {
    /// Bytes in total, this header included.
    pub size: u32,
    /// Number of [`Secctx`] that follow.
    pub nr_secctx: u32,
}

/// One security context; the NUL-terminated attribute name and `size` bytes of context follow.
///
/// Kernel: `struct fuse_secctx`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Secctx {
    /// Bytes of context.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Fixed part of the [`EXT_GROUPS`] extension; `nr_groups` group ids (u32) follow.
///
/// Kernel: `struct fuse_supp_groups`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SuppGroups {
    /// Number of groups.
    pub nr_groups: u32,
}
