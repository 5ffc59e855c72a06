//! Backing files: what callers read from and write to an open file, the kernel reads from and writes to a
//! lower one itself.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bickford::Errno;
use bickford::backing::{Backing, Backings};

use crate::abi::{
    BICKFORD_ERROR_HANDLE, BICKFORD_ERROR_LIMIT, BICKFORD_ERROR_SYSTEM, bickford_reply,
};
use crate::deferred::{self, Owner};
use crate::guard::{Failure, guarded};

/// How many files may be registered at once.
const REGISTERED_MAX: usize = 1 << 20;

static REGISTERED: Mutex<Option<HashMap<u64, (Owner, Backing)>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn registered() -> MutexGuard<'static, Option<HashMap<u64, (Owner, Backing)>>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where files are registered for a reply.
pub(crate) struct Registrar {
    pub(crate) owner: Owner,
    pub(crate) backings: Option<Backings>,
}

impl Registrar {
    /// # Safety
    /// `fd` is open, if it is a descriptor at all.
    unsafe fn open(self, fd: i32, out: &mut u64) -> Result<i32, Failure> {
        if fd < 0 {
            return Err(Failure::argument(format!("{fd} is no descriptor")));
        }
        let backings = self
            .backings
            .ok_or_else(|| Failure::argument("the session has ended: no file can be registered"))?;
        // SAFETY: not negative; the rest is the caller's promise.
        let backing = backings
            .open(unsafe { BorrowedFd::borrow_raw(fd) })
            .map_err(|error| refused(&error))?;
        let id = backing.id();
        let mut registered = registered();
        let registered = registered.get_or_insert_default();
        if registered.len() >= REGISTERED_MAX {
            return Err(Failure::new(
                BICKFORD_ERROR_LIMIT,
                format!("{REGISTERED_MAX} backing files are registered already"),
            ));
        }
        *out = NEXT.fetch_add(1, Ordering::Relaxed);
        registered.insert(*out, (self.owner, backing));
        Ok(id)
    }
}

fn refused(error: &io::Error) -> Failure {
    let cure = match Errno::from_io_error(error) {
        Some(Errno::PERM) => {
            "; mount with max_stack_depth=1, from Linux 6.9 on, with CAP_SYS_ADMIN"
        }
        Some(Errno::LOOP) => {
            "; its file system lies on another one, as an overlay does: mount with max_stack_depth=2"
        }
        Some(Errno::NOTTY) => "; pass-through needs Linux 6.9",
        _ => "",
    };
    Failure::new(
        BICKFORD_ERROR_SYSTEM,
        format!("register a backing file: {error}{cure}"),
    )
}

/// The session has ended: its files keep the device open no longer.
pub(crate) fn end(owner: Owner) {
    let ended: Vec<Backing> = registered().as_mut().map_or_else(Vec::new, |registered| {
        let own = registered.extract_if(|_, (registrant, _)| *registrant == owner);
        own.map(|(_, (_, backing))| backing).collect()
    });
    drop(ended);
}

/// Registers a file that is open as `fd` with the session of a reply, so that the kernel reads and writes
/// it for an open file: the answer of an OPEN, CREATE or TMPFILE then has `FOPEN_PASSTHROUGH` in its
/// `open_flags`, with none of the others but `FOPEN_DIRECT_IO`, `FOPEN_PARALLEL_DIRECT_WRITES` and
/// `FOPEN_NOFLUSH`, and in `backing` what this returns: a number above zero. All opens of an inode at a
/// time have to name the same. The kernel does not ask how `fd` was opened: see yourself to it that nobody
/// writes who may not. `fd` may be closed at once. `backing` gets a number for
/// `bickford_backing_close`, which is for RELEASE: the kernel looks the file up some time after the answer. What is
/// left is closed when the session ends. Needs a mount with `max_stack_depth`, Linux 6.9 and CAP_SYS_ADMIN, or it is
/// `BICKFORD_ERROR_SYSTEM`.
///
/// # Safety
/// `reply` came to the callback that runs; `fd` is open; `backing` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_open_backing(
    reply: *mut bickford_reply,
    fd: i32,
    backing: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let out = unsafe { backing.as_mut() }.ok_or_else(no_number)?;
        // SAFETY: as above.
        unsafe { deferred::registrar_in_call(reply)?.open(fd, out) }
    })
}

/// As `bickford_reply_open_backing`, for a deferred reply that was not completed.
///
/// # Safety
/// `fd` is open; `backing` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_open_backing(
    handle: u64,
    fd: i32,
    backing: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { backing.as_mut() }.ok_or_else(no_number)?;
        // SAFETY: as above.
        unsafe { deferred::registrar(handle)?.open(fd, out) }
    })
}

fn no_number() -> Failure {
    Failure::argument("backing is NULL")
}

/// Gives a registered file back, when the last open that names it was released.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_backing_close(backing: u64) -> i32 {
    guarded(|| {
        let closed = registered()
            .as_mut()
            .and_then(|registered| registered.remove(&backing));
        match closed {
            Some(_) => Ok(0),
            None => Err(Failure::new(
                BICKFORD_ERROR_HANDLE,
                format!(
                    "backing file {backing} was closed before, with its session, or never opened"
                ),
            )),
        }
    })
}
