//! The one list of operations over paths, from which both traits and the bridge between them derive.

/// Calls the macro `$apply` with a row per operation:
/// `documentation fn method(arguments) -> answer, errno by default;`
macro_rules! for_each_path_operation {
    ($apply:ident) => {
        $apply! {
            /// Attributes (stat(2)); ENOENT where there is nothing. The only method that every file
            /// system needs. The inode number counts with [`crate::path::Options::use_ino`] only.
            fn getattr(subject: Subject<'_>) -> Attr, Errno::NOSYS;

            /// What a symbolic link says (readlink(2)).
            fn readlink(path: &Path) -> Vec<u8>, Errno::NOSYS;

            /// Makes a regular file, device node, FIFO or socket (mknod(2)).
            fn mknod(path: &Path, new: New) -> (), Errno::NOSYS;

            /// Makes a directory (mkdir(2)).
            fn mkdir(path: &Path, new: New) -> (), Errno::NOSYS;

            /// Removes a name of something that is no directory (unlink(2)). Open files of it go on
            /// being used by their handles.
            fn unlink(path: &Path) -> (), Errno::NOSYS;

            /// Removes an empty directory (rmdir(2)).
            fn rmdir(path: &Path) -> (), Errno::NOSYS;

            /// Makes a symbolic link at `path` that says `target` (symlink(2)).
            fn symlink(path: &Path, target: &CStr) -> (), Errno::NOSYS;

            /// Renames, or with [`rustix::fs::RenameFlags::EXCHANGE`] exchanges (rename(2), renameat2(2)). Flags
            /// that are not known are to be answered with EINVAL.
            fn rename(from: &Path, to: &Path, flags: RenameFlags) -> (), Errno::NOSYS;

            /// Gives a file another name (link(2)). One without a name (`tmpfile`) comes by its handle and
            /// gets its first.
            fn link(existing: Subject<'_>, new: &Path) -> (), Errno::NOSYS;

            /// Sets permissions (chmod(2)); the type bits of `mode` are zero.
            fn chmod(subject: Subject<'_>, mode: u32) -> (), Errno::NOSYS;

            /// Sets owner and group (chown(2)).
            fn chown(subject: Subject<'_>, owner: Owner) -> (), Errno::NOSYS;

            /// Sets the size in bytes (truncate(2), ftruncate(2)). open(2) with O_TRUNC comes here
            /// after `open` has answered, by the path and without the handle, before the caller has
            /// the file.
            fn truncate(subject: Subject<'_>, size: u64) -> (), Errno::NOSYS;

            /// Sets times (utimensat(2)).
            fn utimens(subject: Subject<'_>, times: Times) -> (), Errno::NOSYS;

            /// Opens a file (open(2)). By default with handle zero; where the kernel can do without
            /// asking, it does, and keeps contents until size or modification time change
            /// ([`crate::docs::caching`]).
            fn open(path: &Path, open: Open) -> Opened, Errno::NOSYS;

            /// Makes a regular file and opens it (open(2) with O_CREAT). A name that is there is
            /// EEXIST, whether or not the caller said O_EXCL: who did not gets what is there, by `open`. By
            /// default the kernel uses mknod and open.
            fn create(path: &Path, new: New, open: Open) -> Opened, Errno::NOSYS;

            /// Makes a file without a name in the directory `path`, and opens it (O_TMPFILE).
            fn tmpfile(path: &Path, new: New, open: Open) -> Opened, Errno::NOSYS;

            /// Reads `size` bytes at `offset` (pread(2)). Fewer mean the end of the file, except with
            /// direct I/O.
            fn read(file: Subject<'_>, offset: u64, size: u32) -> Data, Errno::NOSYS;

            /// Writes at `offset` (pwrite(2)). Answers how many bytes were written.
            fn write(file: Subject<'_>, offset: u64, data: Payload<'_>) -> u32, Errno::NOSYS;

            /// Size and use of the file system (statfs(2)). By default: nothing is known.
            fn statfs(path: &Path) -> StatfsAnswer, Errno::NOSYS;

            /// A descriptor of an open file was closed (close(2) gets the error); others may remain.
            fn flush(file: Subject<'_>, owner: LockOwner) -> (), Errno::NOSYS;

            /// An open file ends: the last call for its handle. Its error reaches nobody.
            fn release(file: Subject<'_>) -> (), Errno::NOSYS;

            /// Puts a file on stable storage; with `data_only` as fdatasync(2).
            fn fsync(file: Subject<'_>, data_only: bool) -> (), Errno::NOSYS;

            /// Sets an extended attribute (setxattr(2)). ACLs are attributes, too
            /// (`system.posix_acl_access`): a file system whose permissions the kernel checks wants
            /// [`bickford_abi::InitFlags::POSIX_ACL`], or refuses them with EOPNOTSUPP. What is kept
            /// otherwise is obeyed by nobody.
            fn setxattr(subject: Subject<'_>, xattr: SetXattr<'_>) -> (), Errno::NOSYS;

            /// The value of an extended attribute (getxattr(2)); ENODATA where there is none.
            fn getxattr(subject: Subject<'_>, name: &CStr) -> Vec<u8>, Errno::NOSYS;

            /// The names of the extended attributes, each followed by a NUL byte (listxattr(2)).
            fn listxattr(subject: Subject<'_>) -> Vec<u8>, Errno::NOSYS;

            /// Removes an extended attribute (removexattr(2)).
            fn removexattr(subject: Subject<'_>, name: &CStr) -> (), Errno::NOSYS;

            /// Opens a directory (opendir(3)). By default with handle zero.
            fn opendir(path: &Path) -> Opened, Errno::NOSYS;

            /// Lists a directory. See [`crate::path::Listing`] for the two ways to answer.
            fn readdir(directory: Subject<'_>, listing: &mut Listing) -> (), Errno::NOSYS;

            /// An open directory ends.
            fn releasedir(directory: Subject<'_>) -> (), Errno::NOSYS;

            /// Puts a directory on stable storage.
            fn fsyncdir(directory: Subject<'_>, data_only: bool) -> (), Errno::NOSYS;

            /// Whether the caller may use the path so (access(2)): `mask` is `F_OK`, or of `R_OK`,
            /// `W_OK` and `X_OK`. Not asked with `default_permissions`.
            fn access(subject: Subject<'_>, mask: u32) -> (), Errno::NOSYS;

            /// The lock that stands in the way of `lock`, or [`crate::ops::Lock::none`] (fcntl(2) F_GETLK).
            fn getlk(file: Subject<'_>, owner: LockOwner, lock: Lock) -> Lock, Errno::NOSYS;

            /// Takes or gives up a record lock (fcntl(2) F_SETLK). When a descriptor is closed, those of
            /// its owner are given up, after `flush`, whether there are any or not; those of an open file itself
            /// (`F_OFD_SETLK`) before the `release` of its handle, with the last open where opens share one. More than 65,536
            /// open files through which locks were taken are ENOLCK. With `wait` it may take as long as
            /// it needs (F_SETLKW), and no path is held then: `file` has only its handle.
            fn setlk(file: Subject<'_>, owner: LockOwner, lock: Lock, wait: bool) -> (), Errno::NOSYS;

            /// Takes or gives up the lock of an open file as a whole (flock(2)); `wait` as in
            /// `setlk`. It is given up before `release` of a file that had one.
            fn flock(file: Subject<'_>, owner: LockOwner, kind: LockKind, wait: bool) -> (), Errno::NOSYS;

            /// The device block that holds a block of a file (FIBMAP), zero where there is none. Only
            /// asked of mounts of a block device ([`MountOptions::block_device`](crate::MountOptions::block_device)).
            fn bmap(path: &Path, block_size: u32, block: u64) -> u64, Errno::NOSYS;

            /// What an open file is ready for now (poll(2)), as `POLLIN` and so on. Keep `waiter` to
            /// wake it with [`crate::Notifier::wake_poll`]. By default files are always ready.
            fn poll(file: Subject<'_>, events: u32, waiter: Option<PollHandle>) -> u32, Errno::NOSYS;

            /// Allocates, frees, zeroes or shifts a range (fallocate(2)).
            fn fallocate(file: Subject<'_>, range: Allocation) -> (), Errno::NOSYS;

            /// Copies `length` bytes between open files (copy_file_range(2)). Answers how many were.
            /// By default the kernel reads and writes.
            fn copy_file_range(
                from: Subject<'_>,
                offset: u64,
                to: Subject<'_>,
                to_offset: u64,
                length: u64,
            ) -> u64, Errno::NOSYS;

            /// Finds data (`whence` `SEEK_DATA`, 3) or a hole (`SEEK_HOLE`, 4) from `offset` on
            /// (lseek(2)). By default a file is all data.
            fn lseek(file: Subject<'_>, offset: u64, whence: u32) -> u64, Errno::NOSYS;

            /// Attributes and time of birth (statx(2)). By default the kernel uses getattr.
            fn statx(subject: Subject<'_>, statx: Statx) -> (Attr, Option<Timestamp>), Errno::NOSYS;

            /// Puts everything on stable storage (syncfs(2)).
            fn syncfs() -> (), Errno::NOSYS;

            /// A device-specific command on an open file (ioctl(2)).
            fn ioctl(file: Subject<'_>, ioctl: &Ioctl<'_>) -> IoctlAnswer, Errno::NOTTY;
        }
    };
}

pub(crate) use for_each_path_operation;
