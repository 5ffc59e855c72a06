//! The ioctls of `/dev/fuse`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Type byte of the ioctls of `/dev/fuse`.
pub const DEV_IOC_MAGIC: u32 = 229;

/// Where the direction stands in an ioctl number, and what the directions are there.
#[cfg(not(any(
    target_arch = "mips",
    target_arch = "mips32r6",
    target_arch = "mips64",
    target_arch = "mips64r6",
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "sparc",
    target_arch = "sparc64",
)))]
mod direction {
    pub(super) const SHIFT: u32 = 30;
    pub(super) const NONE: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const READ: u32 = 2;
}
#[cfg(any(
    target_arch = "mips",
    target_arch = "mips32r6",
    target_arch = "mips64",
    target_arch = "mips64r6",
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "sparc",
    target_arch = "sparc64",
))]
mod direction {
    pub(super) const SHIFT: u32 = 29;
    pub(super) const NONE: u32 = 1;
    pub(super) const READ: u32 = 2;
    pub(super) const WRITE: u32 = 4;
}

/// The kernel's `_IOC`: direction, argument size, type and number in one word.
const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    (direction << direction::SHIFT) | ((size as u32) << 16) | (DEV_IOC_MAGIC << 8) | number
}

/// Joins a newly opened `/dev/fuse` to the session of the descriptor pointed to (a `u32`).
pub const DEV_CLONE: u32 = ioc(direction::READ, 0, size_of::<u32>());
/// Registers a backing file for pass-through; takes a [`BackingMap`], returns the id.
pub const BACKING_OPEN: u32 = ioc(direction::WRITE, 1, size_of::<BackingMap>());
/// Ends a backing id (pointer to a `u32`).
pub const BACKING_CLOSE: u32 = ioc(direction::WRITE, 2, size_of::<u32>());
/// Asks that mount(2) return only after `INIT` was answered; before the mount.
pub const SYNC_INIT: u32 = ioc(direction::NONE, 3, 0);

/// Argument of [`BACKING_OPEN`].
///
/// Kernel: `struct fuse_backing_map`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BackingMap {
    /// Descriptor of the backing file.
    pub fd: i32,
    /// Reserved, zero.
    pub flags: u32,
    /// Reserved, zero.
    pub padding: u64,
}
