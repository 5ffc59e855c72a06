//! File systems over paths: callbacks whose requests name paths instead of nodes.

mod asked;
mod executor;
pub mod listing;
mod operations;
pub(crate) mod options;

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bickford::path::future::Adapter;
use bickford::path::{Listing, Subject};
use bickford::{Context, Errno};

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
/// - READDIR answers by `bickford_reply_list`, or in parts by `bickford_reply_list_at`. `.` and `..` are there by themselves in the first case.
/// - GETXATTR and LISTXATTR have room for the longest value, whatever the caller asked for; they answer data, as READLINK does.
/// - CREATE comes with the umask taken off `mode` already. OPEN has no `O_TRUNC`: it comes as SETATTR.
/// - `FUSE_ATTR_*`, `node`, `generation`, and what is to be valid for how long, are not of the answer: options say that.
///
/// `options` are those of `bickford_mount`, and, as in fuse(8), `entry_timeout`, `attr_timeout` and `negative_timeout` in seconds
/// (1, 1 and 0 by default), `direct_io`, `kernel_cache`, `auto_cache`, `noforget`, `use_ino`, `uid`, `gid`, `umask` (octal),
/// `hide_removed` (a removed file that is open is renamed until it is closed) and `handles_only` (requests on open files have
/// no path, and hold up no rename). Replies can be deferred; a reply that is not completed holds its path. The callback is called on the thread that took
/// the request, or, where it had to wait for a path or goes on after a deferred reply, on another one.
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
        let executor = Executor::default();
        let filesystem = PathCallbacks {
            callbacks,
            executor: executor.clone(),
        };
        let adapter = Adapter::new(filesystem, mount.options.paths, executor);
        let names = adapter.names();
        mount.serve(adapter, Some(names), |_| Ok(None))
    })
}
