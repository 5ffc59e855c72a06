//! Methods that wait, beside replies that do and requests that the kernel keeps back.

use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::super::{probe, spawn};
use super::{can_mount, configured, one_cpu, wait_until, waiting};
use crate::filesystem::blocking;
use crate::mount::{self, MountOptions, Unmount, unmount};
use crate::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use crate::transport::{TransportChoice, Workers};
use crate::watchdog::{DEADLINE, say, show_connections, watch};
use crate::{Blocking, Context, FileSystem, NodeId, Reply, Session, SessionConfig};

/// Keeps the replies to names that begin with `later`, and is in its method with those that begin with `block` as long
/// as it is shut.
#[derive(Clone, Default)]
struct Mixed(Arc<State>);

#[derive(Default)]
struct State {
    kept: Mutex<Vec<Reply<Entry>>>,
    /// As many as can be once it is open.
    blocked: Mutex<usize>,
    opened: Condvar,
}

impl Mixed {
    fn entry() -> Entry {
        Entry::new(NodeId(2), Attr::file(2, 0o644, 7), Duration::ZERO)
    }

    fn kept(&self) -> usize {
        self.0.kept.lock().unwrap().len()
    }

    fn blocked(&self) -> usize {
        *self.0.blocked.lock().unwrap()
    }

    fn open(&self) {
        *self.0.blocked.lock().unwrap() = usize::MAX;
        self.0.opened.notify_all();
        for reply in self.0.kept.lock().unwrap().drain(..) {
            reply.ok(Self::entry());
        }
    }

    fn shut(&self) {
        *self.0.blocked.lock().unwrap() = 0;
    }
}

impl FileSystem for Mixed {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        let state = &*self.0;
        match op.name.to_bytes() {
            name if name.starts_with(b"later") => return state.kept.lock().unwrap().push(reply),
            name if name.starts_with(b"block") => {
                let mut blocked = state.blocked.lock().unwrap();
                *blocked = blocked.saturating_add(1);
                let shut = |blocked: &mut usize| *blocked < usize::MAX;
                drop(state.opened.wait_while(blocked, shut).unwrap());
            }
            _ => {}
        }
        reply.ok(Self::entry());
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        let attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            _ => Self::entry().attr,
        };
        let valid = DEADLINE;
        reply.ok(Attributes { attr, valid });
    }
}

/// Lets all methods go on when it is dropped, after a panic too.
struct Opens<'a>(&'a Mixed);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The first receiver mostly begins when the request that it was started for has been answered: then the thread that did it
/// has an entry that no request comes to.
#[test]
fn threads_that_have_an_entry_beside_a_receiver_leave_room_for_others() {
    const THREADS: usize = 2;
    let config = SessionConfig::default()
        .transport(TransportChoice::IoUring)
        .workers(Workers::up_to(THREADS));
    for is_full in [false, false, true, true] {
        let mixed = Mixed::default();
        let queues = usize::from(probe::possible_cpus().unwrap());
        configured(mixed.clone(), config, |dir, session| {
            let cpu = &one_cpu();
            std::thread::scope(|scope| {
                let open = Opens(&mixed);
                let ask = |name: String| {
                    scope.spawn(move || {
                        sched_setaffinity(None, cpu).unwrap();
                        assert_eq!(fs::metadata(dir.join(name)).unwrap().len(), 7);
                    })
                };
                if is_full {
                    let all: [_; THREADS] =
                        std::array::from_fn(|number| ask(format!("block before {number}")));
                    wait_until("all threads are in methods", || mixed.blocked() == THREADS);
                    // For some looks of the watcher.
                    std::thread::sleep(Duration::from_millis(20));
                    mixed.open();
                    all.into_iter().for_each(|one| one.join().unwrap());
                    mixed.shut();
                }
                (1..THREADS).for_each(|number| drop(ask(format!("later{number}"))));
                wait_until("replies are kept", || mixed.kept() == THREADS - 1);
                wait_until("a receiver begins", || {
                    ask("quick".into()).join().unwrap();
                    session.worker_count() > queues * THREADS
                });
                (0..THREADS).for_each(|number| drop(ask(format!("block{number}"))));
                wait_until("as many methods as there may be threads", || {
                    mixed.blocked() == THREADS
                });
                drop(open);
            });
        });
    }
}

/// Is in GETATTR until it is asked for by two.
#[derive(Clone, Default)]
struct Pair(Arc<(Mutex<usize>, Condvar)>);

impl blocking::FileSystem for Pair {
    fn getattr(&self, _: &Context<'_>, _: Getattr) -> Result<Attributes, Errno> {
        let (asked, changed) = &*self.0;
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        changed.notify_all();
        let alone = |asked: &mut usize| *asked < 2;
        let (asked, _) = changed.wait_timeout_while(asked, DEADLINE, alone).unwrap();
        if *asked < 2 {
            return Err(Errno::TIMEDOUT);
        }
        let attr = Attr::directory(1, 0o755);
        let valid = Duration::ZERO;
        Ok(Attributes { attr, valid })
    }
}

/// Until the other threads of a queue have registered theirs, there is the entry of the first alone.
#[test]
fn who_waited_for_the_mount_is_answered_beside_a_method_that_waits() {
    let last = probe::possible_cpus().unwrap() - 1;
    let ours = sched_getaffinity(None).unwrap();
    if !can_mount() || !ours.is_set(usize::from(last)) {
        say(format_args!("SKIPPED: needs the last CPU"));
        return;
    }
    show_connections();
    let cpu = &spawn::only(last);
    for _ in 0..4 {
        let dir = &tempfile::tempdir().unwrap();
        let options = MountOptions::new().fsname("bickford-test");
        let mounted = mount::mount(dir.path(), &options).unwrap();
        let number = mounted.connection().unwrap();
        let watchdog = watch(dir.path().to_owned(), Some(number));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    sched_setaffinity(None, cpu).unwrap();
                    assert!(fs::metadata(dir.path()).unwrap().is_dir());
                });
            }
            wait_until("they wait, beside INIT", || waiting(number) == 3);
            let config = SessionConfig::default().transport(TransportChoice::IoUring);
            Session::on_mount(Blocking(Pair::default()), mounted, config).unwrap()
        });
        while unmount(dir.path(), Unmount::Force).is_ok() {}
        drop(watchdog);
    }
}
