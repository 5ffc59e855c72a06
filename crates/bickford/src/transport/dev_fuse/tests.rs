//! What cannot be brought about or seen from outside: workers that leave at the wrong moment, or cannot be started.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::workers::{Leave, Pool};
use super::{Channel, Workers};
use crate::dispatch::{Server, ServerConfig};
use crate::mount::{MountOptions, Unmount, unmount};
use crate::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use crate::transport::TransportChoice;
use crate::watchdog::{DEADLINE, Watchdog, say, watch};
use crate::{Blocking, Context, MountedSession, NodeId, Session, SessionConfig};

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

struct Nothing;

impl crate::filesystem::blocking::FileSystem for Nothing {}

#[test]
fn a_worker_that_leaves_while_nobody_waits_is_replaced() {
    let device = OwnedFd::from(File::open("/").unwrap());
    let server = Server::new(Blocking(Nothing), ServerConfig::default());
    let workers = Workers {
        max: 3,
        max_idle: 2,
    };
    let pool = Pool::of(
        Arc::new(server),
        Channel::new(Arc::new(device)),
        None,
        workers,
    );
    // Two wait for requests, and a third has waited to be called.
    pool.pretend(3, 2);
    let leaves = Leave(&pool);
    assert!(!pool.rest());
    // They receive some before it has left.
    pool.pretend(3, 0);
    pool.call().unwrap();
    assert_eq!(pool.started(), 0, "as many as may be are there");
    drop(leaves);
    assert_eq!(pool.started(), 1);
}

/// Its threads cannot start others once `refuse` was asked for, nor read the device after `no` and a reason. A LOOKUP
/// of `wait` and a number is answered when `go` is asked for.
struct Refused(Arc<State>);

#[derive(Default)]
struct State {
    refused: Mutex<HashSet<ThreadId>>,
    waiting: Mutex<usize>,
    gone: Condvar,
}

impl State {
    fn go(&self) {
        *self.waiting.lock().unwrap() = 0;
        self.gone.notify_all();
    }
}

thread_local! {
    static REFUSED: Cell<bool> = const { Cell::new(false) };
    /// How the next read of a device fails on this thread.
    pub(in crate::transport) static READ_FAILS: Cell<Option<Errno>> = const { Cell::new(None) };
}

impl crate::filesystem::blocking::FileSystem for Refused {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let attr = Attr::file(2, 0o644, 7);
        match op.name.to_bytes() {
            b"refuse" => {
                if !REFUSED.replace(true) {
                    crate::sys::thread::refuse(libc::SYS_clone3);
                    crate::sys::thread::refuse(libc::SYS_clone);
                }
                self.0
                    .refused
                    .lock()
                    .unwrap()
                    .insert(thread::current().id());
            }
            b"no memory" => READ_FAILS.set(Some(Errno::NOMEM)),
            b"no rights" => READ_FAILS.set(Some(Errno::PERM)),
            name if name.starts_with(b"wait") => {
                let mut waiting = self.0.waiting.lock().unwrap();
                *waiting += 1;
                let still = |waiting: &mut usize| *waiting > 0;
                drop(self.0.gone.wait_while(waiting, still).unwrap());
            }
            _ => self.0.go(),
        }
        Ok(Entry::new(NodeId(2), attr, Duration::ZERO))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            node => Attr::file(node.0, 0o644, 7),
        };
        let valid = DEADLINE;
        Ok(Attributes { attr, valid })
    }
}

/// Ends the session whatever the test found, or at the deadline.
struct Mounted {
    session: MountedSession,
    dir: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    fn new(state: &Arc<State>, config: SessionConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions::new().fsname("bickford-test");
        let filesystem = Blocking(Refused(Arc::clone(state)));
        let session = Session::mount(filesystem, dir.path(), &options, config).unwrap();
        let watchdog = watch(dir.path().to_owned(), session.connection());
        Self {
            session,
            dir,
            _watchdog: watchdog,
        }
    }

    fn size_of(&self, name: &str) -> u64 {
        fs::metadata(self.dir.path().join(name)).unwrap().len()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        while unmount(self.dir.path(), Unmount::Force).is_ok() {}
    }
}

#[test]
fn a_worker_that_cannot_be_started_is_started_later() {
    if !rustix::process::geteuid().is_root() {
        say(format_args!(
            "SKIPPED: mounting needs root; run the tests as root"
        ));
        return;
    }
    let config = SessionConfig::default()
        .transport(TransportChoice::DevFuse)
        .workers(Workers {
            max: 8,
            max_idle: 8,
        });
    let state = Arc::<State>::default();
    let mounted = Mounted::new(&state, config);
    let workers = || mounted.session.worker_count();
    wait_until("every worker is refused", || {
        mounted.size_of("refuse");
        state.refused.lock().unwrap().len() == workers()
    });
    let workers = workers();
    thread::scope(|scope| {
        let mounted = &mounted;
        let others: Vec<_> = (0..workers)
            .map(|number| scope.spawn(move || mounted.size_of(&format!("wait{number}"))))
            .collect();
        wait_until("every worker waits", || {
            *state.waiting.lock().unwrap() == workers
        });
        assert_eq!(mounted.size_of("go"), 7);
        for other in others {
            assert_eq!(other.join().unwrap(), 7);
        }
    });
}

#[test]
fn one_worker_goes_on_without_memory_and_ends_the_connection_where_it_cannot() {
    if !rustix::process::geteuid().is_root() {
        say(format_args!(
            "SKIPPED: mounting needs root; run the tests as root"
        ));
        return;
    }
    let config = SessionConfig::default()
        .transport(TransportChoice::DevFuse)
        .workers(Workers::SINGLE);
    let mounted = Mounted::new(&Arc::default(), config);
    for name in ["no memory", "no memory", "go"] {
        assert_eq!(mounted.size_of(name), 7);
    }
    let error = fs::metadata(mounted.dir.path().join("no rights")).unwrap_err();
    let aborted = [libc::ECONNABORTED, libc::ENOTCONN];
    assert!(aborted.contains(&error.raw_os_error().unwrap()), "{error}");
    mounted.session.wait();
}
