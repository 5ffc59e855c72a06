//! The operations of the protocol: one row for each.

use std::fmt;

use crate::{
    AccessIn, AttrOut, BatchForgetIn, BmapIn, BmapOut, CopyFileRangeIn, CopyFileRangeOut, CreateIn,
    CreateOut, CuseInitIn, CuseInitOut, EntryOut, FallocateIn, FlushIn, ForgetIn, FsyncIn,
    GetattrIn, GetxattrIn, InitIn, InitOut, InterruptIn, IoctlIn, IoctlOut, LinkIn, LkIn, LkOut,
    LseekIn, LseekOut, MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, OpenOut, PollIn, PollOut,
    ReadIn, ReleaseIn, RemovemappingIn, Rename2In, RenameIn, SetattrIn, SetupmappingIn, SetxattrIn,
    StatfsOut, StatxIn, StatxOut, SyncfsIn, WriteIn, WriteOut,
};

/// What follows the names of a request.
macro_rules! payload {
    (payload) => {
        true
    };
    (none) => {
        false
    };
}

/// Whether a request gets a reply.
macro_rules! answered {
    (reply) => {
        true
    };
    (silent) => {
        false
    };
}

/// Makes [`Opcode`] from rows of: variant, number, kernel name, fixed input, names that follow,
/// payload that follows, fixed output, first minor version, whether it is answered.
macro_rules! opcodes {
    ($($variant:ident = $number:literal, $name:literal, $input:ty, $names:literal, $payload:ident,
       $output:ty, $minor:literal, $answered:ident;)*) => {
        /// An operation that the kernel asks for: `opcode` of [`InHeader`](crate::InHeader).
        ///
        /// Kernel: `enum fuse_opcode`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum Opcode {
            $(#[doc = concat!("`FUSE_", $name, "`")] $variant = $number,)*
        }

        /// The same operations numbered without gaps.
        enum Dense {
            $($variant,)*
        }

        impl Opcode {
            /// Every operation, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Number of operations: the bound of [`index`](Self::index).
            pub const COUNT: usize = Self::ALL.len();

            /// The operation of a number; `None` if this crate knows none.
            #[must_use]
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The kernel's name without `FUSE_`, such as `LOOKUP`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Position in [`ALL`](Self::ALL): dense, for tables of counters and handlers.
            #[must_use]
            pub const fn index(self) -> usize {
                match self {
                    $(Self::$variant => Dense::$variant as usize,)*
                }
            }

            /// Bytes of the fixed input structure after the header, in this version of the
            /// protocol; 0 if there is none. Older kernels may send fewer, see the `COMPAT_` sizes.
            #[must_use]
            pub const fn input_size(self) -> usize {
                match self {
                    $(Self::$variant => size_of::<$input>(),)*
                }
            }

            /// NUL-terminated names that follow the fixed input: 0, 1 or 2.
            #[must_use]
            pub const fn names(self) -> usize {
                match self {
                    $(Self::$variant => $names,)*
                }
            }

            /// Whether bytes follow the names: data, a value, or an array of structures.
            #[must_use]
            pub const fn has_payload(self) -> bool {
                match self {
                    $(Self::$variant => payload!($payload),)*
                }
            }

            /// Bytes of the fixed structure that begins each successful reply after the header;
            /// 0 if the reply is empty or of variable length (`GETXATTR` and `LISTXATTR` answer
            /// [`GetxattrOut`](crate::GetxattrOut) only when asked for the size).
            #[must_use]
            pub const fn output_size(self) -> usize {
                match self {
                    $(Self::$variant => size_of::<$output>(),)*
                }
            }

            /// First minor version of the protocol that has it; 0 if it is older than the record.
            #[must_use]
            pub const fn minimum_minor(self) -> u32 {
                match self {
                    $(Self::$variant => $minor,)*
                }
            }

            /// Whether the kernel waits for a reply. `INTERRUPT` counts as not answered: the
            /// kernel takes a reply to it only to send it again (`EAGAIN`) or never (`ENOSYS`).
            #[must_use]
            pub const fn is_answered(self) -> bool {
                match self {
                    $(Self::$variant => answered!($answered),)*
                }
            }
        }
    };
}

opcodes! {
    // variant = number, name, input, names, payload, output, minor, answered
    Lookup = 1, "LOOKUP", (), 1, none, EntryOut, 0, reply;
    Forget = 2, "FORGET", ForgetIn, 0, none, (), 0, silent;
    Getattr = 3, "GETATTR", GetattrIn, 0, none, AttrOut, 0, reply;
    Setattr = 4, "SETATTR", SetattrIn, 0, none, AttrOut, 1, reply;
    Readlink = 5, "READLINK", (), 0, none, (), 0, reply;
    Symlink = 6, "SYMLINK", (), 2, none, EntryOut, 1, reply;
    Mknod = 8, "MKNOD", MknodIn, 1, none, EntryOut, 1, reply;
    Mkdir = 9, "MKDIR", MkdirIn, 1, none, EntryOut, 1, reply;
    Unlink = 10, "UNLINK", (), 1, none, (), 1, reply;
    Rmdir = 11, "RMDIR", (), 1, none, (), 1, reply;
    Rename = 12, "RENAME", RenameIn, 2, none, (), 1, reply;
    Link = 13, "LINK", LinkIn, 1, none, EntryOut, 1, reply;
    Open = 14, "OPEN", OpenIn, 0, none, OpenOut, 1, reply;
    Read = 15, "READ", ReadIn, 0, none, (), 1, reply;
    Write = 16, "WRITE", WriteIn, 0, payload, WriteOut, 1, reply;
    Statfs = 17, "STATFS", (), 0, none, StatfsOut, 0, reply;
    Release = 18, "RELEASE", ReleaseIn, 0, none, (), 1, reply;
    Fsync = 20, "FSYNC", FsyncIn, 0, none, (), 1, reply;
    Setxattr = 21, "SETXATTR", SetxattrIn, 1, payload, (), 1, reply;
    Getxattr = 22, "GETXATTR", GetxattrIn, 1, none, (), 1, reply;
    Listxattr = 23, "LISTXATTR", GetxattrIn, 0, none, (), 1, reply;
    Removexattr = 24, "REMOVEXATTR", (), 1, none, (), 1, reply;
    Flush = 25, "FLUSH", FlushIn, 0, none, (), 1, reply;
    Init = 26, "INIT", InitIn, 0, none, InitOut, 0, reply;
    Opendir = 27, "OPENDIR", OpenIn, 0, none, OpenOut, 1, reply;
    Readdir = 28, "READDIR", ReadIn, 0, none, (), 1, reply;
    Releasedir = 29, "RELEASEDIR", ReleaseIn, 0, none, (), 1, reply;
    Fsyncdir = 30, "FSYNCDIR", FsyncIn, 0, none, (), 2, reply;
    Getlk = 31, "GETLK", LkIn, 0, none, LkOut, 7, reply;
    Setlk = 32, "SETLK", LkIn, 0, none, (), 7, reply;
    Setlkw = 33, "SETLKW", LkIn, 0, none, (), 7, reply;
    Access = 34, "ACCESS", AccessIn, 0, none, (), 3, reply;
    Create = 35, "CREATE", CreateIn, 1, none, CreateOut, 3, reply;
    Interrupt = 36, "INTERRUPT", InterruptIn, 0, none, (), 7, silent;
    Bmap = 37, "BMAP", BmapIn, 0, none, BmapOut, 8, reply;
    Destroy = 38, "DESTROY", (), 0, none, (), 8, reply;
    Ioctl = 39, "IOCTL", IoctlIn, 0, payload, IoctlOut, 11, reply;
    Poll = 40, "POLL", PollIn, 0, none, PollOut, 11, reply;
    NotifyReply = 41, "NOTIFY_REPLY", NotifyRetrieveIn, 0, payload, (), 15, silent;
    BatchForget = 42, "BATCH_FORGET", BatchForgetIn, 0, payload, (), 16, silent;
    Fallocate = 43, "FALLOCATE", FallocateIn, 0, none, (), 19, reply;
    Readdirplus = 44, "READDIRPLUS", ReadIn, 0, none, (), 21, reply;
    Rename2 = 45, "RENAME2", Rename2In, 2, none, (), 23, reply;
    Lseek = 46, "LSEEK", LseekIn, 0, none, LseekOut, 24, reply;
    CopyFileRange = 47, "COPY_FILE_RANGE", CopyFileRangeIn, 0, none, WriteOut, 28, reply;
    Setupmapping = 48, "SETUPMAPPING", SetupmappingIn, 0, none, (), 31, reply;
    Removemapping = 49, "REMOVEMAPPING", RemovemappingIn, 0, payload, (), 31, reply;
    Syncfs = 50, "SYNCFS", SyncfsIn, 0, none, (), 34, reply;
    Tmpfile = 51, "TMPFILE", CreateIn, 1, none, CreateOut, 37, reply;
    Statx = 52, "STATX", StatxIn, 0, none, StatxOut, 39, reply;
    CopyFileRange64 = 53, "COPY_FILE_RANGE_64", CopyFileRangeIn, 0, none, CopyFileRangeOut, 45,
        reply;
    CuseInit = 4096, "CUSE_INIT", CuseInitIn, 0, none, CuseInitOut, 12, reply;
}

impl fmt::Display for Opcode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn indices_are_dense_and_in_order() {
        for (position, opcode) in Opcode::ALL.iter().enumerate() {
            assert_eq!(opcode.index(), position, "{opcode}");
        }
        assert_eq!(Opcode::COUNT, 52);
        assert!(Opcode::ALL.is_sorted());
    }

    #[test]
    fn numbers_and_names_are_unique() {
        let numbers: HashSet<u32> = Opcode::ALL.iter().map(|&opcode| opcode as u32).collect();
        let names: HashSet<&str> = Opcode::ALL.iter().map(|opcode| opcode.name()).collect();
        assert_eq!(numbers.len(), Opcode::COUNT);
        assert_eq!(names.len(), Opcode::COUNT);
    }

    #[test]
    fn from_u32_knows_exactly_the_table() {
        let known: Vec<Opcode> = (0..=5000).filter_map(Opcode::from_u32).collect();
        assert_eq!(known, Opcode::ALL);
        assert_eq!(Opcode::from_u32(u32::MAX), None);
    }

    #[test]
    fn names_are_the_variants_in_the_kernels_spelling() {
        for opcode in Opcode::ALL {
            let variant = format!("{opcode:?}").to_uppercase();
            assert_eq!(opcode.name().replace('_', ""), variant);
        }
    }

    #[test]
    fn unanswered_operations_have_no_output() {
        for opcode in Opcode::ALL.iter().filter(|opcode| !opcode.is_answered()) {
            assert_eq!(opcode.output_size(), 0, "{opcode}");
        }
        let silent = Opcode::ALL.iter().filter(|opcode| !opcode.is_answered());
        assert_eq!(silent.count(), 4);
    }

    #[test]
    fn rows_agree_with_the_protocol() {
        let row = |opcode: Opcode| {
            let (input, names) = (opcode.input_size(), opcode.names());
            (input, names, opcode.has_payload(), opcode.output_size())
        };
        assert_eq!(row(Opcode::Lookup), (0, 1, false, 128));
        assert_eq!(row(Opcode::Setxattr), (16, 1, true, 0));
        assert_eq!(row(Opcode::Symlink), (0, 2, false, 128));
        assert_eq!(row(Opcode::Create), (16, 1, false, 144));
        assert_eq!(row(Opcode::Tmpfile), (16, 1, false, 144));
        assert_eq!(row(Opcode::Write), (40, 0, true, 8));
        assert_eq!(row(Opcode::Rename2), (16, 2, false, 0));
        assert_eq!(row(Opcode::CopyFileRange64), (56, 0, false, 8));
    }

    #[test]
    fn the_fixed_input_fits_a_ring_entry() {
        for opcode in Opcode::ALL {
            assert!(
                opcode.input_size() <= crate::URING_OP_IN_OUT_SIZE,
                "{opcode}"
            );
        }
    }
}
