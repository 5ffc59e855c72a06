//! Flags. Unknown bits of a newer kernel survive `from_bits_retain`.

use bitflags::bitflags;

bitflags! {
    /// What kernel and server agree on in `INIT`: [`InitIn`](crate::InitIn),
    /// [`InitOut`](crate::InitOut).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Reads may be sent in parallel and out of order.
        const ASYNC_READ = 1 << 0;
        /// `GETLK`, `SETLK` and `SETLKW` are sent to the server.
        const POSIX_LOCKS = 1 << 1;
        /// Unused by the kernel.
        const FILE_OPS = 1 << 2;
        /// The server truncates on open with `O_TRUNC`; without it `SETATTR` follows `OPEN`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// The server answers lookups of `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes may be larger than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask, the kernel does not.
        const DONT_MASK = 1 << 6;
        /// Replies may be spliced into the device.
        const SPLICE_WRITE = 1 << 7;
        /// Spliced pages may be moved.
        const SPLICE_MOVE = 1 << 8;
        /// Requests may be spliced from the device.
        const SPLICE_READ = 1 << 9;
        /// flock(2) locks are sent to the server.
        const FLOCK_LOCKS = 1 << 10;
        /// `IOCTL` is sent for directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data is dropped when size or modification time changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// The kernel may send `READDIRPLUS`.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between `READDIR` and `READDIRPLUS`.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O is submitted asynchronously.
        const ASYNC_DIO = 1 << 15;
        /// Buffered writes are cached and written back later.
        const WRITEBACK_CACHE = 1 << 16;
        /// `OPEN` may be answered `ENOSYS`, once, for all files.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// `LOOKUP` and `READDIR` in one directory may run in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server clears set-id bits and capabilities on write, chown and truncate.
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX access control lists are honoured.
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort fails with `ECONNABORTED`.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of `InitOut` is valid.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// `OPENDIR` may be answered `ENOSYS`, once, for all directories.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data is dropped on request only.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` of `InitOut` is valid.
        const MAP_ALIGNMENT = 1 << 26;
        /// Directories may be marked as submounts.
        const SUBMOUNTS = 1 << 27;
        /// As `HANDLE_KILLPRIV`, told by flags on `OPEN`, `WRITE` and `SETATTR`.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `SetxattrIn` has its full size.
        const SETXATTR_EXT = 1 << 29;
        /// The high word, `flags2`, is valid.
        const INIT_EXT = 1 << 30;
        /// Reserved, not to be used.
        const INIT_RESERVED = 1 << 31;
        /// Security contexts go with what makes a node.
        const SECURITY_CTX = 1 << 32;
        /// DAX is chosen for each inode.
        const HAS_INODE_DAX = 1 << 33;
        /// Supplementary groups go with what makes a node.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Entries may be expired rather than invalidated.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files open for direct I/O may be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// The kernel may read and write a backing file itself.
        const PASSTHROUGH = 1 << 37;
        /// Handles of the file system are not to be exported.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests may be sent again on notification.
        const HAS_RESEND = 1 << 39;
        /// The mount may be id-mapped.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may go over io_uring.
        const OVER_IO_URING = 1 << 41;
        /// `request_timeout` of `InitOut` is valid.
        const REQUEST_TIMEOUT = 1 << 42;
    }
}

bitflags! {
    /// What kernel and server agree on in `CUSE_INIT`: [`CuseInitIn`](crate::CuseInitIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CuseInitFlags: u32 {
        /// `IOCTL` may name areas of the caller's memory itself.
        const UNRESTRICTED_IOCTL = 1 << 0;
    }
}

bitflags! {
    /// `open_flags` of [`OpenIn`](crate::OpenIn) and [`CreateIn`](crate::CreateIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenInFlags: u32 {
        /// Clear set-id bits, for the open truncates.
        const KILL_SUIDGID = 1 << 0;
    }
}

bitflags! {
    /// `open_flags` of [`OpenOut`](crate::OpenOut): how the kernel treats the open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenOutFlags: u32 {
        /// Bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Keep the data cached by earlier opens.
        const KEEP_CACHE = 1 << 1;
        /// The file cannot seek.
        const NONSEEKABLE = 1 << 2;
        /// Cache the entries of the directory.
        const CACHE_DIR = 1 << 3;
        /// The file has no position at all.
        const STREAM = 1 << 4;
        /// Send no `FLUSH` on close, unless writes are cached.
        const NOFLUSH = 1 << 5;
        /// Direct writes to the file may run in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Read and write the backing file of `backing_id`.
        const PASSTHROUGH = 1 << 7;
    }
}

bitflags! {
    /// `valid` of [`SetattrIn`](crate::SetattrIn): what is to be set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SetattrValid: u32 {
        /// Set the mode.
        const MODE = 1 << 0;
        /// Set the owner.
        const UID = 1 << 1;
        /// Set the group.
        const GID = 1 << 2;
        /// Set the size.
        const SIZE = 1 << 3;
        /// Set the access time.
        const ATIME = 1 << 4;
        /// Set the modification time.
        const MTIME = 1 << 5;
        /// `fh` is valid.
        const FH = 1 << 6;
        /// Set the access time to now.
        const ATIME_NOW = 1 << 7;
        /// Set the modification time to now.
        const MTIME_NOW = 1 << 8;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 9;
        /// Set the change time.
        const CTIME = 1 << 10;
        /// Clear set-id bits.
        const KILL_SUIDGID = 1 << 11;
    }
}

bitflags! {
    /// `getattr_flags` of [`GetattrIn`](crate::GetattrIn) and [`StatxIn`](crate::StatxIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GetattrFlags: u32 {
        /// `fh` is valid.
        const FH = 1 << 0;
    }
}

bitflags! {
    /// `read_flags` of [`ReadIn`](crate::ReadIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFlags: u32 {
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
    }
}

bitflags! {
    /// `write_flags` of [`WriteIn`](crate::WriteIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// Written back from the page cache: the file handle is a guess.
        const CACHE = 1 << 0;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
        /// Clear set-id bits.
        const KILL_SUIDGID = 1 << 2;
    }
}

bitflags! {
    /// `release_flags` of [`ReleaseIn`](crate::ReleaseIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReleaseFlags: u32 {
        /// Flush as well, no `FLUSH` was sent.
        const FLUSH = 1 << 0;
        /// End the flock(2) lock of the open file.
        const FLOCK_UNLOCK = 1 << 1;
    }
}

bitflags! {
    /// `fsync_flags` of [`FsyncIn`](crate::FsyncIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsyncFlags: u32 {
        /// Data only, as fdatasync(2).
        const FDATASYNC = 1 << 0;
    }
}

bitflags! {
    /// `lk_flags` of [`LkIn`](crate::LkIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct LockFlags: u32 {
        /// A flock(2) lock, not a POSIX one.
        const FLOCK = 1 << 0;
    }
}

bitflags! {
    /// `flags` of [`IoctlIn`](crate::IoctlIn) and [`IoctlOut`](crate::IoctlOut).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct IoctlFlags: u32 {
        /// A 32-bit caller on a 64-bit kernel.
        const COMPAT = 1 << 0;
        /// Not bound to the sizes that the command encodes; may be retried.
        const UNRESTRICTED = 1 << 1;
        /// Answer: retry with the areas given.
        const RETRY = 1 << 2;
        /// The caller is a 32-bit program.
        const _32BIT = 1 << 3;
        /// On a directory.
        const DIR = 1 << 4;
        /// An x32 caller: 32-bit with 64-bit times.
        const COMPAT_X32 = 1 << 5;
    }
}

bitflags! {
    /// `flags` of [`PollIn`](crate::PollIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PollFlags: u32 {
        /// Notify when the file becomes ready.
        const SCHEDULE_NOTIFY = 1 << 0;
    }
}

bitflags! {
    /// `flags` of [`Attr`](crate::Attr) and [`StatxOut`](crate::StatxOut).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AttrFlags: u32 {
        /// The root of a submount.
        const SUBMOUNT = 1 << 0;
        /// Use DAX for the file, where chosen for each inode.
        const DAX = 1 << 1;
    }
}

bitflags! {
    /// `setxattr_flags` of [`SetxattrIn`](crate::SetxattrIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SetxattrFlags: u32 {
        /// Clear the set-group-id bit when setting an access control list.
        const ACL_KILL_SGID = 1 << 0;
    }
}

bitflags! {
    /// `flags` of [`NotifyInvalEntryOut`](crate::NotifyInvalEntryOut).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ExpireFlags: u32 {
        /// Expire the entry, do not invalidate it.
        const EXPIRE_ONLY = 1 << 0;
    }
}

bitflags! {
    /// `flags` of [`SetupmappingIn`](crate::SetupmappingIn).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SetupmappingFlags: u64 {
        /// Map for writing.
        const WRITE = 1 << 0;
        /// Map for reading.
        const READ = 1 << 1;
    }
}

impl InitFlags {
    /// Joins the two words of [`InitIn`](crate::InitIn) or [`InitOut`](crate::InitOut).
    /// The high word counts only if the low one has `INIT_EXT`. Unknown bits are kept.
    #[must_use]
    pub const fn from_words(flags: u32, flags2: u32) -> Self {
        let low = Self::from_bits_retain(flags as u64);
        if low.contains(Self::INIT_EXT) {
            Self::from_bits_retain(((flags2 as u64) << 32) | flags as u64)
        } else {
            low
        }
    }

    /// Splits into `(flags, flags2)`. A flag of the high word brings `INIT_EXT` with it, without
    /// which the kernel would not see it.
    #[must_use]
    pub const fn to_words(self) -> (u32, u32) {
        let high = (self.bits() >> 32) as u32;
        let low = self.bits() as u32;
        if high == 0 {
            (low, 0)
        } else {
            (low | Self::INIT_EXT.bits() as u32, high)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_word_needs_init_ext() {
        let without = InitFlags::from_words(1, 1 << 9);
        assert_eq!(without, InitFlags::ASYNC_READ);
        let with = InitFlags::from_words(1 | 1 << 30, 1 << 9);
        let expected = InitFlags::ASYNC_READ | InitFlags::INIT_EXT | InitFlags::OVER_IO_URING;
        assert_eq!(with, expected);
    }

    #[test]
    fn words_go_round() {
        assert_eq!(InitFlags::ASYNC_READ.to_words(), (1, 0));
        assert_eq!(InitFlags::PASSTHROUGH.to_words(), (1 << 30, 1 << 5));
        for flag in InitFlags::all().iter() {
            let flags = flag | InitFlags::INIT_EXT;
            let (low, high) = flags.to_words();
            assert_eq!(InitFlags::from_words(low, high), flags);
        }
    }

    #[test]
    fn unknown_bits_are_kept() {
        let flags = InitFlags::from_words(1 << 30, 1 << 31);
        assert_eq!(flags.bits(), 1 << 30 | 1 << 63);
        assert_eq!(flags.to_words(), (1 << 30, 1 << 31));
    }
}
