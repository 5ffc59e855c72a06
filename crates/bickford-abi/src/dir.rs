//! Directory entries, as `READDIR` and `READDIRPLUS` answer them.

use crate::EntryOut;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of directory entries, and of other records of variable length, in bytes.
pub const DIRENT_ALIGN: usize = 8;

/// Rounds a length up to [`DIRENT_ALIGN`].
#[must_use]
pub const fn dirent_align(len: usize) -> usize {
    len.saturating_add(DIRENT_ALIGN - 1) & !(DIRENT_ALIGN - 1)
}

/// Bytes that a [`Dirent`] with a name of `namelen` bytes takes, padding included.
#[must_use]
pub const fn dirent_size(namelen: usize) -> usize {
    dirent_align(size_of::<Dirent>().saturating_add(namelen))
}

/// Bytes that a [`Direntplus`] with a name of `namelen` bytes takes, padding included.
#[must_use]
pub const fn direntplus_size(namelen: usize) -> usize {
    dirent_align(size_of::<Direntplus>().saturating_add(namelen))
}

/// Fixed part of a directory entry; `namelen` bytes of name follow, padded to 8 bytes.
///
/// Kernel: `struct fuse_dirent`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Dirent {
    /// Inode number shown to applications.
    pub ino: u64,
    /// Cookie that begins a later `READDIR` after this entry.
    pub off: u64,
    /// Bytes of name, without a NUL.
    pub namelen: u32,
    /// File type, as `d_type` (`S_IFMT` bits of the mode shifted right by 12).
    pub r#type: u32,
}

/// Fixed part of a directory entry with its node; the name follows.
///
/// Kernel: `struct fuse_direntplus`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Direntplus {
    /// The node; node id 0 makes no lookup.
    pub entry_out: EntryOut,
    /// The entry.
    pub dirent: Dirent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_padded_to_eight_bytes() {
        assert_eq!(dirent_align(0), 0);
        assert_eq!(dirent_align(1), 8);
        assert_eq!(dirent_align(8), 8);
        assert_eq!(dirent_size(1), 32);
        assert_eq!(dirent_size(8), 32);
        assert_eq!(dirent_size(9), 40);
        assert_eq!(direntplus_size(1), 160);
        assert_eq!(dirent_align(usize::MAX) % DIRENT_ALIGN, 0);
    }
}
