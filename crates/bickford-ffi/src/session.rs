//! Sessions: mounting, waiting, unmounting.

use std::collections::HashMap;
use std::ffi::{OsStr, c_char};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bickford::mount::{self, Unmount};
use bickford::path::Names;
use bickford::session::SessionError;
use bickford::{Driver, FileSystem, MountedSession, Served, Session};
use bickford_stackfs::LowerWatch;

use crate::abi::*;
use crate::dispatch::Callbacks;
use crate::guard::{Failure, guarded, text};
use crate::options::Options;

/// A mount and whether its session is over.
pub(crate) struct Held {
    pub(crate) mounted: Arc<MountedSession>,
    /// Of a file system over paths.
    pub(crate) names: Option<Names>,
    /// Until it is closed, where the caller serves.
    driver: Mutex<Option<Arc<Driver>>>,
    ended: Mutex<bool>,
    changed: Condvar,
    /// What waits for the end.
    waiter: Mutex<Option<JoinHandle<()>>>,
}

/// The number of a session, which means nothing once this is dropped.
pub(crate) struct Registered(u64);

impl Registered {
    pub(crate) fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let held = sessions().as_mut().and_then(|all| all.remove(&self.0));
        drop(held);
    }
}

impl Held {
    /// Has a thread wait for its end; `watch` is dropped then.
    pub(crate) fn begin(
        mounted: Arc<MountedSession>,
        names: Option<Names>,
        watch: Option<LowerWatch>,
        driver: Option<Driver>,
    ) -> Result<Arc<Self>, Failure> {
        let held = Arc::new(Self {
            mounted,
            names,
            driver: Mutex::new(driver.map(Arc::new)),
            ended: Mutex::new(false),
            changed: Condvar::new(),
            waiter: Mutex::default(),
        });
        let waiter = Arc::clone(&held);
        let waits = thread::Builder::new()
            .name("bickford-wait".into())
            .spawn(move || {
                waiter.mounted.wait();
                drop(watch);
                *waiter.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
                waiter.changed.notify_all();
            })
            .map_err(|error| {
                Failure::new(BICKFORD_ERROR_SYSTEM, format!("start a thread: {error}"))
            })?;
        *held.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(waits);
        Ok(held)
    }

    fn driver(&self) -> Result<Arc<Driver>, Failure> {
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        driver.clone().ok_or_else(|| {
            Failure::argument("the session has threads of its own: mount with the option driven")
        })
    }

    /// Gives it a number.
    pub(crate) fn register(self: Arc<Self>) -> Registered {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        sessions().get_or_insert_default().insert(number, self);
        Registered(number)
    }

    /// Leaves no thread of a session that is over; others end with theirs.
    fn join_ended(&self) {
        if !*self.ended.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        let waiter = self
            .waiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(waiter) = waiter {
            // It panics only where the session does, which is in the log.
            let _ = waiter.join();
        }
    }
}

static SESSIONS: Mutex<Option<HashMap<u64, Arc<Held>>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn sessions() -> MutexGuard<'static, Option<HashMap<u64, Arc<Held>>>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn session(number: u64) -> Result<Arc<Held>, Failure> {
    sessions()
        .as_ref()
        .and_then(|sessions| sessions.get(&number).cloned())
        .ok_or_else(|| closed(number))
}

fn closed(number: u64) -> Failure {
    Failure::new(
        BICKFORD_ERROR_HANDLE,
        format!("session {number} was closed, or never opened"),
    )
}

/// # Safety
/// `text` is null or a NUL-terminated string that stays as it is during `'a`.
pub(crate) unsafe fn path<'a>(path: *const c_char, what: &str) -> Result<&'a Path, Failure> {
    // SAFETY: the caller's promise.
    let path = unsafe { text(path, what)? };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// # Safety
/// As for [`path`].
unsafe fn options<'a>(options: *const c_char) -> Result<&'a str, Failure> {
    if options.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    let options = unsafe { text(options, "options")? };
    options
        .to_str()
        .map_err(|_| Failure::argument("options are not UTF-8"))
}

/// # Safety
/// `config` is null or points to a configuration.
pub(crate) unsafe fn config(config: *const bickford_config) -> Result<bickford_config, Failure> {
    // SAFETY: the caller's promise.
    let Some(config) = (unsafe { config.as_ref() }).copied() else {
        return Ok(bickford_config::default());
    };
    check_version(config.abi_version)?;
    Ok(config)
}

/// Refuses a caller that has structures of another version.
pub(crate) fn check_version(version: u32) -> Result<(), Failure> {
    match version {
        BICKFORD_ABI_VERSION => Ok(()),
        _ => Err(Failure::argument(format!(
            "the caller was made for version {version} of the interface, this library has version \
             {BICKFORD_ABI_VERSION}; use matching ones"
        ))),
    }
}

/// What serves the requests.
///
/// # Safety
/// `callbacks` is null or points to callbacks.
pub(crate) unsafe fn callbacks(
    callbacks: *const bickford_callbacks,
    config: bickford_config,
    options: &Options,
) -> Result<Callbacks, Failure> {
    // SAFETY: the caller's promise.
    let callbacks =
        unsafe { callbacks.as_ref() }.ok_or_else(|| Failure::argument("callbacks are NULL"))?;
    let function = callbacks
        .dispatch
        .ok_or_else(|| Failure::argument("the callback dispatch is NULL"))?;
    Ok(Callbacks::new(callbacks, function, config, options))
}

/// Ends a session that nobody gets, so that no call comes after mounting has failed.
fn give_up(mounted: &MountedSession, error: impl Display) -> Failure {
    if mounted.unmount(Unmount::Force).is_ok() {
        mounted.wait();
    }
    Failure::new(BICKFORD_ERROR_SYSTEM, error)
}

/// What every way to mount is told.
pub(crate) struct Mount<'a> {
    pub(crate) mountpoint: &'a Path,
    pub(crate) options: Options,
    pub(crate) config: bickford_config,
    session: &'a mut u64,
}

impl<'a> Mount<'a> {
    /// Reads the arguments; `parse` knows the options that there are.
    ///
    /// # Safety
    /// Strings are null or NUL-terminated; `config` is null or a configuration; `session` is null or points to a
    /// number; all stay so during `'a`.
    pub(crate) unsafe fn new(
        mountpoint: *const c_char,
        options: *const c_char,
        config: *const bickford_config,
        session: *mut u64,
        parse: impl FnOnce(&str) -> Result<Options, Failure>,
    ) -> Result<Self, Failure> {
        // SAFETY: the caller's promises.
        let (mountpoint, options, config, session) = unsafe {
            (
                path(mountpoint, "mountpoint")?,
                self::options(options)?,
                self::config(config)?,
                session.as_mut(),
            )
        };
        let options = parse(options)?;
        if options.foreground_only {
            return Err(Failure::argument(
                "option 'foreground_only' is for programs, which go into the background; leave it out",
            ));
        }
        Ok(Self {
            mountpoint,
            config: options.adjusted(config),
            options,
            session: session.ok_or_else(|| Failure::argument("session is NULL"))?,
        })
    }

    /// What serves the requests.
    ///
    /// # Safety
    /// `callbacks` is null or points to callbacks.
    pub(crate) unsafe fn callbacks(
        &self,
        callbacks: *const bickford_callbacks,
    ) -> Result<Callbacks, Failure> {
        // SAFETY: the caller's promise.
        unsafe { self::callbacks(callbacks, self.config, &self.options) }
    }

    fn begin(
        &self,
        filesystem: impl FileSystem,
    ) -> Result<(MountedSession, Option<Driver>), SessionError> {
        let (mountpoint, options) = (self.mountpoint, &self.options.mount);
        let config = self.options.session(&self.config);
        if self.options.driven {
            let mounted = mount::mount(mountpoint, options)?;
            let (session, driver) = Session::driven(filesystem, mounted, config)?;
            return Ok((session, Some(driver)));
        }
        let session = Session::mount(filesystem, mountpoint, options, config)?;
        Ok((session, None))
    }

    /// Mounts, and serves until the end.
    pub(crate) fn serve(
        self,
        filesystem: impl FileSystem,
        names: Option<Names>,
        watch: impl FnOnce(&MountedSession) -> io::Result<Option<LowerWatch>>,
    ) -> Result<i32, Failure> {
        let (mounted, driver) = self
            .begin(filesystem)
            .map_err(|error| Failure::new(BICKFORD_ERROR_SYSTEM, error))?;
        let watch = watch(&mounted).map_err(|error| give_up(&mounted, &error))?;
        let mounted = Arc::new(mounted);
        let held = Held::begin(Arc::clone(&mounted), names, watch, driver)
            .map_err(|error| give_up(&mounted, &error))?;
        let registered = held.register();
        *self.session = registered.number();
        // Until it is closed.
        std::mem::forget(registered);
        Ok(0)
    }
}

/// Mounts a file system that callbacks serve. `options` are those of mount.fuse3(8), `root_kind=directory|file`,
/// `transport=auto|dev|uring`, `prompt`, `no_yielding`, `allow_idmap`, `max_stack_depth=1|2`, `driven`, `max_background=N`,
/// `congestion_threshold=N`, `request_timeout=SECONDS` and `time_granularity=NANOSECONDS`, with commas between, or NULL;
/// `config` may be NULL for the defaults: then no version is checked, and the caller has compared `bickford_abi_version`.
/// With `root_kind=file` the root is a regular file, and so has the mount point to be.
/// `prompt` says that no call waits for another request of the session, be it by a lock that is
/// held until another request comes, or by using what it is mounted on: a thread of io_uring then
/// takes several requests at a time while calls are quick. `no_yielding` has threads of io_uring never
/// yield to callers, who otherwise stay on their CPU. `allow_idmap` lets mounts be id-mapped, with
/// `default_permissions` from Linux 6.12 on; `uid` and `gid` of requests are then `(uint32_t)-1` but where
/// something is made. `max_stack_depth` allows backing files (`bickford_reply_open_backing`), with 2 also such that lie
/// on an overlay; it rules out the kernel's write-back cache. With `driven` the caller serves (`bickford_session_serve_one`), and
/// no thread does. `max_background` and `congestion_threshold` limit requests that
/// nobody waits for, `request_timeout` is after how many seconds without an answer the kernel aborts the connection (from Linux
/// 6.15 on, else mounting fails; it looks every 15 s, so that less counts as 15), and
/// `time_granularity` the resolution of times in nanoseconds. `session` gets the number of the
/// session. When this returns, the mount answers, with `driven` once it is served; close the session with `bickford_session_close`.
///
/// # Safety
/// Strings are NUL-terminated; `config` is null or a configuration; `callbacks` and `session` point
/// to such; the callback can be called by any thread until `bickford_session_wait` has returned 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_mount(
    mountpoint: *const c_char,
    options: *const c_char,
    config: *const bickford_config,
    callbacks: *const bickford_callbacks,
    session: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let mount = unsafe { Mount::new(mountpoint, options, config, session, Options::parse) }?;
        // SAFETY: as above.
        let callbacks = unsafe { mount.callbacks(callbacks) }?;
        mount.serve(callbacks, None, |_| Ok(None))
    })
}

/// Waits until the session has ended: unmounted or aborted, and every call has returned; none comes
/// after this has returned 0. With a negative timeout for ever, else for so many milliseconds, then `BICKFORD_ERROR_TIMEOUT`.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_session_wait(session: u64, milliseconds: i64) -> i32 {
    guarded(|| {
        let held = self::session(session)?;
        let ended = held.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match u64::try_from(milliseconds) {
            Ok(limit) => {
                let limit = Duration::from_millis(limit);
                let (ended, _) = held
                    .changed
                    .wait_timeout_while(ended, limit, |ended| !*ended)
                    .unwrap_or_else(PoisonError::into_inner);
                ended
            }
            Err(_) => held
                .changed
                .wait_while(ended, |ended| !*ended)
                .unwrap_or_else(PoisonError::into_inner),
        };
        if *ended {
            Ok(0)
        } else {
            Err(Failure::new(
                BICKFORD_ERROR_TIMEOUT,
                format!("session {session} has not ended within {milliseconds} ms"),
            ))
        }
    })
}

/// Unmounts: `mode` is `BICKFORD_UNMOUNT_*`.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_session_unmount(session: u64, mode: u32) -> i32 {
    guarded(|| {
        let mode = match mode {
            BICKFORD_UNMOUNT_NORMAL => Unmount::Normal,
            BICKFORD_UNMOUNT_LAZY => Unmount::Lazy,
            BICKFORD_UNMOUNT_FORCE => Unmount::Force,
            other => {
                return Err(Failure::argument(format!("{other} is no way to unmount")));
            }
        };
        self::session(session)?
            .mounted
            .unmount(mode)
            .map_err(|error| Failure::new(BICKFORD_ERROR_SYSTEM, error))?;
        Ok(0)
    })
}

/// Closes a session: unmounts lazily if it is still mounted. Its number means nothing afterwards,
/// unless that failed: then the session is as before. Calls may still come; what they use may go
/// when `bickford_session_wait` has returned 0 before. A session that the caller serves ends in any case, whatever
/// is open: what the kernel has not written back yet is lost.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_session_close(session: u64) -> i32 {
    guarded(|| {
        let held = self::session(session)?;
        if held.driver().is_ok() {
            // Whoever alone serves would wait in umount(2) for what the kernel writes back. Where it fails, the driver
            // says so as it goes.
            let _ = held.mounted.abort();
        }
        held.mounted
            .unmount(Unmount::Lazy)
            .map_err(|error| Failure::new(BICKFORD_ERROR_SYSTEM, error))?;
        sessions()
            .as_mut()
            .and_then(|sessions| sessions.remove(&session))
            .ok_or_else(|| closed(session))?;
        let driver = held
            .driver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(driver);
        held.join_ended();
        Ok(0)
    })
}

/// The descriptor of a session that was mounted with `driven`, for poll(2) and epoll(7): it can be read where a request waits, and
/// has POLLERR, and that alone, when the session has ended; `bickford_session_serve_one` is to be called for both. It is the
/// session's, which closes it, and is not to be read.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_session_fd(session: u64) -> i32 {
    guarded(|| Ok(self::session(session)?.driver()?.as_fd().as_raw_fd()))
}

/// Handles a request of a session that was mounted with `driven`, if one waits: the callback is called in here, with
/// `BICKFORD_OP_DESTROY` at the end, too. Requests come over /dev/fuse, and `workers` does not count. Returns 1 when it has handled one, 0 when none waits, and `BICKFORD_ENDED` when the session has ended.
/// Several threads may call it at a time, and a callback may, but not over paths with `at_once`: there a request that
/// changes a name waits for the callbacks that use it, and so for who serves it. Over paths, what goes on after a deferred reply is
/// called on a thread of the library all the same, but with `at_once`, and notifications have a thread of their own. A thread that
/// alone serves must not use the mount, nor wait for the session, nor unmount it, but with `BICKFORD_UNMOUNT_FORCE`: the kernel may
/// have something to write back, and with `blkdev` waits for `BICKFORD_OP_DESTROY`. Closing the session ends it.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_session_serve_one(session: u64) -> i32 {
    guarded(|| {
        let driver = self::session(session)?.driver()?;
        match driver.serve_one() {
            Ok(Served::Request) => Ok(1),
            Ok(Served::Nothing) => Ok(0),
            Ok(Served::End) => Ok(BICKFORD_ENDED),
            Err(error) => Err(Failure::new(BICKFORD_ERROR_SYSTEM, error)),
        }
    })
}

/// The number of the connection in /sys/fs/fuse/connections, or -1 where it is not known.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_session_connection(session: u64) -> i64 {
    let mut connection = -1;
    guarded(|| {
        let held = self::session(session)?;
        connection = held.mounted.connection().map_or(-1, i64::from);
        Ok(0)
    });
    connection
}

/// What INIT settled.
///
/// # Safety
/// `negotiated` points to memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_session_negotiated(
    session: u64,
    negotiated: *mut bickford_negotiated,
) -> i32 {
    guarded(|| {
        let held = self::session(session)?;
        // SAFETY: the caller's promise.
        let out = unsafe { negotiated.as_mut() }
            .ok_or_else(|| Failure::argument("negotiated is NULL"))?;
        if let Some(settled) = held.mounted.negotiated() {
            *out = bickford_negotiated {
                minor: settled.protocol.minor,
                max_write: settled.negotiation.max_write(),
                flags: settled.protocol.flags.bits(),
            };
        }
        Ok(0)
    })
}
