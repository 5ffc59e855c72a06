//! File systems over paths: callbacks whose requests name paths instead of nodes.

mod asked;
mod executor;
pub mod listing;
mod operations;

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bickford::path::future::{Adapter, Waiting};
use bickford::path::{self, Listing, Names, Subject};
use bickford::{Context, Errno, FileSystem};

use self::asked::{Asked, ask};
use self::executor::Executor;
use crate::abi::{bickford_answer, bickford_callbacks, bickford_config, bickford_request};
use crate::answer::{Buffer, FromFlat};
use crate::dispatch::{Callbacks, request};
use crate::guard::guarded;
use crate::options::Options;
use crate::parameters::put_handle;
use crate::session::Mount;

/// What a callback lists.
struct Listed(Listing);

impl FromFlat for Listed {
    unsafe fn from_flat(
        _: &bickford_answer,
        _: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno> {
        buffer.listing.map(Self).ok_or(Errno::IO)
    }
}

/// A value as long as there is room.
impl FromFlat for Vec<u8> {
    fn room(request: &bickford_request) -> u64 {
        request.size
    }

    unsafe fn from_flat(
        answer: &bickford_answer,
        _: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        unsafe { buffer.take(answer) }
    }
}

/// Serves requests over paths by a callback.
struct PathCallbacks {
    callbacks: Callbacks,
    executor: Executor,
}

impl PathCallbacks {
    /// Asks the callback, if it wants the operation, about a file; `fill` adds what else there is to the request.
    fn ask<A: FromFlat>(
        &self,
        cx: &Context<'_>,
        operation: u32,
        about: Subject<'_>,
        fill: impl FnOnce(&mut bickford_request),
    ) -> Asked<A> {
        self.ask_with(cx, operation, about, fill, |request| {
            Buffer::with_room(A::room(request))
        })
    }

    fn ask_with<A: FromFlat>(
        &self,
        cx: &Context<'_>,
        operation: u32,
        about: Subject<'_>,
        fill: impl FnOnce(&mut bickford_request),
        buffer: impl FnOnce(&bickford_request) -> Result<Buffer, Errno>,
    ) -> Asked<A> {
        if !self.callbacks.wants(operation) {
            return Asked::error(Errno::NOSYS);
        }
        let Ok(path) = about.path().ok().map(c_path).transpose() else {
            return Asked::error(Errno::INVAL);
        };
        let mut request = request(cx, operation);
        if let Some(path) = &path {
            request.path = path.as_ptr();
            request.path_length = path.as_bytes().len() as u64;
        }
        put_handle(&mut request, about.handle());
        fill(&mut request);
        let buffer = match buffer(&request) {
            Ok(buffer) => buffer,
            Err(errno) => return Asked::error(errno),
        };
        let (asked, promise) = ask();
        self.callbacks.dispatch(cx, &request, buffer, promise);
        asked
    }

    /// As `ask`, with a second path.
    fn ask_both<A: FromFlat>(
        &self,
        cx: &Context<'_>,
        operation: u32,
        about: Subject<'_>,
        second: Option<&Path>,
        fill: impl FnOnce(&mut bickford_request),
    ) -> Asked<A> {
        let Ok(second) = second.map(c_path).transpose() else {
            return Asked::error(Errno::INVAL);
        };
        self.ask(cx, operation, about, |request| {
            if let Some(second) = &second {
                request.path2 = second.as_ptr();
                request.path2_length = second.as_bytes().len() as u64;
            }
            fill(request);
        })
    }
}

/// EINVAL for what is no path; the kernel has none with a NUL byte.
fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
}

/// Mounts a file system over paths that callbacks serve. Requests are as with `bickford_mount`, but for:
///
/// - `path` stands where `node` is otherwise, and in place of the directory and `name` where something is made or removed;
///   `path2` is the new name of RENAME and LINK, and the other file of COPY_FILE_RANGE. `name` is that of an extended attribute,
///   `name2` the target of SYMLINK. A path is NULL where an open file has none any more, or with the option `handles_only`;
///   then `handle` is set, in `present`, too. A path stays right until the request is answered: what would rename or remove it
///   waits. It is valid memory during the callback only.
/// - There is no LOOKUP, FORGET and READDIRPLUS: names are found by GETATTR, which every file system needs and which answers ENOENT.
///   What makes something answers nothing, or CREATE and TMPFILE an open file; GETATTR comes afterwards.
/// - SETATTR comes once for mode, once for the owner, once for size and once for times, and answers nothing. The mode is without its type.
/// - READDIR answers by `bickford_reply_list`, or in parts by `bickford_reply_list_at`; with inode numbers, and with attributes in parts, too,
///   by `bickford_reply_list_entry`. `.` and `..` are there by themselves in the first case. `flags` are 1 where attributes are of use.
/// - GETXATTR and LISTXATTR have room for the longest value, whatever the caller asked for; they answer data, as READLINK does.
/// - CREATE comes with the umask taken off `mode` already. It is exclusive: a name that is there is EEXIST, and a caller who did not say
///   `O_EXCL` then gets what is there, by OPEN. `flags` of both are without `O_CREAT`, `O_EXCL` and `O_TRUNC`, which comes as SETATTR.
/// - Where OPEN is not asked for, contents stay cached from one open to the next until size or modification time change.
/// - Locks that end with a descriptor or an open file are given up by SETLK, after FLUSH or before RELEASE; RELEASE has no `lock_owner`.
/// - `FUSE_ATTR_*`, `node`, `generation`, and what is to be valid for how long, are not of the answer: options say that.
///
/// `options` are those of `bickford_mount`, and, as in fuse(8), `entry_timeout`, `attr_timeout` and `negative_timeout` in seconds
/// (1, 1 and 0 by default), `direct_io`, `kernel_cache`, `auto_cache`, `noforget`, `use_ino`, `uid`, `gid`, `umask` (octal),
/// `hide_removed` (a removed file that is open is renamed until it is closed) and `handles_only` (requests on open files have
/// no path, and hold up no rename). Replies can be deferred; a reply that is not completed holds its path. The callback is called on the thread that took
/// the request, or, where it had to wait for a path or goes on after a deferred reply, on another one. With the option `at_once` it is
/// always that thread, which is kept until the request is answered: no request is made a task, and data that are written are not copied
/// for one. That is for callbacks that defer nothing, or hardly anything; such a reply has to be completed when its caller is
/// interrupted, as at the end of the connection, for the session to end, and with `driven` by another thread than that which serves,
/// since `bickford_session_serve_one` returns only then.
///
/// With `use_ino` numbers must be unique among all files, and tell hard links: two files of one type that have several names and one
/// number are taken for one, for reading and for writing. Zero, where that cannot be promised (files of another device below), has a
/// number made up. With `noforget` file handles (an export over NFS) hold until the session ends.
///
/// # Safety
/// As for `bickford_mount`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_mount_paths(
    mountpoint: *const c_char,
    options: *const c_char,
    config: *const bickford_config,
    callbacks: *const bickford_callbacks,
    session: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let mount =
            unsafe { Mount::new(mountpoint, options, config, session, Options::for_paths) }?;
        // SAFETY: as above.
        let callbacks = unsafe { mount.callbacks(callbacks) }?;
        let (filesystem, names) = over_paths(callbacks, mount.options.paths, mount.options.at_once);
        mount.serve(filesystem, Some(names), |_| Ok(None))
    })
}

/// A file system over paths that callbacks serve; `at_once` as in the options.
pub(crate) fn over_paths(
    callbacks: Callbacks,
    options: path::Options,
    at_once: bool,
) -> (Box<dyn FileSystem>, Names) {
    let executor = Executor::default();
    let filesystem = PathCallbacks {
        callbacks,
        executor: executor.clone(),
    };
    if at_once {
        let adapter = Waiting::new(filesystem, options);
        let names = adapter.names();
        return (Box::new(adapter), names);
    }
    let adapter = Adapter::new(filesystem, options, executor);
    let names = adapter.names();
    (Box::new(adapter), names)
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicU64, Ordering};

    use bickford::abi::Opcode;
    use bickford::transport::memory::Kernel;

    use super::*;
    use crate::abi::*;
    use crate::deferred::*;
    use crate::operations::bit;

    #[derive(Default)]
    struct Seen {
        /// The number of the reply that was left for later.
        owed: AtomicU64,
        calls: AtomicU64,
        destroyed: AtomicU64,
    }

    /// Leaves MKDIR for later, and counts.
    unsafe extern "C" fn leave(
        user: *mut c_void,
        request: *const bickford_request,
        answer: *mut bickford_answer,
        reply: *mut bickford_reply,
    ) -> i32 {
        // SAFETY: the test passed what was seen; the other arguments live during the call.
        let (seen, request, answer) = unsafe { (&*user.cast::<Seen>(), &*request, &mut *answer) };
        if request.operation == BICKFORD_OP_DESTROY {
            seen.destroyed.fetch_add(1, Ordering::SeqCst);
            return 0;
        }
        assert_eq!(seen.destroyed.load(Ordering::SeqCst), 0);
        seen.calls.fetch_add(1, Ordering::SeqCst);
        if request.operation == BICKFORD_OP_MKDIR {
            let mut handle = 0;
            // SAFETY: the reply is that of this call.
            assert_eq!(unsafe { bickford_reply_defer(reply, &raw mut handle) }, 0);
            seen.owed.store(handle, Ordering::SeqCst);
            return BICKFORD_LATER;
        }
        answer.attr.mode = 0o040_755;
        0
    }

    fn kernel(seen: &Seen) -> Kernel {
        let callbacks = bickford_callbacks {
            user: std::ptr::from_ref(seen).cast_mut().cast(),
            operations: [BICKFORD_OP_MKDIR, BICKFORD_OP_GETATTR, BICKFORD_OP_DESTROY]
                .map(bit)
                .iter()
                .sum(),
            dispatch: Some(leave),
        };
        let options = Options::for_paths("").unwrap();
        let config = bickford_config::default();
        let executor = Executor::default();
        let filesystem = PathCallbacks {
            callbacks: Callbacks::new(&callbacks, leave, config, &options),
            executor: executor.clone(),
        };
        let mut kernel = Kernel::new(Adapter::new(filesystem, path::Options::default(), executor));
        assert_eq!(kernel.init().unwrap().error, 0);
        kernel
    }

    const MKDIR: &[u8] = b"\0\0\0\0\0\0\0\0new\0";

    #[test]
    fn what_waits_for_an_answer_goes_on_with_it() {
        let seen = Seen::default();
        let mut kernel = kernel(&seen);
        let sent = [
            kernel.send(Opcode::Mkdir, 1, MKDIR),
            kernel.send(Opcode::Lookup, 1, b"new\0"),
        ];
        assert_eq!(seen.calls.load(Ordering::SeqCst), 1, "the other waits");
        let owed = seen.owed.load(Ordering::SeqCst);
        let answer = bickford_answer::default();
        // SAFETY: the answer has no data.
        let code = unsafe { bickford_deferred_complete(owed, 0, &raw const answer) };
        assert_eq!(code, 0);
        for unique in sent {
            assert_eq!(kernel.answer(unique).unwrap().error, 0);
        }
        assert_eq!(seen.calls.load(Ordering::SeqCst), 3);
        kernel.server().destroy();
    }

    #[test]
    fn nothing_is_called_after_the_session_has_ended() {
        let seen = Seen::default();
        let mut kernel = kernel(&seen);
        kernel.send(Opcode::Mkdir, 1, MKDIR);
        kernel.send(Opcode::Lookup, 1, b"new\0");
        assert_eq!(kernel.server().in_flight().len(), 2);
        kernel.server().destroy();
        assert_eq!(seen.destroyed.load(Ordering::SeqCst), 1);
        let owed = seen.owed.load(Ordering::SeqCst);
        assert_eq!(bickford_deferred_interrupted(owed), 1);
        // SAFETY: without an answer.
        let code = unsafe { bickford_deferred_complete(owed, 2, std::ptr::null()) };
        assert_eq!(code, 0);
        assert_eq!(kernel.server().in_flight().len(), 0);
        assert_eq!(seen.calls.load(Ordering::SeqCst), 1);
    }
}
