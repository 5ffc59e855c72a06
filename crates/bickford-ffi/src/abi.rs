//! The structures and constants of the C interface. Sizes and meanings are fixed for one
//! `BICKFORD_ABI_VERSION`.
#![allow(non_camel_case_types, reason = "these are the names that C sees")]

mod program;

use std::ffi::{c_char, c_void};

pub use self::program::*;

/// Version of this interface. It changes with every change that an older caller would notice, and not with what is only added:
/// functions, options, and members at the end of `bickford_invocation`. Who uses these needs a library as new as its header.
pub const BICKFORD_ABI_VERSION: u32 = 1;

/// Finds a name in a directory: node, name. Answers an entry.
pub const BICKFORD_OP_LOOKUP: u32 = 1;
/// The kernel gives lookups back: data is an array of pairs (node, count) of uint64_t, size says
/// how many. Not answered.
pub const BICKFORD_OP_FORGET: u32 = 2;
/// Attributes: node, handle if present. Answers attributes.
pub const BICKFORD_OP_GETATTR: u32 = 3;
/// Changes attributes: node and whatever is present. Answers attributes.
pub const BICKFORD_OP_SETATTR: u32 = 4;
/// What a symbolic link says: node. Answers data.
pub const BICKFORD_OP_READLINK: u32 = 5;
/// Makes a symbolic link: node (directory), name, name2 (target). Answers an entry.
pub const BICKFORD_OP_SYMLINK: u32 = 6;
/// Makes a file or device node: node (directory), name, mode, rdev, umask. Answers an entry.
pub const BICKFORD_OP_MKNOD: u32 = 8;
/// Makes a directory: node (directory), name, mode, umask. Answers an entry.
pub const BICKFORD_OP_MKDIR: u32 = 9;
/// Removes a name: node (directory), name.
pub const BICKFORD_OP_UNLINK: u32 = 10;
/// Removes an empty directory: node (directory), name.
pub const BICKFORD_OP_RMDIR: u32 = 11;
/// Renames: node, name, node2, name2, flags (renameat2). Where what it moves has another time of change then,
/// `bickford_reply_changed` is to be told.
pub const BICKFORD_OP_RENAME: u32 = 12;
/// Another name: node, node2 (directory), name. Answers an entry.
pub const BICKFORD_OP_LINK: u32 = 13;
/// Opens a file: node, flags (open), flags2 (FUSE_OPEN_*). Answers an open file.
pub const BICKFORD_OP_OPEN: u32 = 14;
/// Reads: node, handle, offset, size, flags. Answers data, or names them (`bickford_reply_range`).
pub const BICKFORD_OP_READ: u32 = 15;
/// Writes: node, handle, offset, data, size, flags, flags2 (FUSE_WRITE_*). Answers a count.
pub const BICKFORD_OP_WRITE: u32 = 16;
/// Size and use of the file system: node. Answers statfs.
pub const BICKFORD_OP_STATFS: u32 = 17;
/// An open file ends: node, handle, lock_owner, flags, flags2 (1: its flock lock, that of the owner, ends).
/// Locks of fcntl(2) that FLUSH has not ended, those of the open file itself (F_OFD_SETLK), end too: by the handle.
pub const BICKFORD_OP_RELEASE: u32 = 18;
/// Stable storage for a file: node, handle, flags2 (1: data only).
pub const BICKFORD_OP_FSYNC: u32 = 20;
/// Sets an extended attribute: node, name, data, size, flags, flags2 (1: clear set-group-id).
pub const BICKFORD_OP_SETXATTR: u32 = 21;
/// An extended attribute: node, name, size (room; 0 asks for the length). Answers data, or its
/// length as a count when size is 0.
pub const BICKFORD_OP_GETXATTR: u32 = 22;
/// Names of extended attributes, each with a NUL byte: node, size. Answers as getxattr.
pub const BICKFORD_OP_LISTXATTR: u32 = 23;
/// Removes an extended attribute: node, name.
pub const BICKFORD_OP_REMOVEXATTR: u32 = 24;
/// A descriptor was closed: node, handle, lock_owner. Record locks of that owner end here: whoever wants GETLK
/// and SETLK wants this, too.
pub const BICKFORD_OP_FLUSH: u32 = 25;
/// The session begins, and its flags are to be chosen: offset (those of INIT that the kernel offers, as in `bickford_config`), size
/// (bytes of data in one request), flags (minor version of the kernel ABI). Answers a count: the flags to want. It has at first what would
/// be wanted without this callback, much of which makes the session quicker: add to it, and take from it what does not fit. `FUSE_INIT_EXT` and
/// `FUSE_OVER_IO_URING` are the library's, whatever it has. An errno refuses the session, but for ENOSYS, which leaves the flags. It is
/// asked once, before mounting has returned, and has no reply to leave for later.
pub const BICKFORD_OP_INIT: u32 = 26;
/// Opens a directory: node, flags. Answers an open file.
pub const BICKFORD_OP_OPENDIR: u32 = 27;
/// Lists names: node, handle, offset, size. Answers data: `struct fuse_dirent`s.
pub const BICKFORD_OP_READDIR: u32 = 28;
/// An open directory ends: node, handle.
pub const BICKFORD_OP_RELEASEDIR: u32 = 29;
/// Stable storage for a directory: node, handle, flags2 (1: data only).
pub const BICKFORD_OP_FSYNCDIR: u32 = 30;
/// A lock in the way: node, handle, lock_owner, lock. Answers a lock.
pub const BICKFORD_OP_GETLK: u32 = 31;
/// Takes or gives up a lock: node, handle, lock_owner, lock, flags2 (1: flock, 2: wait). The kernel leaves
/// locks of flock(2) to callbacks that want this, and those of fcntl(2) to ones that want GETLK, too.
pub const BICKFORD_OP_SETLK: u32 = 32;
/// May the caller use an inode so: node, flags (access).
pub const BICKFORD_OP_ACCESS: u32 = 34;
/// Makes and opens a file: node (directory), name, mode, umask, flags, flags2 (FUSE_OPEN_*).
/// Answers an entry and an open file.
pub const BICKFORD_OP_CREATE: u32 = 35;
/// Where a block lies: node, offset (number of the block), size (of a block). Answers a count. Asked only where a block
/// device is mounted (option `blkdev`).
pub const BICKFORD_OP_BMAP: u32 = 37;
/// The session has ended; no request follows. Not answered. umount(8) waits for it where a block device is mounted (option
/// `blkdev`), and otherwise does not.
pub const BICKFORD_OP_DESTROY: u32 = 38;
/// A device-specific command: node, handle, flags (FUSE_IOCTL_*), flags2 (command), offset
/// (argument), data, size (room for output). Answers a count (what ioctl returns) and data.
pub const BICKFORD_OP_IOCTL: u32 = 39;
/// What a file is ready for: node, handle, flags2 (events), offset (whom to wake, if present).
/// Answers a count (events).
pub const BICKFORD_OP_POLL: u32 = 40;
/// Allocates or frees a range: node, handle, offset, size, flags (fallocate).
pub const BICKFORD_OP_FALLOCATE: u32 = 43;
/// As readdir; answers data: `struct fuse_direntplus`s.
pub const BICKFORD_OP_READDIRPLUS: u32 = 44;
/// Finds data and holes: node, handle, offset, flags (whence). Answers a count (the offset).
pub const BICKFORD_OP_LSEEK: u32 = 46;
/// Copies: node, handle, offset, node2, handle2, offset2, size, flags. Answers a count.
pub const BICKFORD_OP_COPY_FILE_RANGE: u32 = 47;
/// Stable storage for everything: node.
pub const BICKFORD_OP_SYNCFS: u32 = 50;
/// Makes and opens an unnamed file: node (directory), mode, umask, flags. Answers as create.
pub const BICKFORD_OP_TMPFILE: u32 = 51;
/// Attributes with the time of birth: node, handle if present, flags, flags2 (mask). Answers
/// attributes and born.
pub const BICKFORD_OP_STATX: u32 = 52;

/// In `present`: handle is set.
pub const BICKFORD_HAS_HANDLE: u32 = 1;
/// In `present`: mode is set (setattr).
pub const BICKFORD_HAS_MODE: u32 = 1 << 1;
/// In `present`: `new_uid` is set.
pub const BICKFORD_HAS_UID: u32 = 1 << 2;
/// In `present`: `new_gid` is set.
pub const BICKFORD_HAS_GID: u32 = 1 << 3;
/// In `present`: size is set (setattr).
pub const BICKFORD_HAS_SIZE: u32 = 1 << 4;
/// In `present`: accessed is set.
pub const BICKFORD_HAS_ACCESSED: u32 = 1 << 5;
/// In `present`: the time of access becomes the present time.
pub const BICKFORD_HAS_ACCESSED_NOW: u32 = 1 << 6;
/// In `present`: modified is set.
pub const BICKFORD_HAS_MODIFIED: u32 = 1 << 7;
/// In `present`: the time of modification becomes the present time.
pub const BICKFORD_HAS_MODIFIED_NOW: u32 = 1 << 8;
/// In `present`: changed is set.
pub const BICKFORD_HAS_CHANGED: u32 = 1 << 9;
/// In `present`: `lock_owner` is set.
pub const BICKFORD_HAS_LOCK_OWNER: u32 = 1 << 10;
/// In `present`: set-id bits must be cleared with the change.
pub const BICKFORD_HAS_KILL_SUIDGID: u32 = 1 << 11;
/// In `present`: offset names a waiter (poll).
pub const BICKFORD_HAS_WAITER: u32 = 1 << 12;

/// The first of the inodes that a layer may make up: its pre-calls answer all operations on them, never
/// with ENOSYS, for the kernel then does not ask again, for any file. StackFS has none from here on.
pub const BICKFORD_NODE_OF_LAYER: u64 = 0xffff_ffff_0000_0000;
/// A callback returns this when it has taken the reply with `bickford_reply_defer`.
pub const BICKFORD_LATER: i32 = -1;
/// A pre-call returns this when the answer that it filled in is to be used instead of a call.
pub const BICKFORD_ANSWERED: i32 = -2;

/// `bickford_session_serve_one` returns this when the session has ended.
pub const BICKFORD_ENDED: i32 = 2;

/// An argument is not usable; see `bickford_last_error`.
pub const BICKFORD_ERROR_ARGUMENT: i32 = -10;
/// The operating system refused; see `bickford_last_error`.
pub const BICKFORD_ERROR_SYSTEM: i32 = -11;
/// The handle names nothing: the reply was completed before, or the session closed.
pub const BICKFORD_ERROR_HANDLE: i32 = -12;
/// Not over before the timeout.
pub const BICKFORD_ERROR_TIMEOUT: i32 = -13;
/// A limit was reached.
pub const BICKFORD_ERROR_LIMIT: i32 = -14;
/// A defect of this library was caught; see `bickford_last_error`.
pub const BICKFORD_ERROR_PANIC: i32 = -15;

/// In the log: something failed that should not.
pub const BICKFORD_LOG_ERROR: u32 = 1;
/// In the log: something is not as it should be, but goes on.
pub const BICKFORD_LOG_WARNING: u32 = 2;
/// In the log: what sessions are served with.
pub const BICKFORD_LOG_INFO: u32 = 3;
/// In the log: what may help to find a mistake.
pub const BICKFORD_LOG_DEBUG: u32 = 4;

/// Unmount only when nobody uses the mount.
pub const BICKFORD_UNMOUNT_NORMAL: u32 = 0;
/// Detach now; the session ends when its last user is gone.
pub const BICKFORD_UNMOUNT_LAZY: u32 = 1;
/// Abort the connection, then detach.
pub const BICKFORD_UNMOUNT_FORCE: u32 = 2;

/// Largest answer in bytes.
pub const BICKFORD_DATA_MAX: u64 = 16 << 20;

/// A point in time since 1970-01-01 00:00 UTC.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bickford_time {
    /// Seconds; negative before.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
    /// Zero.
    pub reserved: u32,
}

/// A request. Which fields mean something depends on the operation; others are zero. It and
/// what it points to is valid during the callback.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_request {
    /// Number of the request.
    pub unique: u64,
    /// `BICKFORD_OP_*`.
    pub operation: u32,
    /// Who asks: user for permissions.
    pub uid: u32,
    /// Who asks: group for permissions.
    pub gid: u32,
    /// Who asks: thread.
    pub pid: u32,
    /// The inode or directory.
    pub node: u64,
    /// The open file.
    pub handle: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// The other inode or directory.
    pub node2: u64,
    /// The other open file.
    pub handle2: u64,
    /// The other offset.
    pub offset2: u64,
    /// Owner of locks.
    pub lock_owner: u64,
    /// `BICKFORD_HAS_*`.
    pub present: u32,
    /// Flags of the system call.
    pub flags: u32,
    /// Further flags.
    pub flags2: u32,
    /// Type and permissions; of MKDIR the permissions alone, without the type that the
    /// answer has to have.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Device number in the kernel's 32-bit form.
    pub rdev: u32,
    /// New owner (setattr).
    pub new_uid: u32,
    /// New group (setattr).
    pub new_gid: u32,
    /// New time of access.
    pub accessed: bickford_time,
    /// New time of modification.
    pub modified: bickford_time,
    /// New time of change.
    pub changed: bickford_time,
    /// The name; not NUL-terminated.
    pub name: *const u8,
    /// Length of the name in bytes.
    pub name_length: u64,
    /// The other name, or the target of a link.
    pub name2: *const u8,
    /// Length of the other name in bytes.
    pub name2_length: u64,
    /// The data that came with the request.
    pub data: *const u8,
    /// Length of the data in bytes.
    pub data_length: u64,
    /// First byte of a lock.
    pub lock_start: u64,
    /// Last byte of a lock.
    pub lock_end: u64,
    /// `F_RDLCK` 0, `F_WRLCK` 1, `F_UNLCK` 2.
    pub lock_kind: u32,
    /// Holder of the lock.
    pub lock_pid: u32,
    /// Over paths (`bickford_mount_paths`): the path from the root of the mount, which is `/`, NUL-terminated; NULL where
    /// there is none, and otherwise.
    pub path: *const c_char,
    /// Length of the path in bytes, without the NUL byte.
    pub path_length: u64,
    /// The other path.
    pub path2: *const c_char,
    /// Length of the other path in bytes.
    pub path2_length: u64,
}

impl Default for bickford_request {
    fn default() -> Self {
        // SAFETY: integers and raw pointers, for which all-zero is a value.
        unsafe { std::mem::zeroed() }
    }
}

/// Attributes of an inode (stat).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bickford_attr {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub accessed: bickford_time,
    /// Last modification.
    pub modified: bickford_time,
    /// Last change of the inode.
    pub changed: bickford_time,
    /// Type and permissions.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number in the kernel's 32-bit form.
    pub rdev: u32,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
    /// `FUSE_ATTR_*`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// A name of a directory over paths, and what is known of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_listed {
    /// Where a listing in parts goes on after this name; zero in a listing in one piece.
    pub offset: u64,
    /// Its inode number, which is told with the option `use_ino`, or zero. With attributes it is theirs.
    pub ino: u64,
    /// Its type, or zero. With attributes it is theirs.
    pub mode: u32,
    /// Zero.
    pub reserved: u32,
    /// Its attributes, or NULL.
    pub attr: *const bickford_attr,
}

/// Size and use of a file system (statvfs).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bickford_statfs {
    /// Blocks in all, of `fragment_size` bytes.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks that ordinary users may take.
    pub available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Unit of the block counts in bytes.
    pub fragment_size: u32,
    /// Zero.
    pub reserved: u32,
}

/// An answer. It comes all zero but for `data`, `data_capacity`, the defaults of statfs and
/// `lock_kind`, which is no lock; the callback fills in what the operation answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_answer {
    /// Entry: the inode; zero where the name does not exist.
    pub node: u64,
    /// Entry: tells apart inodes that had the same number.
    pub generation: u64,
    /// Entry: for how many nanoseconds the name stays right.
    pub entry_valid: u64,
    /// For how many nanoseconds the attributes stay right.
    pub attr_valid: u64,
    /// Attributes.
    pub attr: bickford_attr,
    /// Open file: its handle.
    pub handle: u64,
    /// Open file: `FOPEN_*`.
    pub open_flags: u32,
    /// Open file: the backing file, zero for none.
    pub backing: i32,
    /// Bytes written or copied, an offset, events, a length.
    pub count: u64,
    /// Time of birth (statx), if `has_born`.
    pub born: bickford_time,
    /// Whether the time of birth is known.
    pub has_born: u32,
    /// Lock: kind as in the request.
    pub lock_kind: u32,
    /// Lock: first byte.
    pub lock_start: u64,
    /// Lock: last byte.
    pub lock_end: u64,
    /// Lock: holder.
    pub lock_pid: u32,
    /// Zero.
    pub reserved: u32,
    /// Statfs.
    pub statfs: bickford_statfs,
    /// Where data is put: a buffer of `data_capacity` bytes, zero at first. Over /dev/fuse the
    /// kernel reads that of READ where it is; over io_uring it is copied once, into the ring's
    /// buffer. This may be set to other memory, from which the data is then copied when the
    /// callback returns.
    pub data: *mut u8,
    /// Size of the buffer in bytes.
    pub data_capacity: u64,
    /// How many bytes of it are the answer, from its start on. Those of the buffer that were not
    /// written are zero, or what the answer held before a post-call; other memory must have them
    /// all. More than `data_capacity` in the buffer is EIO.
    pub data_length: u64,
}

impl Default for bickford_answer {
    fn default() -> Self {
        // SAFETY: integers and raw pointers, for which all-zero is a value.
        let mut answer: Self = unsafe { std::mem::zeroed() };
        answer.statfs.block_size = 4096;
        answer.statfs.name_max = 255;
        answer.statfs.fragment_size = 4096;
        answer.lock_kind = 2;
        answer
    }
}

/// The reply of a request during its callback. Not to be used after the callback returned.
#[derive(Debug)]
pub struct bickford_reply(());

/// A callback that serves a request. Returns zero when `answer` is filled in, a positive errno,
/// or `BICKFORD_LATER`. Called from several threads at once.
pub type bickford_dispatch = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const bickford_request,
        answer: *mut bickford_answer,
        reply: *mut bickford_reply,
    ) -> i32,
>;

/// What serves the requests of a file system.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_callbacks {
    /// Passed to every call. Must stay usable from any thread until `bickford_session_wait` has
    /// returned 0 for the session, or mounting has failed.
    pub user: *mut c_void,
    /// Operations that are wanted: the sum of `UINT64_C(1) << BICKFORD_OP_*`. Others are answered by the
    /// library, most with ENOSYS.
    pub operations: u64,
    /// The callback.
    pub dispatch: bickford_dispatch,
}

/// A pre-call: before the system call. It may change the request; memory that it puts there must
/// stay valid until its thread is called again. Of WRITE and SETXATTR the length of the data counts, and not
/// size; what is longer than the caller asked for is an error, unless a post-call shortens it. Returns zero to
/// go on, a positive errno, or `BICKFORD_ANSWERED`. RELEASE and RELEASEDIR reach StackFS after an errno, too, or what they end
/// would stay open; a call that answered what opens, with a handle of its own, answers its end.
pub type bickford_pre_call = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *mut bickford_request,
        answer: *mut bickford_answer,
    ) -> i32,
>;

/// A post-call: after the system call, with its result (zero or a positive errno) and answer,
/// which it may change. Returns the result. The request is the one that went to StackFS, with names
/// and data; data of WRITE only without `metadata_only`. When it makes an error of a success, or leaves names
/// out of a READDIRPLUS, StackFS gets back the lookups and the open file that nobody hears of.
pub type bickford_post_call = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const bickford_request,
        answer: *mut bickford_answer,
        result: i32,
    ) -> i32,
>;

/// Pre-calls and post-calls around StackFS. Masks are sums of `UINT64_C(1) << BICKFORD_OP_*`; INIT, FORGET and
/// DESTROY have no calls.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_layer {
    /// Passed to every call. Must stay usable from any thread until `bickford_session_wait` has
    /// returned 0 for the session, or mounting has failed.
    pub user: *mut c_void,
    /// Operations with a pre-call.
    pub pre_operations: u64,
    /// Operations that reach StackFS. Others are ENOSYS unless a call answers. RELEASE and
    /// RELEASEDIR come with the operations that open.
    pub call_operations: u64,
    /// Operations with a post-call.
    pub post_operations: u64,
    /// One: data of READ and WRITE stay out of the calls, and a post-call cannot replace what was read.
    pub metadata_only: u32,
    /// Zero.
    pub reserved: u32,
    /// The pre-call.
    pub pre: bickford_pre_call,
    /// The post-call.
    pub post: bickford_post_call,
}

/// How a session is served. All zero but the version means defaults; so does NULL in its place, for a
/// caller that knows by `bickford_abi_version` that library and header are of one version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bickford_config {
    /// `BICKFORD_ABI_VERSION`.
    pub abi_version: u32,
    /// A fixed number of threads that live as long as the session; zero for as many as the load
    /// asks for. With one, and where no reply is deferred, callbacks come one at a time, and the command line of a program cannot
    /// ask for more.
    pub workers: u32,
    /// Bytes of data in one request, 4096 to 1048576; zero for the most.
    pub max_write: u32,
    /// Bytes that the kernel may read ahead; zero for what it offers.
    pub max_readahead: u32,
    /// Flags of INIT to want, as far as the kernel offers them: `FUSE_*` of `<linux/fuse.h>` as one 64-bit number. The
    /// `FUSE_CAP_*` of libfuse have other values from bit 19 on: its `FUSE_CAP_POSIX_ACL` would be `FUSE_HANDLE_KILLPRIV`, with which no
    /// ACL is obeyed and set-id bits are left to the file system.
    pub want: u64,
    /// Flags of INIT not to want, likewise.
    pub refuse: u64,
}

/// What INIT settled.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bickford_negotiated {
    /// Minor version of the kernel ABI.
    pub minor: u32,
    /// Bytes of data in one request.
    pub max_write: u32,
    /// Flags in force: `FUSE_*` of `<linux/fuse.h>`.
    pub flags: u64,
}

/// What `bickford_log` calls: with `BICKFORD_LOG_*` and a line without its end, NUL-terminated, which is valid
/// during the call.
pub type bickford_logger =
    Option<unsafe extern "C" fn(user: *mut c_void, level: u32, text: *const c_char)>;

/// What `bickford_deferred_on_interrupt` calls.
pub type bickford_interrupted = Option<unsafe extern "C" fn(user: *mut c_void, handle: u64)>;

/// What `bickford_notify_retrieve` calls: with where the data begin, the data, and their length.
pub type bickford_retrieved =
    Option<unsafe extern "C" fn(user: *mut c_void, offset: u64, data: *const u8, length: u64)>;
