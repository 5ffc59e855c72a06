//! How sessions begin and end: who is told, and that nothing stays behind.
//!
//! Needs root and /dev/fuse; without them each test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bickford::abi::InitFlags;
use bickford::mount::{
    AccessPolicy, MountEntry, MountOptions, Mounted, Unmount, mount, probe_kernel, unmount,
};
use bickford::notify::NotifyError;
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup, Release};
use bickford::session::SessionError;
use bickford::trace::control::{snapshot, socket_path};
use bickford::{
    Context, Errno, FileSystem, MountedSession, Negotiation, NodeId, Reply, Session, SessionConfig,
    Workers,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use support::{Fixture, over_each_transport, wait_until};

/// Threads and descriptors of the process are counted: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// - `file`: a file.
/// - `hang`: answered when the test lets it.
/// - `drop`: drops the session.
/// - `slow`: a file whose RELEASE ends when the test lets it.
#[derive(Clone)]
struct Subject(Arc<State>);

struct State {
    destroyed: AtomicUsize,
    begun: AtomicUsize,
    hang: Mutex<Receiver<()>>,
    session: Mutex<Option<MountedSession>>,
}

const SLOW: NodeId = NodeId(3);

impl Subject {
    fn new() -> (Self, Sender<()>) {
        let (let_go, hang) = channel();
        let state = State {
            destroyed: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            hang: Mutex::new(hang),
            session: Mutex::default(),
        };
        (Self(Arc::new(state)), let_go)
    }

    fn destroyed(&self) -> usize {
        self.0.destroyed.load(Ordering::SeqCst)
    }
}

impl FileSystem for Subject {
    fn destroy(&self) {
        self.0.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let mut node = NodeId(2);
        match op.name.to_bytes() {
            b"file" => {}
            b"slow" => node = SLOW,
            b"hang" => self.0.hang.lock().unwrap().recv().unwrap(),
            b"drop" => drop(self.0.session.lock().unwrap().take()),
            _ => return reply.error(Errno::NOENT),
        }
        let attr = Attr::file(node.0, 0o644, 7);
        reply.ok(Entry::new(node, attr, Duration::ZERO));
    }

    fn release(&self, _: &Context<'_>, op: Release, reply: Reply<()>) {
        if op.node == SLOW {
            self.0.begun.fetch_add(1, Ordering::SeqCst);
            self.0.hang.lock().unwrap().recv().unwrap();
        }
        reply.ok(());
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        let attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            node => Attr::file(node.0, 0o644, 7),
        };
        let valid = Duration::from_secs(60);
        reply.ok(Attributes { attr, valid });
    }
}

/// Threads of sessions, by the name that the kernel keeps.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("bickford-")).collect()
}

fn devices() -> usize {
    let held = fs::read_dir("/proc/self/fd").unwrap();
    let targets = held.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    targets.filter(|to| to == Path::new("/dev/fuse")).count()
}

fn nothing_is_left() {
    wait_until("threads and descriptors are gone", || {
        threads().is_empty() && devices() == 0
    });
}

fn mounted(config: SessionConfig) -> (Fixture, Subject, Sender<()>) {
    let (subject, let_go) = Subject::new();
    (Fixture::new(subject.clone(), config), subject, let_go)
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn a_session_that_nobody_waits_for_ends_all_the_same() {
    let _alone = alone();
    over_each_transport(|config| {
        for _ in 0..8 {
            let (mut fixture, subject, _let_go) = mounted(config);
            assert_eq!(size_of(&fixture.path("file")), 7);
            let session = fixture.session.take().unwrap();
            let notifier = session.notifier().clone();
            drop(session);
            wait_until("the file system is told", || subject.destroyed() == 1);
            let late = notifier.invalidate_inode(NodeId(2), 0, 0);
            assert_eq!(late, Err(NotifyError::Ended));
        }
        nothing_is_left();
    });
}

#[test]
fn whoever_waits_finds_the_file_system_told_once() {
    let _alone = alone();
    over_each_transport(|config| {
        let (fixture, subject, _let_go) = mounted(config);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    fixture.session().wait();
                    assert_eq!(subject.destroyed(), 1);
                });
            }
            assert_eq!(size_of(&fixture.path("file")), 7);
            fixture.session().unmount(Unmount::Lazy).unwrap();
        });
        drop(fixture);
        nothing_is_left();
        assert_eq!(subject.destroyed(), 1);
    });
}

#[test]
fn dropping_a_session_does_not_wait_for_a_method() {
    let _alone = alone();
    over_each_transport(|config| {
        let (mut fixture, subject, let_go) = mounted(config);
        thread::scope(|scope| {
            let path = fixture.path("hang");
            scope.spawn(move || assert_eq!(size_of(&path), 7));
            wait_until("the method is entered", || {
                subject.0.begun.load(Ordering::SeqCst) == 1
            });
            drop(fixture.session.take());
            assert_eq!(subject.destroyed(), 0);
            let_go.send(()).unwrap();
        });
        nothing_is_left();
        assert_eq!(subject.destroyed(), 1);
    });
}

#[test]
fn a_method_may_drop_the_session_that_it_serves() {
    let _alone = alone();
    over_each_transport(|config| {
        let (mut fixture, subject, _let_go) = mounted(config);
        let session = fixture.session.take();
        *subject.0.session.lock().unwrap() = session;
        assert_eq!(size_of(&fixture.path("drop")), 7);
        nothing_is_left();
        assert_eq!(subject.destroyed(), 1);
    });
}

/// Does not begin.
struct Refuses(Option<Errno>);

impl FileSystem for Refuses {
    fn init(&self, _: &mut Negotiation) -> Result<(), Errno> {
        match self.0 {
            Some(errno) => Err(errno),
            None => panic!("a panic in init"),
        }
    }

    fn destroy(&self) {
        panic!("what did not begin does not end");
    }
}

/// Wants mounts that can be id-mapped.
struct Mappable;

impl FileSystem for Mappable {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        match negotiation.allow_idmap() {
            true => Ok(()),
            false => Err(Errno::OPNOTSUPP),
        }
    }
}

/// Has nothing mounted at the end, whatever the test found.
struct Cleared<'a>(&'a Path);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        while unmount(self.0, Unmount::Force).is_ok() {}
    }
}

#[test]
fn what_the_kernel_would_not_map_does_not_begin() {
    let _alone = alone();
    over_each_transport(|config| {
        let offer = probe_kernel().unwrap();
        if !offer.flags.contains(InitFlags::ALLOW_IDMAP) {
            support::say(format_args!(
                "left out: id-mapped mounts of FUSE need Linux 6.12"
            ));
            return;
        }
        let plain = MountOptions::new().fsname("bickford-test");
        let checked = plain.clone().default_permissions(true);
        let of_root = checked.clone().access(AccessPolicy::OwnerAndRoot);
        for (options, text) in [
            (&plain, "mount with default_permissions"),
            (&of_root, "allow_root asks who calls"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let _watchdog = support::watch(dir.path().to_owned(), None);
            let _cleared = Cleared(dir.path());
            let begun = Session::mount(Mappable, dir.path(), options, config);
            let said = begun.unwrap_err().to_string();
            assert!(said.contains(text), "{said}");
            let left = MountEntry::at(dir.path()).unwrap().map(|it| it.source);
            assert_eq!(left, None);
        }
        nothing_is_left();
        // What becomes of it where the options are not known to the session.
        for (options, answer) in [(&plain, Errno::CONNREFUSED), (&checked, Errno::NOSYS)] {
            let dir = tempfile::tempdir().unwrap();
            let _watchdog = support::watch(dir.path().to_owned(), None);
            let _cleared = Cleared(dir.path());
            let mounted = mount(dir.path(), options).unwrap();
            let session = match Session::start(Mappable, mounted.device, config) {
                Ok(session) => session,
                // Linux 7 takes no queue then.
                Err(error) if answer == Errno::CONNREFUSED => {
                    assert!(error.to_string().contains("register queue"), "{error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let error = fs::read_dir(dir.path()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(answer.raw_os_error()));
            mounted.guard.unmount(Unmount::Lazy).unwrap();
            session.wait();
        }
    });
}

/// Sessions of mounts that somebody else has made and keeps.
fn over_passed_devices(test: impl Fn(&MountedSession, Mounted)) {
    let _alone = alone();
    over_each_transport(|config| {
        let dir = tempfile::tempdir().unwrap();
        let _watchdog = support::watch(dir.path().to_owned(), None);
        let _cleared = Cleared(dir.path());
        let options = MountOptions::new().fsname("bickford-test");
        let mounted = mount(dir.path(), &options).unwrap();
        let passed = format!("/dev/fd/{}", mounted.device.as_raw_fd());
        let (subject, _let_go) = Subject::new();
        let session = Session::mount(subject, passed, &options, config).unwrap();
        if session.connection().is_none() {
            support::say(format_args!(
                "left out: the kernel does not tell the connection of a device before 6.16"
            ));
            return;
        }
        test(&session, mounted);
        session.wait();
    });
}

#[test]
fn a_session_whose_device_was_passed_is_found_by_its_connection() {
    over_passed_devices(|session, mounted| {
        let control = session.serve_control().unwrap();
        let seen = snapshot(&socket_path(mounted.connection().unwrap())).unwrap();
        assert_eq!(seen.pid, std::process::id());
        drop(control);
        mounted.unmount(Unmount::Lazy).unwrap();
    });
}

#[test]
fn force_ends_a_session_whose_mount_is_anothers() {
    over_passed_devices(|session, mounted| {
        session.unmount(Unmount::Force).unwrap();
        // While the maker has it still.
        session.wait();
        drop(mounted);
    });
}

#[test]
fn force_ends_a_session_whose_mount_is_gone() {
    let _alone = alone();
    over_each_transport(|config| {
        let (fixture, subject, _let_go) = mounted(config);
        let open = fs::File::open(fixture.path("file")).unwrap();
        // A mount that is detached can be aborted there alone.
        support::show_connections();
        for mode in [Unmount::Lazy, Unmount::Force] {
            fixture.session().unmount(mode).unwrap();
        }
        fixture.session().wait();
        assert_eq!(subject.destroyed(), 1);
        drop(open);
    });
}

#[test]
fn a_session_that_is_unmounted_aborts_nobody_elses_connection() {
    let _alone = alone();
    over_each_transport(|config| {
        let (first, subject, let_go) = mounted(config);
        drop(fs::File::open(first.path("slow")).unwrap());
        // Of the lookup, and of RELEASE.
        wait_until("RELEASE is here", || {
            subject.0.begun.load(Ordering::SeqCst) == 2
        });
        first.session().unmount(Unmount::Normal).unwrap();
        // Most likely it gets the first one's number.
        let (second, ..) = mounted(config);
        first.session().abort().unwrap();
        assert_eq!(size_of(&second.path("file")), 7);
        let_go.send(()).unwrap();
        first.session().wait();
        second.finish();
    });
}

#[test]
fn what_does_not_begin_says_why_and_leaves_no_mount() {
    let _alone = alone();
    over_each_transport(|config| {
        for (errno, text) in [
            (Some(Errno::NOTTY), Errno::NOTTY.to_string()),
            (None, "the file system panicked in init".to_owned()),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let _watchdog = support::watch(dir.path().to_owned(), None);
            let _cleared = Cleared(dir.path());
            let options = MountOptions::new().fsname("bickford-test");
            let begun = Session::mount(Refuses(errno), dir.path(), &options, config);
            let error = begun.unwrap_err();
            let said = error.to_string();
            assert!(said.contains(&text), "{said}");
            let SessionError::Start { source, .. } = error else {
                panic!("{said}");
            };
            assert_eq!(source.raw_os_error(), errno.map(Errno::raw_os_error));
            assert_eq!(
                MountEntry::at(dir.path()).unwrap().map(|it| it.source),
                None
            );
            assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
        }
        nothing_is_left();
    });
}

#[test]
fn no_worker_counts_as_one() {
    let _alone = alone();
    over_each_transport(|config| {
        for workers in [(0, 0), (0, 4), (4, 0)] {
            let (max, max_idle) = workers;
            let (fixture, _, _let_go) = mounted(config.workers(Workers { max, max_idle }));
            assert!(fixture.session().worker_count() > 0);
            for _ in 0..100 {
                assert_eq!(size_of(&fixture.path("file")), 7);
            }
            fixture.finish();
        }
    });
}

/// Threads would read it again and again.
#[test]
fn a_device_that_does_not_wait_is_made_to() {
    let _alone = alone();
    over_each_transport(|config| {
        let dir = tempfile::tempdir().unwrap();
        let _cleared = Cleared(dir.path());
        let mounted = mount(dir.path(), &MountOptions::new()).unwrap();
        let passed_on = mounted.device.try_clone().unwrap();
        fcntl_setfl(&passed_on, OFlags::NONBLOCK).unwrap();
        let (subject, _let_go) = Subject::new();
        let session = Session::on_mount(subject, mounted, config).unwrap();
        let watchdog = support::watch(dir.path().to_owned(), session.connection());
        let flags = fcntl_getfl(&passed_on).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "{flags:?}");
        drop(passed_on);
        assert_eq!(size_of(&dir.path().join("file")), 7);
        session.unmount(Unmount::Lazy).unwrap();
        session.wait();
        drop(session);
        drop(watchdog);
        nothing_is_left();
    });
}

/// Panics when the session has ended.
struct PanicsAtTheEnd(Arc<AtomicUsize>);

impl FileSystem for PanicsAtTheEnd {
    fn destroy(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a panic in destroy");
    }
}

#[test]
fn a_panic_in_destroy_ends_nothing_but_destroy() {
    let _alone = alone();
    over_each_transport(|config| {
        let destroyed = Arc::<AtomicUsize>::default();
        let fixture = Fixture::new(PanicsAtTheEnd(Arc::clone(&destroyed)), config);
        fixture.finish();
        nothing_is_left();
        assert_eq!(destroyed.load(Ordering::SeqCst), 1);
    });
}
