//! Newtypes of the numbers that the protocol passes around.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

number! {
    /// Names an inode between the kernel and the file system for as long as its lookup count is
    /// above zero (`nodeid` in `struct fuse_in_header`).
    NodeId
}
number! {
    /// What a file system hands out on open and gets back with each operation on the open file
    /// (`fh` in `struct fuse_open_out`).
    FileHandle
}
number! {
    /// Tells apart two inodes that had the same number at different times.
    Generation
}
number! {
    /// Identifies a request of one connection (`unique` in `struct fuse_in_header`).
    Unique
}
number! {
    /// Identifies the owner of a POSIX record lock or of a flock.
    LockOwner
}

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(bickford_abi::ROOT_ID);

    /// The first of the ids that file systems of Bickford never give out: from here on, up to the
    /// largest number, they are for nodes that [layers](crate::layer#files-of-its-own) make up.
    pub const FIRST_OF_LAYERS: Self = Self(0xffff_ffff << 32);
}
