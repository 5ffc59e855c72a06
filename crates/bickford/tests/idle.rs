//! What a mount that has nothing to do takes of the machine's CPUs, and what it does to their accounts.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use bickford::ops::{Attr, Attributes, Getattr};
use bickford::transport::TransportChoice;
use bickford::{Blocking, Context, Errno, SessionConfig};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use support::{Fixture, wait_until};

struct Empty;

impl bickford::filesystem::blocking::FileSystem for Empty {
    fn getattr(&self, _: &Context<'_>, _: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: Attr::directory(1, 0o755),
            valid: Duration::ZERO,
        })
    }
}

/// Linux 6.15 has `IORING_ENTER_NO_IOWAIT`.
fn can_tell() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_str().unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap_or(0));
    if version < (6, 15) {
        support::say(format_args!(
            "SKIPPED: Linux {release} accounts threads that wait for a ring as waiting for I/O"
        ));
    }
    version >= (6, 15)
}

/// How many threads of the machine wait for I/O, as the kernel accounts it (proc_stat(5)).
fn blocked() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let count = stat.lines().find_map(|l| l.strip_prefix("procs_blocked "));
    count.unwrap().parse().unwrap()
}

#[test]
fn an_idle_mount_is_not_accounted_as_waiting_for_io() {
    if !support::can_mount() || !support::can_use_io_uring() || !can_tell() {
        return;
    }
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let fixture = Fixture::new(Blocking(Empty), config);
    fs::metadata(fixture.path("")).unwrap();
    let workers = fixture.session().worker_count();
    // Others may wait for I/O, but not as many all the time.
    support::wait_until("fewer threads wait for I/O than the mount has", || {
        thread::sleep(Duration::from_millis(200));
        blocked() < workers
    });
    fixture.finish();
}

/// Is in GETATTR until it is let go.
#[derive(Clone, Default)]
struct Hangs(Arc<(Mutex<bool>, Condvar)>);

impl bickford::filesystem::blocking::FileSystem for Hangs {
    fn getattr(&self, cx: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let (over, changed) = &*self.0;
        drop(changed.wait_while(over.lock().unwrap(), |over| !*over));
        Empty.getattr(cx, op)
    }
}

/// Ends what hangs when it is dropped, after a panic too.
struct Ends<'a>(&'a Hangs);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        *self.0.0.0.lock().unwrap() = true;
        self.0.0.1.notify_all();
    }
}

/// Hundredths of a second that this process has run (proc_pid_stat(5)).
fn used() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after) = stat.rsplit_once(')').unwrap();
    let times = after.split_whitespace().skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_mount_whose_threads_all_hang_takes_next_to_no_time() {
    /// As many as a queue may have.
    const THREADS: usize = 16;
    if !support::can_mount() || !support::can_use_io_uring() {
        return;
    }
    // On a machine of many CPUs it bounds threads.
    let mut descriptors = getrlimit(Resource::Nofile);
    descriptors.current = descriptors.maximum;
    setrlimit(Resource::Nofile, descriptors).unwrap();
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let hangs = Hangs::default();
    let fixture = Fixture::new(Blocking(hangs.clone()), config);
    let ours = sched_getaffinity(None).unwrap();
    let mut cpu = CpuSet::new();
    cpu.set((0..CpuSet::MAX_CPU).find(|cpu| ours.is_set(*cpu)).unwrap());
    thread::scope(|scope| {
        let end = Ends(&hangs);
        for _ in 0..THREADS {
            scope.spawn(|| {
                sched_setaffinity(None, &cpu).unwrap();
                fs::metadata(fixture.path("")).unwrap();
            });
        }
        let in_flight = fixture.session().server().in_flight();
        wait_until("all hang", || in_flight.len() == THREADS);
        // Some looks of the watcher, which then knows that no further thread can help.
        thread::sleep(Duration::from_millis(100));
        let before = used();
        thread::sleep(Duration::from_secs(1));
        let used = used() - before;
        drop(end);
        assert!(used < 20, "{used} hundredths of a second");
    });
    fixture.finish();
}
