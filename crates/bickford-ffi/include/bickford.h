/* The C interface of Bickford, a FUSE framework.
 *
 * Generated from the crate bickford-ffi; change it there and run
 * BICKFORD_UPDATE_HEADER=1 cargo test -p bickford-ffi --test header
 *
 * Every function may be called by any thread. Those that return int32_t return zero or a positive
 * value for success and BICKFORD_ERROR_* else; bickford_last_error() then says what failed.
 *
 * FUSE_* and FOPEN_* are those of <linux/fuse.h>, which is not included here. FUSE_CAP_* of libfuse have other values.
 *
 * A child of fork(2) that does not call execve(2) keeps the devices of all sessions open: mounts of a
 * process that is killed hang until such children have ended, too.
 */

#ifndef BICKFORD_H
#define BICKFORD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// Version of this interface. It changes with every change that an older caller would notice, and not with what is only added:
// functions, options, and members at the end of `bickford_invocation`. Who uses these needs a library as new as its header.
#define BICKFORD_ABI_VERSION 1

// Finds a name in a directory: node, name. Answers an entry.
#define BICKFORD_OP_LOOKUP 1

// The kernel gives lookups back: data is an array of pairs (node, count) of uint64_t, size says
// how many. Not answered.
#define BICKFORD_OP_FORGET 2

// Attributes: node, handle if present. Answers attributes.
#define BICKFORD_OP_GETATTR 3

// Changes attributes: node and whatever is present. Answers attributes.
#define BICKFORD_OP_SETATTR 4

// What a symbolic link says: node. Answers data.
#define BICKFORD_OP_READLINK 5

// Makes a symbolic link: node (directory), name, name2 (target). Answers an entry.
#define BICKFORD_OP_SYMLINK 6

// Makes a file or device node: node (directory), name, mode, rdev, umask. Answers an entry.
#define BICKFORD_OP_MKNOD 8

// Makes a directory: node (directory), name, mode, umask. Answers an entry.
#define BICKFORD_OP_MKDIR 9

// Removes a name: node (directory), name.
#define BICKFORD_OP_UNLINK 10

// Removes an empty directory: node (directory), name.
#define BICKFORD_OP_RMDIR 11

// Renames: node, name, node2, name2, flags (renameat2). Where what it moves has another time of change then,
// `bickford_reply_changed` is to be told.
#define BICKFORD_OP_RENAME 12

// Another name: node, node2 (directory), name. Answers an entry.
#define BICKFORD_OP_LINK 13

// Opens a file: node, flags (open), flags2 (FUSE_OPEN_*). Answers an open file.
#define BICKFORD_OP_OPEN 14

// Reads: node, handle, offset, size, flags. Answers data, or names them (`bickford_reply_range`).
#define BICKFORD_OP_READ 15

// Writes: node, handle, offset, data, size, flags, flags2 (FUSE_WRITE_*). Answers a count.
#define BICKFORD_OP_WRITE 16

// Size and use of the file system: node. Answers statfs.
#define BICKFORD_OP_STATFS 17

// An open file ends: node, handle, lock_owner, flags, flags2 (1: its flock lock, that of the owner, ends).
// Locks of fcntl(2) that FLUSH has not ended, those of the open file itself (F_OFD_SETLK), end too: by the handle.
#define BICKFORD_OP_RELEASE 18

// Stable storage for a file: node, handle, flags2 (1: data only).
#define BICKFORD_OP_FSYNC 20

// Sets an extended attribute: node, name, data, size, flags, flags2 (1: clear set-group-id).
#define BICKFORD_OP_SETXATTR 21

// An extended attribute: node, name, size (room; 0 asks for the length). Answers data, or its
// length as a count when size is 0.
#define BICKFORD_OP_GETXATTR 22

// Names of extended attributes, each with a NUL byte: node, size. Answers as getxattr.
#define BICKFORD_OP_LISTXATTR 23

// Removes an extended attribute: node, name.
#define BICKFORD_OP_REMOVEXATTR 24

// A descriptor was closed: node, handle, lock_owner. Record locks of that owner end here: whoever wants GETLK
// and SETLK wants this, too.
#define BICKFORD_OP_FLUSH 25

// The session begins, and its flags are to be chosen: offset (those of INIT that the kernel offers, as in `bickford_config`), size
// (bytes of data in one request), flags (minor version of the kernel ABI). Answers a count: the flags to want. It has at first what would
// be wanted without this callback, much of which makes the session quicker: add to it, and take from it what does not fit. `FUSE_INIT_EXT` and
// `FUSE_OVER_IO_URING` are the library's, whatever it has. An errno refuses the session, but for ENOSYS, which leaves the flags. It is
// asked once, before mounting has returned, and has no reply to leave for later.
#define BICKFORD_OP_INIT 26

// Opens a directory: node, flags. Answers an open file.
#define BICKFORD_OP_OPENDIR 27

// Lists names: node, handle, offset, size. Answers data: `struct fuse_dirent`s.
#define BICKFORD_OP_READDIR 28

// An open directory ends: node, handle.
#define BICKFORD_OP_RELEASEDIR 29

// Stable storage for a directory: node, handle, flags2 (1: data only).
#define BICKFORD_OP_FSYNCDIR 30

// A lock in the way: node, handle, lock_owner, lock. Answers a lock.
#define BICKFORD_OP_GETLK 31

// Takes or gives up a lock: node, handle, lock_owner, lock, flags2 (1: flock, 2: wait). The kernel leaves
// locks of flock(2) to callbacks that want this, and those of fcntl(2) to ones that want GETLK, too.
#define BICKFORD_OP_SETLK 32

// May the caller use an inode so: node, flags (access).
#define BICKFORD_OP_ACCESS 34

// Makes and opens a file: node (directory), name, mode, umask, flags, flags2 (FUSE_OPEN_*).
// Answers an entry and an open file.
#define BICKFORD_OP_CREATE 35

// Where a block lies: node, offset (number of the block), size (of a block). Answers a count. Asked only where a block
// device is mounted (option `blkdev`).
#define BICKFORD_OP_BMAP 37

// The session has ended; no request follows. Not answered. umount(8) waits for it where a block device is mounted (option
// `blkdev`), and otherwise does not.
#define BICKFORD_OP_DESTROY 38

// A device-specific command: node, handle, flags (FUSE_IOCTL_*), flags2 (command), offset
// (argument), data, size (room for output). Answers a count (what ioctl returns) and data.
#define BICKFORD_OP_IOCTL 39

// What a file is ready for: node, handle, flags2 (events), offset (whom to wake, if present).
// Answers a count (events).
#define BICKFORD_OP_POLL 40

// Allocates or frees a range: node, handle, offset, size, flags (fallocate).
#define BICKFORD_OP_FALLOCATE 43

// As readdir; answers data: `struct fuse_direntplus`s.
#define BICKFORD_OP_READDIRPLUS 44

// Finds data and holes: node, handle, offset, flags (whence). Answers a count (the offset).
#define BICKFORD_OP_LSEEK 46

// Copies: node, handle, offset, node2, handle2, offset2, size, flags. Answers a count.
#define BICKFORD_OP_COPY_FILE_RANGE 47

// Stable storage for everything: node.
#define BICKFORD_OP_SYNCFS 50

// Makes and opens an unnamed file: node (directory), mode, umask, flags. Answers as create.
#define BICKFORD_OP_TMPFILE 51

// Attributes with the time of birth: node, handle if present, flags, flags2 (mask). Answers
// attributes and born.
#define BICKFORD_OP_STATX 52

// In `present`: handle is set.
#define BICKFORD_HAS_HANDLE 1

// In `present`: mode is set (setattr).
#define BICKFORD_HAS_MODE (1 << 1)

// In `present`: `new_uid` is set.
#define BICKFORD_HAS_UID (1 << 2)

// In `present`: `new_gid` is set.
#define BICKFORD_HAS_GID (1 << 3)

// In `present`: size is set (setattr).
#define BICKFORD_HAS_SIZE (1 << 4)

// In `present`: accessed is set.
#define BICKFORD_HAS_ACCESSED (1 << 5)

// In `present`: the time of access becomes the present time.
#define BICKFORD_HAS_ACCESSED_NOW (1 << 6)

// In `present`: modified is set.
#define BICKFORD_HAS_MODIFIED (1 << 7)

// In `present`: the time of modification becomes the present time.
#define BICKFORD_HAS_MODIFIED_NOW (1 << 8)

// In `present`: changed is set.
#define BICKFORD_HAS_CHANGED (1 << 9)

// In `present`: `lock_owner` is set.
#define BICKFORD_HAS_LOCK_OWNER (1 << 10)

// In `present`: set-id bits must be cleared with the change.
#define BICKFORD_HAS_KILL_SUIDGID (1 << 11)

// In `present`: offset names a waiter (poll).
#define BICKFORD_HAS_WAITER (1 << 12)

// The first of the inodes that a layer may make up: its pre-calls answer all operations on them, never
// with ENOSYS, for the kernel then does not ask again, for any file. StackFS has none from here on.
#define BICKFORD_NODE_OF_LAYER 18446744069414584320ull

// A callback returns this when it has taken the reply with `bickford_reply_defer`.
#define BICKFORD_LATER -1

// A pre-call returns this when the answer that it filled in is to be used instead of a call.
#define BICKFORD_ANSWERED -2

// `bickford_session_serve_one` returns this when the session has ended.
#define BICKFORD_ENDED 2

// An argument is not usable; see `bickford_last_error`.
#define BICKFORD_ERROR_ARGUMENT -10

// The operating system refused; see `bickford_last_error`.
#define BICKFORD_ERROR_SYSTEM -11

// The handle names nothing: the reply was completed before, or the session closed.
#define BICKFORD_ERROR_HANDLE -12

// Not over before the timeout.
#define BICKFORD_ERROR_TIMEOUT -13

// A limit was reached.
#define BICKFORD_ERROR_LIMIT -14

// A defect of this library was caught; see `bickford_last_error`.
#define BICKFORD_ERROR_PANIC -15

// In the log: something failed that should not.
#define BICKFORD_LOG_ERROR 1

// In the log: something is not as it should be, but goes on.
#define BICKFORD_LOG_WARNING 2

// In the log: what sessions are served with.
#define BICKFORD_LOG_INFO 3

// In the log: what may help to find a mistake.
#define BICKFORD_LOG_DEBUG 4

// Unmount only when nobody uses the mount.
#define BICKFORD_UNMOUNT_NORMAL 0

// Detach now; the session ends when its last user is gone.
#define BICKFORD_UNMOUNT_LAZY 1

// Abort the connection, then detach.
#define BICKFORD_UNMOUNT_FORCE 2

// Largest answer in bytes.
#define BICKFORD_DATA_MAX (16 << 20)

// The reply of a request during its callback. Not to be used after the callback returned.
typedef struct bickford_reply bickford_reply;

// What `bickford_deferred_on_interrupt` calls.
typedef void (*bickford_interrupted)(void *user, uint64_t handle);

// A point in time since 1970-01-01 00:00 UTC.
typedef struct bickford_time {
  // Seconds; negative before.
  int64_t seconds;
  // Nanoseconds after that second.
  uint32_t nanoseconds;
  // Zero.
  uint32_t reserved;
} bickford_time;

// Attributes of an inode (stat).
typedef struct bickford_attr {
  // Inode number.
  uint64_t ino;
  // Bytes.
  uint64_t size;
  // Allocated units of 512 bytes.
  uint64_t blocks;
  // Last access.
  struct bickford_time accessed;
  // Last modification.
  struct bickford_time modified;
  // Last change of the inode.
  struct bickford_time changed;
  // Type and permissions.
  uint32_t mode;
  // Hard links.
  uint32_t links;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Device number in the kernel's 32-bit form.
  uint32_t rdev;
  // Preferred size of I/O in bytes.
  uint32_t block_size;
  // `FUSE_ATTR_*`.
  uint32_t flags;
  // Zero.
  uint32_t reserved;
} bickford_attr;

// Size and use of a file system (statvfs).
typedef struct bickford_statfs {
  // Blocks in all, of `fragment_size` bytes.
  uint64_t blocks;
  // Free blocks.
  uint64_t blocks_free;
  // Blocks that ordinary users may take.
  uint64_t available;
  // Inodes in all.
  uint64_t files;
  // Free inodes.
  uint64_t files_free;
  // Preferred size of I/O in bytes.
  uint32_t block_size;
  // Longest name in bytes.
  uint32_t name_max;
  // Unit of the block counts in bytes.
  uint32_t fragment_size;
  // Zero.
  uint32_t reserved;
} bickford_statfs;

// An answer. It comes all zero but for `data`, `data_capacity`, the defaults of statfs and
// `lock_kind`, which is no lock; the callback fills in what the operation answers.
typedef struct bickford_answer {
  // Entry: the inode; zero where the name does not exist.
  uint64_t node;
  // Entry: tells apart inodes that had the same number.
  uint64_t generation;
  // Entry: for how many nanoseconds the name stays right.
  uint64_t entry_valid;
  // For how many nanoseconds the attributes stay right.
  uint64_t attr_valid;
  // Attributes.
  struct bickford_attr attr;
  // Open file: its handle.
  uint64_t handle;
  // Open file: `FOPEN_*`.
  uint32_t open_flags;
  // Open file: the backing file, zero for none.
  int32_t backing;
  // Bytes written or copied, an offset, events, a length.
  uint64_t count;
  // Time of birth (statx), if `has_born`.
  struct bickford_time born;
  // Whether the time of birth is known.
  uint32_t has_born;
  // Lock: kind as in the request.
  uint32_t lock_kind;
  // Lock: first byte.
  uint64_t lock_start;
  // Lock: last byte.
  uint64_t lock_end;
  // Lock: holder.
  uint32_t lock_pid;
  // Zero.
  uint32_t reserved;
  // Statfs.
  struct bickford_statfs statfs;
  // Where data is put: a buffer of `data_capacity` bytes, zero at first. Over /dev/fuse the
  // kernel reads that of READ where it is; over io_uring it is copied once, into the ring's
  // buffer. This may be set to other memory, from which the data is then copied when the
  // callback returns.
  uint8_t *data;
  // Size of the buffer in bytes.
  uint64_t data_capacity;
  // How many bytes of it are the answer, from its start on. Those of the buffer that were not
  // written are zero, or what the answer held before a post-call; other memory must have them
  // all. More than `data_capacity` in the buffer is EIO.
  uint64_t data_length;
} bickford_answer;

// What `bickford_log` calls: with `BICKFORD_LOG_*` and a line without its end, NUL-terminated, which is valid
// during the call.
typedef void (*bickford_logger)(void *user, uint32_t level, const char *text);

// What `bickford_notify_retrieve` calls: with where the data begin, the data, and their length.
typedef void (*bickford_retrieved)(void *user, uint64_t offset, const uint8_t *data, uint64_t length);

// How a session is served. All zero but the version means defaults; so does NULL in its place, for a
// caller that knows by `bickford_abi_version` that library and header are of one version.
typedef struct bickford_config {
  // `BICKFORD_ABI_VERSION`.
  uint32_t abi_version;
  // A fixed number of threads that live as long as the session; zero for as many as the load
  // asks for. With one, and where no reply is deferred, callbacks come one at a time, and the command line of a program cannot
  // ask for more.
  uint32_t workers;
  // Bytes of data in one request, 4096 to 1048576; zero for the most.
  uint32_t max_write;
  // Bytes that the kernel may read ahead; zero for what it offers.
  uint32_t max_readahead;
  // Flags of INIT to want, as far as the kernel offers them: `FUSE_*` of `<linux/fuse.h>` as one 64-bit number. The
  // `FUSE_CAP_*` of libfuse have other values from bit 19 on: its `FUSE_CAP_POSIX_ACL` would be `FUSE_HANDLE_KILLPRIV`, with which no
  // ACL is obeyed and set-id bits are left to the file system.
  uint64_t want;
  // Flags of INIT not to want, likewise.
  uint64_t refuse;
} bickford_config;

// A request. Which fields mean something depends on the operation; others are zero. It and
// what it points to is valid during the callback.
typedef struct bickford_request {
  // Number of the request.
  uint64_t unique;
  // `BICKFORD_OP_*`.
  uint32_t operation;
  // Who asks: user for permissions.
  uint32_t uid;
  // Who asks: group for permissions.
  uint32_t gid;
  // Who asks: thread.
  uint32_t pid;
  // The inode or directory.
  uint64_t node;
  // The open file.
  uint64_t handle;
  // Offset in bytes.
  uint64_t offset;
  // Size in bytes.
  uint64_t size;
  // The other inode or directory.
  uint64_t node2;
  // The other open file.
  uint64_t handle2;
  // The other offset.
  uint64_t offset2;
  // Owner of locks.
  uint64_t lock_owner;
  // `BICKFORD_HAS_*`.
  uint32_t present;
  // Flags of the system call.
  uint32_t flags;
  // Further flags.
  uint32_t flags2;
  // Type and permissions; of MKDIR the permissions alone, without the type that the
  // answer has to have.
  uint32_t mode;
  // The caller's umask.
  uint32_t umask;
  // Device number in the kernel's 32-bit form.
  uint32_t rdev;
  // New owner (setattr).
  uint32_t new_uid;
  // New group (setattr).
  uint32_t new_gid;
  // New time of access.
  struct bickford_time accessed;
  // New time of modification.
  struct bickford_time modified;
  // New time of change.
  struct bickford_time changed;
  // The name; not NUL-terminated.
  const uint8_t *name;
  // Length of the name in bytes.
  uint64_t name_length;
  // The other name, or the target of a link.
  const uint8_t *name2;
  // Length of the other name in bytes.
  uint64_t name2_length;
  // The data that came with the request.
  const uint8_t *data;
  // Length of the data in bytes.
  uint64_t data_length;
  // First byte of a lock.
  uint64_t lock_start;
  // Last byte of a lock.
  uint64_t lock_end;
  // `F_RDLCK` 0, `F_WRLCK` 1, `F_UNLCK` 2.
  uint32_t lock_kind;
  // Holder of the lock.
  uint32_t lock_pid;
  // Over paths (`bickford_mount_paths`): the path from the root of the mount, which is `/`, NUL-terminated; NULL where
  // there is none, and otherwise.
  const char *path;
  // Length of the path in bytes, without the NUL byte.
  uint64_t path_length;
  // The other path.
  const char *path2;
  // Length of the other path in bytes.
  uint64_t path2_length;
} bickford_request;

// A callback that serves a request. Returns zero when `answer` is filled in, a positive errno,
// or `BICKFORD_LATER`. Called from several threads at once.
typedef int32_t (*bickford_dispatch)(void *user,
                                     const struct bickford_request *request,
                                     struct bickford_answer *answer,
                                     struct bickford_reply *reply);

// What serves the requests of a file system.
typedef struct bickford_callbacks {
  // Passed to every call. Must stay usable from any thread until `bickford_session_wait` has
  // returned 0 for the session, or mounting has failed.
  void *user;
  // Operations that are wanted: the sum of `UINT64_C(1) << BICKFORD_OP_*`. Others are answered by the
  // library, most with ENOSYS.
  uint64_t operations;
  // The callback.
  bickford_dispatch dispatch;
} bickford_callbacks;

// A name of a directory over paths, and what is known of it.
typedef struct bickford_listed {
  // Where a listing in parts goes on after this name; zero in a listing in one piece.
  uint64_t offset;
  // Its inode number, which is told with the option `use_ino`, or zero. With attributes it is theirs.
  uint64_t ino;
  // Its type, or zero. With attributes it is theirs.
  uint32_t mode;
  // Zero.
  uint32_t reserved;
  // Its attributes, or NULL.
  const struct bickford_attr *attr;
} bickford_listed;

// A flag of a program's own: `--NAME`, and in `-o` without the dashes, but where mount(8) has an option of that name. `--help`
// must not show the name already. One with a value may be given several times.
typedef struct bickford_flag {
  // Without dashes: letters, digits, `-`, `_` and `.`. `NAME|L` for the letter or digit L as well: `-L`. UTF-8, as all these
  // are.
  const char *name;
  // What its value is called in the help, such as `BYTES`; NULL where it has none.
  const char *value;
  // The value that it has where none is given, or NULL.
  const char *initial;
  // What it does, in a line, or NULL.
  const char *help;
} bickford_flag;

// What a command line asks for. The strings stay until the program has ended; the structure and its arrays do not.
typedef struct bickford_invocation {
  // What stands before the mount point, as an absolute path where it is one; the program's name where nothing does.
  const char *source;
  // Where it will be mounted, as given.
  const char *mountpoint;
  // For each flag of the program, in its order, the value, empty for a flag without one, and the last of several; NULL where it
  // is not given and has no initial value.
  const char *const *values;
  // How many they are.
  uint64_t value_count;
  // For each flag all its values, ended by NULL: those in `-o` first, otherwise in the order in which they are given.
  const char *const *const *all_values;
} bickford_invocation;

// Opens what a program serves, in the process that will, before anything is mounted. Directory, terminal and standard input are
// still the caller's, so that it may ask for a password; in the background they are left afterwards. A process that it starts
// stays with the caller's terminal, and ends with ^C or a hangup there, unless it calls setsid(2). Returns zero; or something
// else, with why written to `message`, NUL-terminated, for the user: what failed, on what, and why. Without that a positive
// value is taken for an errno.
typedef int32_t (*bickford_open)(void *user,
                                 const struct bickford_invocation *given,
                                 char *message,
                                 uint64_t room);

// Is told the number of the session once the mount answers, for notifications. It may be waited for by another thread and is
// closed by the program's end.
typedef void (*bickford_begun)(void *user, uint64_t session);

// A program that serves a file system.
typedef struct bickford_program {
  // `BICKFORD_ABI_VERSION`.
  uint32_t abi_version;
  // One where the source is a file or directory: `open` gets its absolute path. Zero for anything else.
  uint32_t source_is_path;
  // In messages, in the log and in /proc/mounts, where the type is `fuse.NAME`.
  const char *name;
  // Its version, or NULL.
  const char *version;
  // What it serves, in a line for the help, or NULL.
  const char *about;
  // What has to stand before the mount point, as the help calls it, such as `FILE.tar`; NULL where nothing has to.
  const char *source;
  // Options as for `bickford_mount`, or over paths for `bickford_mount_paths`, that hold where the command line does not say
  // otherwise; or NULL. With `foreground_only` the background is refused: the program cannot be run again with the command line
  // of its process.
  const char *options;
  // Flags of its own; NULL for none.
  const struct bickford_flag *flags;
  // How many they are.
  uint64_t flag_count;
  // Opens what is served, or NULL. `user` is that of the callbacks.
  bickford_open open;
  // Is told of the session, or NULL.
  bickford_begun begun;
} bickford_program;

// What INIT settled.
typedef struct bickford_negotiated {
  // Minor version of the kernel ABI.
  uint32_t minor;
  // Bytes of data in one request.
  uint32_t max_write;
  // Flags in force: `FUSE_*` of `<linux/fuse.h>`.
  uint64_t flags;
} bickford_negotiated;

// A pre-call: before the system call. It may change the request; memory that it puts there must
// stay valid until its thread is called again. Of WRITE and SETXATTR the length of the data counts, and not
// size; what is longer than the caller asked for is an error, unless a post-call shortens it. Returns zero to
// go on, a positive errno, or `BICKFORD_ANSWERED`. RELEASE and RELEASEDIR reach StackFS after an errno, too, or what they end
// would stay open; a call that answered what opens, with a handle of its own, answers its end.
typedef int32_t (*bickford_pre_call)(void *user,
                                     struct bickford_request *request,
                                     struct bickford_answer *answer);

// A post-call: after the system call, with its result (zero or a positive errno) and answer,
// which it may change. Returns the result. The request is the one that went to StackFS, with names
// and data; data of WRITE only without `metadata_only`. When it makes an error of a success, or leaves names
// out of a READDIRPLUS, StackFS gets back the lookups and the open file that nobody hears of.
typedef int32_t (*bickford_post_call)(void *user,
                                      const struct bickford_request *request,
                                      struct bickford_answer *answer,
                                      int32_t result);

// Pre-calls and post-calls around StackFS. Masks are sums of `UINT64_C(1) << BICKFORD_OP_*`; INIT, FORGET and
// DESTROY have no calls.
typedef struct bickford_layer {
  // Passed to every call. Must stay usable from any thread until `bickford_session_wait` has
  // returned 0 for the session, or mounting has failed.
  void *user;
  // Operations with a pre-call.
  uint64_t pre_operations;
  // Operations that reach StackFS. Others are ENOSYS unless a call answers. RELEASE and
  // RELEASEDIR come with the operations that open.
  uint64_t call_operations;
  // Operations with a post-call.
  uint64_t post_operations;
  // One: data of READ and WRITE stay out of the calls, and a post-call cannot replace what was read.
  uint32_t metadata_only;
  // Zero.
  uint32_t reserved;
  // The pre-call.
  bickford_pre_call pre;
  // The post-call.
  bickford_post_call post;
} bickford_layer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Registers a file that is open as `fd` with the session of a reply, so that the kernel reads and writes
// it for an open file: the answer of an OPEN, CREATE or TMPFILE then has `FOPEN_PASSTHROUGH` in its
// `open_flags`, with none of the others but `FOPEN_DIRECT_IO`, `FOPEN_PARALLEL_DIRECT_WRITES` and
// `FOPEN_NOFLUSH`, and in `backing` what this returns: a number above zero. All opens of an inode at a
// time have to name the same. The kernel does not ask how `fd` was opened: see yourself to it that nobody
// writes who may not. `fd` may be closed at once. `backing` gets a number for
// `bickford_backing_close`, which is for RELEASE: the kernel looks the file up some time after the answer. What is
// left is closed when the session ends. Needs a mount with `max_stack_depth`, Linux 6.9 and CAP_SYS_ADMIN, or it is
// `BICKFORD_ERROR_SYSTEM`.
//
// # Safety
// `reply` came to the callback that runs; `fd` is open; `backing` points to a number.
int32_t bickford_reply_open_backing(struct bickford_reply *reply,
                                    int32_t fd,
                                    uint64_t *backing);

// As `bickford_reply_open_backing`, for a deferred reply that was not completed.
//
// # Safety
// `fd` is open; `backing` points to a number.
int32_t bickford_deferred_open_backing(uint64_t handle, int32_t fd, uint64_t *backing);

// Gives a registered file back, when the last open that names it was released.
int32_t bickford_backing_close(uint64_t backing);

// The groups of the caller of a request, for a file system that checks permissions itself: the one for permissions, then the
// supplementary ones, of which one may be the same. Returns how many they are, which may be more than `room`: no more are written.
// They are read from /proc at each call. Where they cannot be known, it is `BICKFORD_ERROR_SYSTEM`: the caller is in another pid
// namespace or has ended, or acts for somebody else just now, as a server of NFS does.
//
// # Safety
// `reply` came to the callback that runs; `groups` points to `room` numbers.
int32_t bickford_reply_groups(struct bickford_reply *reply,
                              uint32_t *groups,
                              uint64_t room);

// As `bickford_reply_groups`, for a deferred reply that was not completed.
//
// # Safety
// `groups` points to `room` numbers.
int32_t bickford_deferred_groups(uint64_t handle, uint32_t *groups, uint64_t room);

// Takes a reply out of its callback, which then returns `BICKFORD_LATER`. The number that `handle`
// gets is for `bickford_deferred_complete`, from any thread, even before the callback has
// returned. The buffer of the answer stays until then; request and answer do not. A callback that
// returns anything else answers with that, if the reply was not completed yet: the number then means
// nothing, and the buffer is gone.
//
// # Safety
// `reply` came to the callback that runs; `handle` points to a number.
int32_t bickford_reply_defer(struct bickford_reply *reply,
                             uint64_t *handle);

// Whether the caller of the request got a signal: 1 or 0. Such a request should be answered soon,
// with EINTR if nothing was done.
//
// # Safety
// `reply` came to the callback that runs and was not deferred.
int32_t bickford_reply_interrupted(struct bickford_reply *reply);

// The request has changed attributes of a node that it does not name: the time of change of what a RENAME has moved. The
// kernel drops those when it is answered, and is told here to refuse what somebody asked for before, if anybody did.
//
// # Safety
// `reply` came to the callback that runs.
int32_t bickford_reply_changed(struct bickford_reply *reply,
                               uint64_t node);

// As `bickford_reply_changed`, for a deferred reply.
int32_t bickford_deferred_changed(uint64_t handle, uint64_t node);

// As `bickford_reply_interrupted`, for a deferred reply. It is 1 also when the session has ended.
int32_t bickford_deferred_interrupted(uint64_t handle);

// Has `interrupted` called once with `user` and the number of a deferred reply, by any thread, when the caller of its request gets a
// signal, or the connection ends; in here where that has been already. It must not wait, but may complete the reply. A call
// that has begun may go on while the reply is completed elsewhere, when it finds the number to mean nothing; none comes after
// `bickford_session_wait` has returned 0. Asked for again, the later function takes the place of the earlier one.
//
// # Safety
// `interrupted` can be called with `user` until the reply is completed, or such a call has returned.
int32_t bickford_deferred_on_interrupt(uint64_t handle,
                                       bickford_interrupted interrupted,
                                       void *user);

// Fills in an answer for a deferred reply, as the callback saw it when it began, with its
// buffer. Used by one thread at a time, and before the reply is completed.
//
// # Safety
// `answer` points to memory for an answer.
int32_t bickford_deferred_answer(uint64_t handle, struct bickford_answer *answer);

// Completes a deferred reply, once: with `result` zero and an answer, or with a positive errno,
// when `answer` may be NULL. The second time it is `BICKFORD_ERROR_HANDLE`. When nobody waits any more, as
// the caller was killed or the session has ended, it succeeds all the same: each deferred reply is to be
// completed, since its buffer is freed only then.
//
// # Safety
// `answer` is null or an answer whose data is the buffer of the reply, or other memory of as many
// bytes as it says.
int32_t bickford_deferred_complete(uint64_t handle,
                                   int32_t result,
                                   const struct bickford_answer *answer);

// The version of the interface that this library has; compare it with `BICKFORD_ABI_VERSION` of
// the header before all else, as structures of another version may differ. The shared library is
// named after it, too: `libbickford_ffi.so.` and the version.
uint32_t bickford_abi_version(void);

// The version of Bickford, as text that lives for ever.
const char *bickford_version(void);

// What went wrong in the last call of this thread that failed. The text stays until the next
// failure of the thread.
const char *bickford_last_error(void);

// Adds a name to a listing: `struct fuse_dirent` at the end of the answer's data. `mode` tells
// the type. Returns 1 when it was added, 0 when there is no room left: then it has to come with
// the next request, which brings the offset of the last name that was added.
//
// # Safety
// `answer` is the answer of a READDIR, with its own buffer; `name` points to `name_length` bytes.
int32_t bickford_listing_add(struct bickford_answer *answer,
                             const uint8_t *name,
                             uint64_t name_length,
                             uint64_t ino,
                             uint64_t offset,
                             uint32_t mode);

// As `bickford_listing_add` for READDIRPLUS: `entry` is an answer in which the fields of an entry
// are filled in. Its lookup count rises by one if it was added, except for `.` and `..`.
//
// # Safety
// As for `bickford_listing_add`; `entry` is an answer.
int32_t bickford_listing_add_plus(struct bickford_answer *answer,
                                  const uint8_t *name,
                                  uint64_t name_length,
                                  uint64_t offset,
                                  const struct bickford_answer *entry);

// Has `logger` called, with `user`, for each line of the library's log, of all sessions, from
// `BICKFORD_LOG_ERROR` down to `level`: there stands why callers got EIO, such as an answer that is longer
// than what was asked for, or that the kernel does not take. Nobody is told before. A later call takes the
// place of an earlier one; with NULL for `logger` nobody is told any more, but for what is being told. It is
// called by the thread that has something to tell, several at once, and should not wait; what it does
// itself with this interface may have it called again.
//
// # Safety
// `logger` is null or can be called by any thread, with `user`, until the process ends.
int32_t bickford_log(uint32_t level,
                     bickford_logger logger,
                     void *user);

// Drops cached attributes of an inode, and cached data from `offset` on for `length` bytes: a
// negative offset keeps the data, a length of zero means to the end.
int32_t bickford_notify_inode(uint64_t session, uint64_t node, int64_t offset, int64_t length);

// Drops cached attributes of an inode before it returns, and has the kernel refuse those that it has asked for before. It is
// not queued, and may be called for an inode that a request is about before that is answered; there are
// `bickford_reply_changed` and `bickford_deferred_changed` for what a request has changed.
int32_t bickford_notify_attributes(uint64_t session,
                                   uint64_t node);

// Drops a cached name; with `expire` not zero it is only looked up again at its next use.
//
// # Safety
// `name` points to `name_length` bytes.
int32_t bickford_notify_entry(uint64_t session,
                              uint64_t parent,
                              const uint8_t *name,
                              uint64_t name_length,
                              uint32_t expire);

// Drops what is cached of the file at a path of a file system over paths: its attributes, and its data from `offset` on for `length`
// bytes, as `bickford_notify_inode` does. Returns 1 when the kernel knew the path, 0 when there was nothing to drop.
//
// # Safety
// `path` is NUL-terminated.
int32_t bickford_notify_path(uint64_t session,
                             const char *path,
                             int64_t offset,
                             int64_t length);

// Drops the cached name of a path of a file system over paths; with `expire` not zero it is only looked up again at its next use.
// Returns 1 when the kernel knew the directory, 0 when there was nothing to drop.
//
// # Safety
// `path` is NUL-terminated.
int32_t bickford_notify_path_name(uint64_t session,
                                  const char *path,
                                  uint32_t expire);

// A name was removed: drops it and tells those who watch the directory.
//
// # Safety
// `name` points to `name_length` bytes.
int32_t bickford_notify_delete(uint64_t session,
                               uint64_t parent,
                               uint64_t child,
                               const uint8_t *name,
                               uint64_t name_length);

// Puts data into the page cache of an inode.
//
// # Safety
// `data` points to `length` bytes.
int32_t bickford_notify_store(uint64_t session,
                              uint64_t node,
                              uint64_t offset,
                              const uint8_t *data,
                              uint64_t length);

// Asks for data that the kernel has in the page cache of an inode; `receive` is called with them,
// or not at all when the inode is not known.
//
// # Safety
// `receive` can be called by any thread, with `user`, until it was called or
// `bickford_session_wait` has returned 0.
int32_t bickford_notify_retrieve(uint64_t session,
                                 uint64_t node,
                                 uint64_t offset,
                                 uint32_t size,
                                 bickford_retrieved receive,
                                 void *user);

// Lets every cached name of the mount expire: each is looked up again at its next use. Linux before 6.16 does not
// know of it, and does nothing.
int32_t bickford_notify_epoch(uint64_t session);

// Asks the kernel to forget `count` inodes, as far as nobody uses them; `BICKFORD_OP_FORGET` tells of those that it
// forgets. Linux before 6.18 does not know of it, and does nothing.
//
// # Safety
// `nodes` points to `count` numbers.
int32_t bickford_notify_prune(uint64_t session,
                              const uint64_t *nodes,
                              uint64_t count);

// Wakes whoever polls: `waiter` is the offset of the POLL request.
int32_t bickford_notify_poll(uint64_t session, uint64_t waiter);

// Waits until all notifications that were queued before have reached the kernel. Not to be called
// by a callback: the kernel may be waiting for that very request.
int32_t bickford_notify_flush(uint64_t session);

// Mounts a file system over paths that callbacks serve. Requests are as with `bickford_mount`, but for:
//
// - `path` stands where `node` is otherwise, and in place of the directory and `name` where something is made or removed;
//   `path2` is the new name of RENAME and LINK, and the other file of COPY_FILE_RANGE. `name` is that of an extended attribute,
//   `name2` the target of SYMLINK. A path is NULL where an open file has none any more, or with the option `handles_only`;
//   then `handle` is set, in `present`, too. A path stays right until the request is answered: what would rename or remove it
//   waits. It is valid memory during the callback only.
// - There is no LOOKUP, FORGET and READDIRPLUS: names are found by GETATTR, which every file system needs and which answers ENOENT.
//   What makes something answers nothing, or CREATE and TMPFILE an open file; GETATTR comes afterwards.
// - SETATTR comes once for mode, once for the owner, once for size and once for times, and answers nothing. The mode is without its type.
// - READDIR answers by `bickford_reply_list`, or in parts by `bickford_reply_list_at`; with inode numbers, and with attributes in parts, too,
//   by `bickford_reply_list_entry`. `.` and `..` are there by themselves in the first case. `flags` are 1 where attributes are of use.
// - GETXATTR and LISTXATTR have room for the longest value, whatever the caller asked for; they answer data, as READLINK does.
// - CREATE comes with the umask taken off `mode` already. It is exclusive: a name that is there is EEXIST, and a caller who did not say
//   `O_EXCL` then gets what is there, by OPEN. `flags` of both are without `O_CREAT`, `O_EXCL` and `O_TRUNC`, which comes as SETATTR.
// - Where OPEN is not asked for, contents stay cached from one open to the next until size or modification time change.
// - Locks that end with a descriptor or an open file are given up by SETLK, after FLUSH or before RELEASE; RELEASE has no `lock_owner`.
// - `FUSE_ATTR_*`, `node`, `generation`, and what is to be valid for how long, are not of the answer: options say that.
//
// `options` are those of `bickford_mount`, and, as in fuse(8), `entry_timeout`, `attr_timeout` and `negative_timeout` in seconds
// (1, 1 and 0 by default), `direct_io`, `kernel_cache`, `auto_cache`, `noforget`, `use_ino`, `uid`, `gid`, `umask` (octal),
// `hide_removed` (a removed file that is open is renamed until it is closed) and `handles_only` (requests on open files have
// no path, and hold up no rename). Replies can be deferred; a reply that is not completed holds its path. The callback is called on the thread that took
// the request, or, where it had to wait for a path or goes on after a deferred reply, on another one. With the option `at_once` it is
// always that thread, which is kept until the request is answered: no request is made a task, and data that are written are not copied
// for one. That is for callbacks that defer nothing, or hardly anything; such a reply has to be completed when its caller is
// interrupted, as at the end of the connection, for the session to end, and with `driven` by another thread than that which serves,
// since `bickford_session_serve_one` returns only then.
//
// With `use_ino` numbers must be unique among all files, and tell hard links: two files of one type that have several names and one
// number are taken for one, for reading and for writing. Zero, where that cannot be promised (files of another device below), has a
// number made up. With `noforget` file handles (an export over NFS) hold until the session ends.
//
// # Safety
// As for `bickford_mount`.
int32_t bickford_mount_paths(const char *mountpoint,
                             const char *options,
                             const struct bickford_config *config,
                             const struct bickford_callbacks *callbacks,
                             uint64_t *session);

// Adds a name to what a READDIR over paths answers, in one piece: all names, whatever the offset of the request.
// The library keeps them until the directory is closed or rewound. `attr` has the attributes where they are known, which saves
// asking for them as far as the first answer goes (20 to 200 names); without, it is NULL and `mode` tells the type, or is zero. A
// name that no file can have is left out, with a line in the log; a listing of more than 256 MiB is EOVERFLOW.
//
// # Safety
// `reply` came to the callback that runs, and was not deferred; `name` points to `name_length` bytes; `attr` is null or points to
// attributes.
int32_t bickford_reply_list(struct bickford_reply *reply,
                            const uint8_t *name,
                            uint64_t name_length,
                            uint32_t mode,
                            const struct bickford_attr *attr);

// Adds a name to what a READDIR over paths answers, in parts: names from the request's offset on; `offset` is where the listing
// goes on after this one, and not zero. Returns 1 when it was added, 0 when there is no room left: then it has to come with the next request.
//
// # Safety
// As for `bickford_reply_list`.
int32_t bickford_reply_list_at(struct bickford_reply *reply,
                               const uint8_t *name,
                               uint64_t name_length,
                               uint32_t mode,
                               uint64_t offset);

// Adds a name with all that is known of it to what a READDIR over paths answers: as `bickford_reply_list` where `entry->offset` is
// zero, else as `bickford_reply_list_at`, with attributes of all names, not of the first answer alone. Where the request's `flags`
// are not 1, nobody takes attributes. Returns 1 when it was added, 0 when there is no room left.
//
// # Safety
// As for `bickford_reply_list`; `entry` points to a structure, the `attr` of which is null or points to attributes.
int32_t bickford_reply_list_entry(struct bickford_reply *reply,
                                  const uint8_t *name,
                                  uint64_t name_length,
                                  const struct bickford_listed *entry);

// As `bickford_reply_list`, for a deferred reply that was not completed.
//
// # Safety
// `name` points to `name_length` bytes; `attr` is null or points to attributes.
int32_t bickford_deferred_list(uint64_t handle,
                               const uint8_t *name,
                               uint64_t name_length,
                               uint32_t mode,
                               const struct bickford_attr *attr);

// As `bickford_reply_list_at`, for a deferred reply that was not completed.
//
// # Safety
// `name` points to `name_length` bytes.
int32_t bickford_deferred_list_at(uint64_t handle,
                                  const uint8_t *name,
                                  uint64_t name_length,
                                  uint32_t mode,
                                  uint64_t offset);

// As `bickford_reply_list_entry`, for a deferred reply that was not completed.
//
// # Safety
// `name` points to `name_length` bytes; `entry` is as for `bickford_reply_list_entry`.
int32_t bickford_deferred_list_entry(uint64_t handle,
                                     const uint8_t *name,
                                     uint64_t name_length,
                                     const struct bickford_listed *entry);

// What `main` of a program does: reads the command line, mounts a file system that callbacks serve, goes into the background,
// logs, and unmounts when a signal comes. Returns the status for `main`: zero when the mount answers, or with `-f` when it has
// ended. `--help` shows the command line, which is that of mount.fuse3(8) with more; mount(8) and
// fstab(5) can mount it, where it is found in PATH under its name.
//
// The background is the program itself run again, and so is what unmounts when a signal comes: what stands in `main` before this
// happens in each of these processes, and so does what stands after it, in the one that was called when the mount answers: what is
// to be done at the end of the mount belongs into `BICKFORD_OP_DESTROY`.
//
// What is served is opened by `open` in the process that serves. Once the mount answers, the current directory is `/` there: `open`
// makes absolute what is used later of relative paths. It may fill in what is read when it has returned: `config`, `callbacks`, and
// of the program's `options` what is no option of mount.fuse3(8). (`open` and `begun` get the `user` that is there before.)
//
// To be called once, and without `bickford_log`: the log goes where the command line says, and `bickford_log_line` writes to it.
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXFSZ are the library's, but for SIGHUP and SIGUSR1 where the program has a handler by the
// time that `open` has returned; SIGPIPE no longer ends the process, and a handler that the program has for it stays.
//
// # Safety
// `argv` has `argc` NUL-terminated strings; `program` is one, with its strings NUL-terminated and as many flags as it says, and its
// functions can be called with the `user` of the callbacks; `config` and `callbacks` are as for `bickford_mount`. All stays until this
// returns, but for what `open` fills in.
int32_t bickford_program_run(int32_t argc,
                             char *const *argv,
                             const struct bickford_program *program,
                             const struct bickford_config *config,
                             const struct bickford_callbacks *callbacks);

// The same for a file system over paths (`bickford_mount_paths`). `-o` has the options of fuse(8) as well.
//
// # Safety
// As for `bickford_program_run`.
int32_t bickford_program_run_paths(int32_t argc,
                                   char *const *argv,
                                   const struct bickford_program *program,
                                   const struct bickford_config *config,
                                   const struct bickford_callbacks *callbacks);

// Writes a line to the log of a program (`bickford_program_run`), or to who listens to the library's (`bickford_log`): `level` is one of
// `BICKFORD_LOG_*`. In the background nobody sees what is written to standard error. `--log program=debug` names these lines.
//
// # Safety
// `text` is NUL-terminated.
int32_t bickford_log_line(uint32_t level,
                          const char *text);

// Has a READ answered with `size` bytes from `offset` on of the file that is open as `fd`, in place of data in the answer: the callback
// then returns zero. The library reads them as late as it can, or moves pages without a copy. No more are answered than were
// asked for, and fewer where the file ends; an error of pread(2) goes to the caller. Called again, the later range takes the place of
// the earlier one.
//
// `fd` stays open, for reading, until the request is answered. It may not be yet when the callback or
// `bickford_deferred_complete` has returned; it is when RELEASE of the open file comes, or DESTROY. So pass what RELEASE closes, and
// answer with data otherwise: in place of a descriptor that was closed too early another file may be read.
//
// # Safety
// `reply` came to the callback that runs, and was not deferred; `fd` is open until the request is answered.
int32_t bickford_reply_range(struct bickford_reply *reply,
                             int32_t fd,
                             uint64_t offset,
                             uint64_t size);

// As `bickford_reply_range`, for a deferred reply that was not completed; it has to be, with zero.
//
// # Safety
// `fd` is open until the request is answered.
int32_t bickford_deferred_range(uint64_t handle, int32_t fd, uint64_t offset, uint64_t size);

// Mounts a file system that callbacks serve. `options` are those of mount.fuse3(8), `root_kind=directory|file`,
// `transport=auto|dev|uring`, `prompt`, `no_yielding`, `allow_idmap`, `max_stack_depth=1|2`, `driven`, `max_background=N`,
// `congestion_threshold=N`, `request_timeout=SECONDS` and `time_granularity=NANOSECONDS`, with commas between, or NULL;
// `config` may be NULL for the defaults: then no version is checked, and the caller has compared `bickford_abi_version`.
// With `root_kind=file` the root is a regular file, and so has the mount point to be.
// `prompt` says that no call waits for another request of the session, be it by a lock that is
// held until another request comes, or by using what it is mounted on: a thread of io_uring then
// takes several requests at a time while calls are quick. `no_yielding` has threads of io_uring never
// yield to callers, who otherwise stay on their CPU. `allow_idmap` lets mounts be id-mapped, with
// `default_permissions` from Linux 6.12 on; `uid` and `gid` of requests are then `(uint32_t)-1` but where
// something is made. `max_stack_depth` allows backing files (`bickford_reply_open_backing`), with 2 also such that lie
// on an overlay; it rules out the kernel's write-back cache. With `driven` the caller serves (`bickford_session_serve_one`), and
// no thread does. `max_background` and `congestion_threshold` limit requests that
// nobody waits for, `request_timeout` is after how many seconds without an answer the kernel aborts the connection (from Linux
// 6.15 on, else mounting fails; it looks every 15 s, so that less counts as 15), and
// `time_granularity` the resolution of times in nanoseconds. `session` gets the number of the
// session. When this returns, the mount answers, with `driven` once it is served; close the session with `bickford_session_close`.
//
// # Safety
// Strings are NUL-terminated; `config` is null or a configuration; `callbacks` and `session` point
// to such; the callback can be called by any thread until `bickford_session_wait` has returned 0.
int32_t bickford_mount(const char *mountpoint,
                       const char *options,
                       const struct bickford_config *config,
                       const struct bickford_callbacks *callbacks,
                       uint64_t *session);

// Waits until the session has ended: unmounted or aborted, and every call has returned; none comes
// after this has returned 0. With a negative timeout for ever, else for so many milliseconds, then `BICKFORD_ERROR_TIMEOUT`.
int32_t bickford_session_wait(uint64_t session,
                              int64_t milliseconds);

// Unmounts: `mode` is `BICKFORD_UNMOUNT_*`.
int32_t bickford_session_unmount(uint64_t session, uint32_t mode);

// Closes a session: unmounts lazily if it is still mounted. Its number means nothing afterwards,
// unless that failed: then the session is as before. Calls may still come; what they use may go
// when `bickford_session_wait` has returned 0 before. A session that the caller serves ends in any case, whatever
// is open: what the kernel has not written back yet is lost.
int32_t bickford_session_close(uint64_t session);

// The descriptor of a session that was mounted with `driven`, for poll(2) and epoll(7): it can be read where a request waits, and
// has POLLERR, and that alone, when the session has ended; `bickford_session_serve_one` is to be called for both. It is the
// session's, which closes it, and is not to be read.
int32_t bickford_session_fd(uint64_t session);

// Handles a request of a session that was mounted with `driven`, if one waits: the callback is called in here, with
// `BICKFORD_OP_DESTROY` at the end, too. Requests come over /dev/fuse, and `workers` does not count. Returns 1 when it has handled one, 0 when none waits, and `BICKFORD_ENDED` when the session has ended.
// Several threads may call it at a time, and a callback may, but not over paths with `at_once`: there a request that
// changes a name waits for the callbacks that use it, and so for who serves it. Over paths, what goes on after a deferred reply is
// called on a thread of the library all the same, but with `at_once`, and notifications have a thread of their own. A thread that
// alone serves must not use the mount, nor wait for the session, nor unmount it, but with `BICKFORD_UNMOUNT_FORCE`: the kernel may
// have something to write back, and with `blkdev` waits for `BICKFORD_OP_DESTROY`. Closing the session ends it.
int32_t bickford_session_serve_one(uint64_t session);

// The number of the connection in /sys/fs/fuse/connections, or -1 where it is not known.
int64_t bickford_session_connection(uint64_t session);

// What INIT settled.
//
// # Safety
// `negotiated` points to memory for it.
int32_t bickford_session_negotiated(uint64_t session, struct bickford_negotiated *negotiated);

// Mounts a directory through StackFS with calls around its operations. Beside those of
// `bickford_mount` up to `allow_idmap`, `options` may have `preset=base|opt|fast`,
// `io=auto|passthrough|cached|direct|plain`, `lower=exclusive|watch`, `no_xattr`, and, where root
// alone may use the mount, `no_permission_checks`. A layer with calls for READ or WRITE turns
// kernel pass-through off, one with calls for OPEN, OPENDIR or their ends the open without a
// request, and one with calls for FLUSH the close without one. What the kernel does not ask, no call
// sees; with preset=base it asks most. With `lower=watch` other processes may change the source beside the mount: what this
// one changes there, otherwise or through another mount of its own, is not seen.
//
// # Safety
// As for `bickford_mount`; `layer` points to a layer.
int32_t bickford_stackfs_mount(const char *source,
                               const char *mountpoint,
                               const char *options,
                               const struct bickford_config *config,
                               const struct bickford_layer *layer,
                               uint64_t *session);

// A program (`bickford_program_run`) that serves a directory through StackFS with calls around its operations
// (`bickford_stackfs_mount`), whose options its command line has as flags. The program's `source` is what the help calls the
// directory. `layer` is read when `open` has returned, which may fill it in.
//
// # Safety
// As for `bickford_program_run`; `layer` points to a layer.
int32_t bickford_program_run_stackfs(int32_t argc,
                                     char *const *argv,
                                     const struct bickford_program *program,
                                     const struct bickford_config *config,
                                     const struct bickford_layer *layer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BICKFORD_H */
