//! Sessions that their caller serves in an event loop.
//!
//! Needs root and /dev/fuse; without them each test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use bickford::filesystem::blocking::FileSystem;
use bickford::mount::{MountOptions, Unmount, mount, unmount};
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::transport::TransportChoice;
use bickford::{
    Blocking, Context, Driver, Errno, MountedSession, NodeId, Reply, Result, Served, Session,
    SessionConfig,
};
use rustix::event::{PollFd, PollFlags, poll};
use support::can_mount;

/// - `file`: a file.
/// - `outer`: one that is found when somebody has looked for `inner`, whom it serves meanwhile.
#[derive(Clone, Default)]
struct Subject(Arc<State>);

#[derive(Default)]
struct State {
    driver: OnceLock<Driver>,
    threads: Mutex<Vec<ThreadId>>,
    running: AtomicUsize,
    outer: AtomicUsize,
    inner: AtomicUsize,
    destroyed: AtomicUsize,
}

impl State {
    fn driver(&self) -> &Driver {
        self.driver.get().unwrap()
    }
}

impl FileSystem for Subject {
    fn destroy(&self) {
        assert_eq!(self.0.running.load(Ordering::SeqCst), 0);
        self.0.threads.lock().unwrap().push(thread::current().id());
        self.0.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry> {
        let _running = Running::new(&self.0.running);
        self.0.threads.lock().unwrap().push(thread::current().id());
        match op.name.to_bytes() {
            b"file" => {}
            b"outer" => {
                self.0.outer.fetch_add(1, Ordering::SeqCst);
                while self.0.inner.load(Ordering::SeqCst) == 0 {
                    serve(self.0.driver());
                }
            }
            b"inner" => {
                self.0.inner.fetch_add(1, Ordering::SeqCst);
            }
            _ => return Err(Errno::NOENT),
        }
        Ok(Entry::new(
            NodeId(2),
            Attr::file(2, 0o644, 7),
            Duration::ZERO,
        ))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes> {
        let attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            node => Attr::file(node.0, 0o644, 7),
        };
        let valid = Duration::ZERO;
        Ok(Attributes { attr, valid })
    }
}

/// Counts the methods that run.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until there is something to do, and does it. Whether the session goes on.
fn serve(driver: &Driver) -> bool {
    let mut fds = [PollFd::new(driver, PollFlags::IN)];
    poll(&mut fds, None).unwrap();
    loop {
        match driver.serve_one().unwrap() {
            Served::Request => {}
            Served::Nothing => return true,
            Served::End => return false,
        }
    }
}

struct Driven {
    subject: Subject,
    session: Arc<MountedSession>,
    place: PathBuf,
    _watchdog: support::Watchdog,
    _dir: tempfile::TempDir,
}

impl Driven {
    /// With the driver in the file system.
    fn new() -> Option<Self> {
        let (driven, driver) = Self::with_driver()?;
        driven.subject.0.driver.set(driver).unwrap();
        Some(driven)
    }

    fn with_driver() -> Option<(Self, Driver)> {
        if !can_mount() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let subject = Subject::default();
        let mounted = mount(&place, &MountOptions::new()).unwrap();
        let filesystem = Blocking(subject.clone());
        let (session, driver) =
            Session::driven(filesystem, mounted, SessionConfig::default()).unwrap();
        assert_eq!(session.worker_count(), 0);
        let driven = Self {
            subject,
            _watchdog: support::watch(place.clone(), session.connection()),
            session: Arc::new(session),
            place,
            _dir: dir,
        };
        Some((driven, driver))
    }

    fn size_of(&self, name: &str) -> JoinHandle<io::Result<u64>> {
        let path = self.place.join(name);
        thread::spawn(move || Ok(fs::metadata(path)?.len()))
    }
}

fn unmounts(place: &Path) {
    unmount(place, Unmount::Normal).unwrap();
}

#[test]
fn one_thread_serves_all() {
    let Some(driven) = Driven::new() else { return };
    let state = &driven.subject.0;
    let (place, session) = (driven.place.clone(), Arc::clone(&driven.session));
    let user = thread::spawn(move || {
        assert_eq!(fs::metadata(place.join("file")).unwrap().len(), 7);
        let absent = fs::metadata(place.join("absent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let notifier = session.notifier();
        notifier.invalidate_entry(NodeId::ROOT, c"file").unwrap();
        notifier.flush().unwrap();
        unmounts(&place);
        session.wait();
    });
    while serve(state.driver()) {}
    assert_eq!(state.driver().serve_one().unwrap(), Served::End);
    user.join().unwrap();
    let own = thread::current().id();
    let threads = state.threads.lock().unwrap();
    assert!(threads.iter().all(|thread| *thread == own));
    assert_eq!(state.destroyed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_method_may_serve_others() {
    let Some(driven) = Driven::new() else { return };
    let state = &driven.subject.0;
    let outer = driven.size_of("outer");
    // The user of `inner` comes when `outer` is waited for.
    let (seen, inner) = (driven.subject.clone(), driven.place.join("inner"));
    let place = driven.place.clone();
    let user = thread::spawn(move || {
        while seen.0.outer.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(fs::metadata(inner).unwrap().len(), 7);
        assert_eq!(outer.join().unwrap().unwrap(), 7);
        unmounts(&place);
    });
    while serve(state.driver()) {}
    user.join().unwrap();
    driven.session.wait();
}

#[test]
fn several_threads_may_serve() {
    let Some(driven) = Driven::new() else { return };
    let state = &driven.subject.0;
    let use_it = || {
        for _ in 0..200 {
            assert_eq!(fs::metadata(driven.place.join("file")).unwrap().len(), 7);
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while serve(state.driver()) {});
        }
        let users = [(); 4].map(|()| scope.spawn(use_it));
        for user in users {
            user.join().unwrap();
        }
        unmounts(&driven.place);
    });
    driven.session.wait();
    assert_eq!(state.destroyed.load(Ordering::SeqCst), 1);
}

#[test]
fn io_uring_has_threads() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = mount(dir.path(), &MountOptions::new()).unwrap();
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let refused = Session::driven(Blocking(Subject::default()), mounted, config).unwrap_err();
    assert!(refused.to_string().contains("io_uring"), "{refused}");
}

#[test]
fn without_the_driver_the_session_ends() {
    let Some((driven, driver)) = Driven::with_driver() else {
        return;
    };
    let waiting = driven.size_of("file");
    let mut fds = [PollFd::new(&driver, PollFlags::IN)];
    poll(&mut fds, None).unwrap();
    drop(driver);
    driven.session.wait();
    assert!(waiting.join().unwrap().is_err(), "nobody has answered");
    assert_eq!(driven.subject.0.destroyed.load(Ordering::SeqCst), 1);
}

/// Keeps the reply of what is looked for.
#[derive(Clone, Default)]
struct Keeping(Arc<Mutex<Vec<Reply<Entry>>>>);

impl bickford::FileSystem for Keeping {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>, reply: Reply<Entry>) {
        self.0.lock().unwrap().push(reply);
    }
}

#[test]
fn without_the_driver_the_session_ends_though_a_reply_is_kept() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = mount(dir.path(), &MountOptions::new()).unwrap();
    let kept = Keeping::default();
    let (session, driver) =
        Session::driven(kept.clone(), mounted, SessionConfig::default()).unwrap();
    let _watchdog = support::watch(dir.path().to_owned(), session.connection());
    let path = dir.path().join("file");
    let waiting = thread::spawn(move || fs::metadata(path));
    while kept.0.lock().unwrap().is_empty() {
        serve(&driver);
    }
    drop(driver);
    session.wait();
    assert!(waiting.join().unwrap().is_err(), "nobody has answered");
}
