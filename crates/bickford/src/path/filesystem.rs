//! What a file system over paths implements.

use std::ffi::CStr;
use std::path::Path;

use bickford_abi::IoctlFlags;
use rustix::fs::RenameFlags;

use super::{Listing, New, Open, Subject, Times};
use crate::filesystem::Negotiation;
use crate::ops::{
    Attr, Data, IoctlAnswer, Lock, LockKind, Opened, Payload, PollHandle, StatfsAnswer, Timestamp,
};
use crate::{Context, Errno, LockOwner};

/// Declares the methods whose default is ENOSYS.
macro_rules! optional {
    ($($(#[$doc:meta])* fn $method:ident(&self $(, $argument:ident: $kind:ty)* $(,)?) -> $answer:ty;)+) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// The errno that the caller gets. ENOSYS by default.
            fn $method(&self, cx: &Context<'_> $(, $argument: $kind)*) -> Result<$answer, Errno> {
                let _ = (cx, $($argument,)*);
                Err(Errno::NOSYS)
            }
        )+
    };
}

/// A file system whose methods get paths and return their answers. Serve it with
/// [`super::Adapter`].
///
/// Paths begin with `/`, the root of the mount, and stay right while a method runs: renames wait.
/// A method that waits keeps a worker busy meanwhile, and what would rename or remove its path.
/// What is not implemented answers ENOSYS; where the kernel then does not ask again, it costs
/// nothing. Names that are made keep the caller's umask off already.
pub trait FileSystem: Send + Sync + 'static {
    /// The session begins: choose from what the kernel offers, for instance locks between hosts
    /// ([`bickford_abi::InitFlags::POSIX_LOCKS`], [`bickford_abi::InitFlags::FLOCK_LOCKS`]).
    ///
    /// # Errors
    /// An error ends the session before it begins.
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        let _ = negotiation;
        Ok(())
    }

    /// The session has ended; no request follows.
    fn destroy(&self) {}

    optional! {
        /// Attributes (stat(2)); ENOENT where there is nothing. The only method that every file
        /// system needs. The inode number counts with [`super::Options::use_ino`] only.
        fn getattr(&self, subject: Subject<'_>) -> Attr;

        /// What a symbolic link says (readlink(2)).
        fn readlink(&self, path: &Path) -> Vec<u8>;

        /// Makes a regular file, device node, FIFO or socket (mknod(2)).
        fn mknod(&self, path: &Path, new: New) -> ();

        /// Makes a directory (mkdir(2)).
        fn mkdir(&self, path: &Path, new: New) -> ();

        /// Removes a name of something that is no directory (unlink(2)). Open files of it go on
        /// being used by their handles.
        fn unlink(&self, path: &Path) -> ();

        /// Removes an empty directory (rmdir(2)).
        fn rmdir(&self, path: &Path) -> ();

        /// Makes a symbolic link at `path` that says `target` (symlink(2)).
        fn symlink(&self, path: &Path, target: &CStr) -> ();

        /// Renames, or with [`RenameFlags::EXCHANGE`] exchanges (rename(2), renameat2(2)). Flags
        /// that are not known are to be answered with EINVAL.
        fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> ();

        /// Gives the file at `existing` another name (link(2)).
        fn link(&self, existing: &Path, new: &Path) -> ();

        /// Sets permissions (chmod(2)); the type bits of `mode` are zero.
        fn chmod(&self, subject: Subject<'_>, mode: u32) -> ();

        /// Sets owner and group (chown(2)); `None` stays.
        fn chown(&self, subject: Subject<'_>, uid: Option<u32>, gid: Option<u32>) -> ();

        /// Sets the size in bytes (truncate(2), ftruncate(2)). open(2) with O_TRUNC comes here
        /// before [`FileSystem::open`].
        fn truncate(&self, subject: Subject<'_>, size: u64) -> ();

        /// Sets times (utimensat(2)).
        fn utimens(&self, subject: Subject<'_>, times: Times) -> ();

        /// Opens a file (open(2)). By default with handle zero; where the kernel can do without
        /// asking, it does.
        fn open(&self, path: &Path, open: Open) -> Opened;

        /// Makes a regular file and opens it (open(2) with O_CREAT). By default the kernel uses
        /// mknod and open.
        fn create(&self, path: &Path, new: New, open: Open) -> Opened;

        /// Makes a file without a name in the directory `path`, and opens it (O_TMPFILE).
        fn tmpfile(&self, path: &Path, new: New, open: Open) -> Opened;

        /// Reads `size` bytes at `offset` (pread(2)). Fewer mean the end of the file, except with
        /// direct I/O.
        fn read(&self, file: Subject<'_>, offset: u64, size: u32) -> Data;

        /// Writes at `offset` (pwrite(2)). Answers how many bytes were written.
        fn write(&self, file: Subject<'_>, offset: u64, data: Payload<'_>) -> u32;

        /// Size and use of the file system (statfs(2)). By default: nothing is known.
        fn statfs(&self, path: &Path) -> StatfsAnswer;

        /// A descriptor of an open file was closed (close(2) gets the error); others may remain.
        fn flush(&self, file: Subject<'_>, owner: LockOwner) -> ();

        /// An open file ends: the last call for its handle. Its error reaches nobody.
        fn release(&self, file: Subject<'_>) -> ();

        /// Puts a file on stable storage; with `data_only` as fdatasync(2).
        fn fsync(&self, file: Subject<'_>, data_only: bool) -> ();

        /// Sets an extended attribute (setxattr(2)); `flags` are `XATTR_CREATE` (1) and
        /// `XATTR_REPLACE` (2).
        fn setxattr(&self, subject: Subject<'_>, name: &CStr, value: &[u8], flags: u32) -> ();

        /// The value of an extended attribute (getxattr(2)); ENODATA where there is none.
        fn getxattr(&self, subject: Subject<'_>, name: &CStr) -> Vec<u8>;

        /// The names of the extended attributes, each followed by a NUL byte (listxattr(2)).
        fn listxattr(&self, subject: Subject<'_>) -> Vec<u8>;

        /// Removes an extended attribute (removexattr(2)).
        fn removexattr(&self, subject: Subject<'_>, name: &CStr) -> ();

        /// Opens a directory (opendir(3)). By default with handle zero.
        fn opendir(&self, path: &Path) -> Opened;

        /// Lists a directory. See [`Listing`] for the two ways to answer.
        fn readdir(&self, directory: Subject<'_>, offset: u64, listing: &mut Listing) -> ();

        /// An open directory ends.
        fn releasedir(&self, directory: Subject<'_>) -> ();

        /// Puts a directory on stable storage.
        fn fsyncdir(&self, directory: Subject<'_>, data_only: bool) -> ();

        /// Whether the caller may use the path so (access(2)): `mask` is `F_OK`, or of `R_OK`,
        /// `W_OK` and `X_OK`. Not asked with `default_permissions`.
        fn access(&self, subject: Subject<'_>, mask: u32) -> ();

        /// The lock that stands in the way of `lock`, or [`Lock::none`] (fcntl(2) F_GETLK).
        fn getlk(&self, file: Subject<'_>, owner: LockOwner, lock: Lock) -> Lock;

        /// Takes or gives up a record lock (fcntl(2) F_SETLK). With `wait` it may take as long as
        /// it needs (F_SETLKW), and no path is held then: `file` has only its handle.
        fn setlk(&self, file: Subject<'_>, owner: LockOwner, lock: Lock, wait: bool) -> ();

        /// Takes or gives up the lock of an open file as a whole (flock(2)); `wait` as in
        /// [`FileSystem::setlk`].
        fn flock(&self, file: Subject<'_>, owner: LockOwner, kind: LockKind, wait: bool) -> ();

        /// The device block that holds a block of a file (FIBMAP), zero where there is none. Only
        /// asked of mounts of a block device.
        fn bmap(&self, path: &Path, block_size: u32, block: u64) -> u64;

        /// What an open file is ready for now (poll(2)), as `POLLIN` and so on. Keep `waiter` to
        /// wake it with [`crate::Notifier::wake_poll`]. By default files are always ready.
        fn poll(&self, file: Subject<'_>, events: u32, waiter: Option<PollHandle>) -> u32;

        /// Allocates, frees, zeroes or shifts a range (fallocate(2)); `mode` is of `FALLOC_FL_*`.
        fn fallocate(&self, file: Subject<'_>, mode: u32, offset: u64, length: u64) -> ();

        /// Copies `length` bytes between open files (copy_file_range(2)). Answers how many were.
        /// By default the kernel reads and writes.
        fn copy_file_range(
            &self,
            from: Subject<'_>,
            offset: u64,
            to: Subject<'_>,
            to_offset: u64,
            length: u64,
        ) -> u64;

        /// Finds data (`whence` `SEEK_DATA`, 3) or a hole (`SEEK_HOLE`, 4) from `offset` on
        /// (lseek(2)). By default a file is all data.
        fn lseek(&self, file: Subject<'_>, offset: u64, whence: u32) -> u64;

        /// Attributes and time of birth (statx(2)); `flags` are of `AT_STATX_*`, `mask` of
        /// `STATX_*`. By default the kernel uses getattr.
        fn statx(&self, subject: Subject<'_>, flags: u32, mask: u32) -> (Attr, Option<Timestamp>);

        /// Puts everything on stable storage (syncfs(2)).
        fn syncfs(&self) -> ();
    }

    /// A device-specific command on an open file (ioctl(2)).
    ///
    /// # Errors
    /// The errno that the caller gets. ENOTTY by default.
    fn ioctl(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        ioctl: &Ioctl<'_>,
    ) -> Result<IoctlAnswer, Errno> {
        let _ = (cx, file, ioctl);
        Err(Errno::NOTTY)
    }
}

impl<'a> Ioctl<'a> {
    pub(crate) fn new(op: &crate::ops::Ioctl<'a>) -> Self {
        Self {
            command: op.command,
            argument: op.argument,
            input: op.input,
            output_size: op.output_size,
            flags: op.flags,
        }
    }
}

/// A device-specific command (ioctl(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ioctl<'a> {
    /// The command.
    pub command: u32,
    /// The third argument of ioctl(2) as the caller passed it.
    pub argument: u64,
    /// What the argument points to, where the command says that it is read.
    pub input: &'a [u8],
    /// How many bytes the caller's buffer takes.
    pub output_size: u32,
    /// Whether the file is a directory, the caller 32-bit, and so on.
    pub flags: IoctlFlags,
}
