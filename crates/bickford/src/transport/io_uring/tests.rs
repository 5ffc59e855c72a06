//! What cannot be brought about or seen from outside: refused queues, threads that die, threads that yield.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod waits;

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::io_uring_obstacle;
use crate::mount::{MountOptions, Unmount, unmount};
use crate::ops::{Attr, Attributes, Entry, Forget, Getattr, Lookup};
use crate::parked::LEFT;
use crate::sys::thread::{Policy, policy};
use crate::transport::dev_fuse::tests::READ_FAILS;
use crate::transport::{Transport, TransportChoice};
use crate::watchdog::{DEADLINE, say, show_connections, watch};
use crate::{Blocking, Context, FileSystem, MountedSession, NodeId, Reply, Session, SessionConfig};

thread_local! {
    /// Bytes of payload that the next session on this thread offers.
    pub(super) static PAYLOAD: Cell<Option<usize>> = const { Cell::new(None) };
    /// The next session on this thread finds no memory for the commands that register its queues.
    pub(super) static NO_MEMORY: Cell<bool> = const { Cell::new(false) };
    /// How many processes that kick a queue cannot be started in the next session on this thread.
    pub(super) static KICKS_FAIL: Cell<Option<&'static AtomicUsize>> = const { Cell::new(None) };
}

struct Names;

impl crate::filesystem::blocking::FileSystem for Names {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        match op.name.to_bytes() {
            b"die" => crate::sys::thread::end(),
            b"file" => Ok(Entry::new(NodeId(2), Attr::file(2, 0o644, 7), DEADLINE)),
            _ => Err(Errno::NOENT),
        }
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: Attr::directory(1, 0o755),
            valid: DEADLINE,
        })
    }
}

/// Whether something can be mounted over io_uring.
fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let obstacle = match io_uring_obstacle() {
        _ if !root => Some("mounting needs root; run the tests as root".to_owned()),
        obstacle => obstacle,
    };
    if let Some(obstacle) = &obstacle {
        say(format_args!("SKIPPED: {obstacle}"));
    }
    obstacle.is_none()
}

/// How many requests of a connection wait for their answer, or to be sent.
fn waiting(connection: u32) -> usize {
    let path = format!("/sys/fs/fuse/connections/{connection}/waiting");
    let waiting = fs::read_to_string(path).unwrap();
    waiting.trim().parse().unwrap()
}

/// Mounts and calls `body`, aborting the connection when it takes too long. `None` where nothing
/// can be mounted over io_uring.
fn mounted(choice: TransportChoice, body: impl FnOnce(&Path, &MountedSession)) -> Option<()> {
    serving(Blocking(Names), choice, body)
}

/// The same with another file system.
fn serving(
    filesystem: impl FileSystem,
    choice: TransportChoice,
    body: impl FnOnce(&Path, &MountedSession),
) -> Option<()> {
    configured(filesystem, SessionConfig::default().transport(choice), body)
}

/// The same with another configuration.
fn configured(
    filesystem: impl FileSystem,
    config: SessionConfig,
    body: impl FnOnce(&Path, &MountedSession),
) -> Option<()> {
    if !can_mount() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = MountOptions::new().fsname("bickford-test");
    let session = Session::mount(filesystem, dir.path(), &options, config).unwrap();
    let watchdog = watch(dir.path().to_owned(), session.connection());
    body(dir.path(), &session);
    drop(session);
    while unmount(dir.path(), Unmount::Force).is_ok() {}
    drop(watchdog);
    Some(())
}

#[test]
fn threads_leave_descriptors_to_the_file_system() {
    let threads = |cpus, descriptors| {
        let workers = crate::Workers::default();
        super::threads(workers, cpus, descriptors).ok()
    };
    assert_eq!(threads(2, 1024), Some((8, 16)));
    assert_eq!(threads(2, u64::MAX), Some((8, 16)));
    assert_eq!(threads(32, 1024), Some((2, 7)));
    assert_eq!(threads(128, 1024), Some((2, 2)));
    assert_eq!(threads(129, 1024), None);
    assert_eq!(threads(1024, 1 << 20), Some((2, 16)));
    assert_eq!(threads(2, 0), None);
}

#[test]
fn refused_queues_leave_a_mount_over_dev_fuse() {
    PAYLOAD.set(Some(4096));
    mounted(TransportChoice::Auto, |dir, session| {
        let transport = session.transport();
        assert_eq!(transport.transport, Transport::DevFuse);
        let reason = &transport.reason;
        assert!(
            reason.contains("register queue 0: Invalid argument"),
            "{reason}"
        );
        assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 7);
        session.unmount(Unmount::Normal).unwrap();
        session.wait();
    });
}

#[test]
fn queues_that_the_kernel_was_not_asked_for_leave_a_mount_over_dev_fuse() {
    NO_MEMORY.set(true);
    mounted(TransportChoice::Auto, |dir, session| {
        let transport = session.transport();
        assert_eq!(transport.transport, Transport::DevFuse);
        let reason = &transport.reason;
        assert!(reason.contains("Cannot allocate memory"), "{reason}");
        assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 7);
        session.unmount(Unmount::Normal).unwrap();
        session.wait();
    });
}

#[test]
fn threads_that_cannot_be_started_leave_a_mount_over_dev_fuse() {
    // Beside the one of each queue: that of notifications, the watcher and the reader.
    let needed = 3 + usize::from(super::probe::possible_cpus().unwrap());
    for left in 1..needed {
        LEFT.set(left);
        mounted(TransportChoice::Auto, |dir, session| {
            let transport = session.transport();
            assert_eq!(transport.transport, Transport::DevFuse);
            let reason = &transport.reason;
            assert!(reason.contains("temporarily unavailable"), "{reason}");
            assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 7);
            session.unmount(Unmount::Normal).unwrap();
            session.wait();
        });
    }
}

#[test]
fn refused_queues_end_a_session_that_insists_on_them() {
    PAYLOAD.set(Some(4096));
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let options = MountOptions::new().fsname("bickford-test");
    let error = Session::mount(Blocking(Names), dir.path(), &options, config).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("io_uring cannot be had: register queue 0"),
        "{text}"
    );
    assert!(
        unmount(dir.path(), Unmount::Force).is_err(),
        "nothing is mounted"
    );
}

#[test]
fn rings_that_cannot_be_entered_leave_a_mount_over_dev_fuse() {
    // The filter stays with the thread.
    let filtered = std::thread::spawn(|| {
        crate::sys::thread::refuse(libc::SYS_io_uring_enter);
        mounted(TransportChoice::Auto, |dir, session| {
            let transport = session.transport();
            assert_eq!(transport.transport, Transport::DevFuse);
            let reason = &transport.reason;
            assert!(
                reason.contains("io_uring_enter: Operation not permitted"),
                "{reason}"
            );
            assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 7);
            session.unmount(Unmount::Normal).unwrap();
            session.wait();
        });
    });
    filtered.join().unwrap();
}

#[test]
fn a_thread_that_dies_aborts_the_connection() {
    mounted(TransportChoice::IoUring, |dir, session| {
        assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 7);
        let error = fs::metadata(dir.join("die")).unwrap_err();
        let aborted = [libc::ECONNABORTED, libc::ENOTCONN];
        assert!(aborted.contains(&error.raw_os_error().unwrap()), "{error}");
        session.wait();
    });
}

/// A CPU that this process may use.
fn one_cpu() -> CpuSet {
    let ours = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| ours.is_set(*cpu)).unwrap();
    super::spawn::only(u16::try_from(cpu).unwrap())
}

/// More requests than a queue has entries at the beginning.
const GATHERED: usize = 64;

/// Keeps its replies until so many are there.
#[derive(Default)]
struct Gathers(Mutex<Vec<Reply<Entry>>>);

impl FileSystem for Gathers {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>, reply: Reply<Entry>) {
        let mut gathered = self.0.lock().unwrap();
        gathered.push(reply);
        if gathered.len() < GATHERED {
            return;
        }
        let all = std::mem::take(&mut *gathered);
        drop(gathered);
        for reply in all {
            reply.ok(Entry::new(NodeId(2), Attr::file(2, 0o644, 7), DEADLINE));
        }
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: Attr::directory(1, 0o755),
            valid: DEADLINE,
        });
    }
}

#[test]
fn a_kick_that_cannot_be_started_is_started_later() {
    static FAIL: AtomicUsize = AtomicUsize::new(usize::MAX);
    KICKS_FAIL.set(Some(&FAIL));
    show_connections();
    serving(
        Gathers::default(),
        TransportChoice::IoUring,
        |dir, session| {
            let cpu = one_cpu();
            let number = session.connection().unwrap();
            std::thread::scope(|scope| {
                let ask = |number| {
                    sched_setaffinity(None, &cpu).unwrap();
                    fs::metadata(dir.join(format!("{number}"))).unwrap().len()
                };
                let asked: Vec<_> = (0..GATHERED)
                    .map(|number| scope.spawn(move || ask(number)))
                    .collect();
                wait_until("a kick fails, and all have asked", || {
                    let all = waiting(number) == GATHERED;
                    let answered = asked.iter().any(std::thread::ScopedJoinHandle::is_finished);
                    answered || all && FAIL.load(Ordering::SeqCst) < usize::MAX
                });
                FAIL.store(0, Ordering::SeqCst);
                for size in asked {
                    assert_eq!(size.join().unwrap(), 7);
                }
            });
        },
    );
}

/// Keeps its replies.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Vec<Reply<Entry>>>>);

impl FileSystem for Keeps {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>, reply: Reply<Entry>) {
        self.0.lock().unwrap().push(reply);
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: Attr::directory(1, 0o755),
            valid: DEADLINE,
        });
    }
}

#[test]
fn a_session_ends_though_replies_have_every_entry() {
    let queues = super::probe::possible_cpus().unwrap();
    let ours = sched_getaffinity(None).unwrap();
    if queues > 8 || (0..queues).any(|cpu| !ours.is_set(usize::from(cpu))) {
        say(format_args!(
            "SKIPPED: needs all CPUs, and not more than eight"
        ));
        return;
    }
    let kept = Keeps::default();
    serving(kept.clone(), TransportChoice::IoUring, |dir, session| {
        std::thread::scope(|scope| {
            let entries = 0..super::queue::ENTRIES_MAX;
            for (cpu, number) in
                (0..queues).flat_map(|cpu| entries.clone().map(move |of| (cpu, of)))
            {
                scope.spawn(move || {
                    sched_setaffinity(None, &super::spawn::only(cpu)).unwrap();
                    fs::metadata(dir.join(format!("{cpu} {number}"))).unwrap_err();
                });
            }
            let all = usize::from(queues) * super::queue::ENTRIES_MAX;
            let end = Instant::now() + DEADLINE;
            while session.server().in_flight().len() < all && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            let held = session.server().in_flight().len();
            session.abort().unwrap();
            assert_eq!(held, all);
        });
        wait_until("the session ends", || session.server().has_ended());
        session.wait();
    });
    drop(kept);
}

/// The read after each FORGET finds no memory.
#[derive(Clone, Default)]
struct Forgets(Arc<AtomicUsize>);

impl crate::filesystem::blocking::FileSystem for Forgets {
    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        Names.lookup(cx, op)
    }

    fn getattr(&self, cx: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Names.getattr(cx, op)
    }

    fn forget(&self, _: &[Forget]) {
        READ_FAILS.set(Some(Errno::NOMEM));
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn forgets_come_after_a_read_without_memory() {
    let forgets = Forgets::default();
    let choice = TransportChoice::IoUring;
    serving(Blocking(forgets.clone()), choice, |dir, session| {
        for number in 1..3 {
            assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 7);
            let notifier = session.notifier();
            notifier.invalidate_entry(NodeId::ROOT, c"file").unwrap();
            wait_until("the kernel forgets", || {
                forgets.0.load(Ordering::SeqCst) == number
            });
        }
    });
}

/// Whether some thread that serves a queue yields to callers.
fn any_yields() -> bool {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    threads.filter_map(Result::ok).any(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let id = thread.file_name().to_string_lossy().parse().ok();
        let idle = id.and_then(Pid::from_raw).map(policy);
        name.starts_with("bickford-q") && matches!(idle, Some(Ok(Some(Policy::Idle))))
    })
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The first two CPUs that this process may use, where threads can yield.
fn two_cpus() -> Option<[CpuSet; 2]> {
    if let Some(obstacle) = super::yielding_obstacle() {
        say(format_args!("SKIPPED: {obstacle}"));
        return None;
    }
    let ours = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu));
    let found = cpus.next().zip(cpus.next());
    if found.is_none() {
        say(format_args!("SKIPPED: a caller cannot move on one CPU"));
    }
    let (first, second) = found?;
    Some([first, second].map(|cpu| super::spawn::only(u16::try_from(cpu).unwrap())))
}

/// Asks for a name that is never remembered, from one CPU and the other in turn, until a thread yields.
fn move_about(dir: &Path, cpus: &[CpuSet; 2]) {
    let end = Instant::now() + DEADLINE;
    while !any_yields() {
        assert!(Instant::now() < end, "no thread yields");
        for cpu in cpus.iter().cycle().take(20) {
            sched_setaffinity(None, cpu).unwrap();
            fs::metadata(dir.join("missing")).unwrap_err();
        }
    }
}

#[test]
fn threads_yield_to_callers_that_move_while_requests_come() {
    let Some(cpus) = two_cpus() else { return };
    mounted(TransportChoice::IoUring, |dir, session| {
        assert_eq!(session.yielding(), "on");
        move_about(dir, &cpus);
        wait_until("a thread yields that has nothing to do", || !any_yields());
        move_about(dir, &cpus);
    });
}

/// Ends what was set going when it is dropped, after a panic too.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn threads_that_yield_do_not_starve() {
    let Some(cpus) = two_cpus() else { return };
    mounted(TransportChoice::IoUring, |dir, _| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let end = Until(&over);
            move_about(dir, &cpus);
            for cpu in cpus {
                let over = &over;
                scope.spawn(move || {
                    sched_setaffinity(None, &cpu).unwrap();
                    while !over.load(Ordering::Relaxed) {}
                });
            }
            for cpu in cpus.iter().cycle().take(50) {
                sched_setaffinity(None, cpu).unwrap();
                let error = fs::metadata(dir.join("missing")).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            }
            wait_until("a thread yields for ever beside others", || !any_yields());
            drop(end);
        });
    });
}
