//! Has the kernel look at requests that it keeps back.
//!
//! While every entry of a queue is away, further requests wait in the kernel. It hands one of them
//! out whenever an entry is committed, but not when one is registered: with the other entries kept
//! by replies that are due later, those that wait would go on waiting. So whoever registers an
//! entry on a running session brings about a request in the same queue, whose commit hands out one
//! that waits: a statfs(2) of the mount, which never reaches the file system.
//!
//! Another process makes that request. A thread of this one that waited for its own session could
//! not be killed: the connection ends only when the last thread has let go of the device.
//!
//! While that process is in statfs(2) it keeps the mount busy: a umount(2) in these milliseconds gets
//! EBUSY, although nobody has anything of it open. `mount/unmount.rs` therefore tries again.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::thread::sched_setaffinity;

use super::{Shared, spawn::only};
use crate::mount::MountEntry;

/// Processes of one queue that wait for their answer. A further one takes the place of the oldest,
/// which may wait behind the very requests that are to be set free.
const PROCESSES_MAX: usize = 4;
/// Processes that were killed and have not ended: one whose request is under way ends with its answer, which
/// may itself wait for a kick.
const DYING_MAX: usize = 64;
/// How often processes that ended are collected.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait after one could not be started.
const RETRY: Duration = Duration::from_secs(1);
/// Waits for the word, so that its number is known before its request comes.
const SCRIPT: &str = "read -r go && exec stat -f -- \"$0\"";

/// The processes that kick one queue.
#[derive(Debug, Default)]
pub(super) struct Kicker {
    wanted: AtomicUsize,
    running: AtomicBool,
    /// That the CPU is out of reach has been told.
    told: AtomicBool,
    /// The last start of a thread or process failed.
    failed: AtomicBool,
    processes: Mutex<HashSet<u32>>,
    /// How many processes cannot be started.
    #[cfg(test)]
    fail: Option<&'static AtomicUsize>,
}

impl Kicker {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(test)]
            fail: super::tests::KICKS_FAIL.get(),
            ..Self::default()
        }
    }

    /// Whether kicks are wanted that nobody sees to, since a thread or process could not be started.
    pub(super) fn is_owed(&self) -> bool {
        !self.running.load(Ordering::SeqCst) && self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Tells of the first failure; it is tried again each second.
    fn has_failed(&self, queue: u16, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                queue,
                "requests may wait until another is answered: looking for those that wait: {error}; it is tried again"
            );
        }
    }

    fn processes(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request of this process is a kick.
    pub(super) fn contains(&self, process: u32) -> bool {
        self.running.load(Ordering::SeqCst) && self.processes().contains(&process)
    }
}

/// Kicks a queue, from a thread of its own.
pub(super) fn kick(shared: &Arc<Shared>, queue: u16) {
    let Some(kicker) = shared.kickers.get(usize::from(queue)) else {
        return;
    };
    kicker.wanted.fetch_add(1, Ordering::SeqCst);
    begin(shared, kicker, queue);
}

/// Kicks the queues that are owed one.
pub(super) fn kick_owed(shared: &Arc<Shared>) {
    for (kicker, queue) in shared.kickers.iter().zip(0..) {
        if kicker.is_owed() {
            begin(shared, kicker, queue);
        }
    }
}

fn begin(shared: &Arc<Shared>, kicker: &Kicker, queue: u16) {
    if kicker.running.swap(true, Ordering::SeqCst) {
        return;
    }
    let of = Arc::clone(shared);
    let builder = thread::Builder::new().name("bickford-kick".into());
    if let Err(error) = builder.spawn(move || run(&of, queue)) {
        kicker.running.store(false, Ordering::SeqCst);
        kicker.has_failed(queue, &error);
        // The watcher tries again.
        shared.ring_bell();
    }
}

fn run(shared: &Shared, queue: u16) {
    let Some(kicker) = shared.kickers.get(usize::from(queue)) else {
        return;
    };
    if !reach(kicker, queue) {
        return;
    }
    let mut waiting: VecDeque<Child> = VecDeque::new();
    let mut dying: Vec<Child> = Vec::new();
    let mut failed: Option<Instant> = None;
    loop {
        if failed.is_none_or(|at| at.elapsed() >= RETRY) {
            let started = start_wanted(shared, kicker, &mut waiting, &mut dying);
            failed = started.is_err().then(Instant::now);
            match started {
                Ok(()) => kicker.failed.store(false, Ordering::Relaxed),
                Err(error) => kicker.has_failed(queue, &error),
            }
        }
        waiting.retain_mut(|child| lives(kicker, child));
        dying.retain_mut(|child| lives(kicker, child));
        if waiting.is_empty() && dying.is_empty() || shared.is_stopping() {
            let left = waiting.drain(..).chain(dying.drain(..));
            left.for_each(|child| end(kicker, child));
            kicker.running.store(false, Ordering::SeqCst);
            if failed.is_some() {
                // The watcher tries again.
                return shared.ring_bell();
            }
            // Whoever wanted a kick in between found this thread still running.
            if kicker.wanted.load(Ordering::SeqCst) == 0
                || shared.is_stopping()
                || kicker.running.swap(true, Ordering::SeqCst)
            {
                return;
            }
            continue;
        }
        thread::sleep(PAUSE);
    }
}

/// Starts the processes that are wanted. What could not be started is wanted still.
fn start_wanted(
    shared: &Shared,
    kicker: &Kicker,
    waiting: &mut VecDeque<Child>,
    dying: &mut Vec<Child>,
) -> io::Result<()> {
    let wanted = kicker.wanted.swap(0, Ordering::SeqCst).min(PROCESSES_MAX);
    for started in 0..wanted {
        if dying.len() >= DYING_MAX {
            // Asked for again by the next look.
            kicker.wanted.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if waiting.len() >= PROCESSES_MAX
            && let Some(mut oldest) = waiting.pop_front()
        {
            if let Err(error) = oldest.kill() {
                tracing::debug!("ending a kick: {error}");
            }
            dying.push(oldest);
        }
        let child = mountpoint(shared).and_then(|mount| {
            let start = |mount: PathBuf| start(kicker, &mount);
            mount.map(start).transpose()
        });
        match child {
            Ok(child) => waiting.extend(child),
            Err(error) => {
                kicker.wanted.fetch_add(wanted - started, Ordering::SeqCst);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Goes to the queue's CPU, as the processes then do: from another one they would kick another queue. Where that
/// cannot be, nothing runs.
fn reach(kicker: &Kicker, queue: u16) -> bool {
    let Err(error) = sched_setaffinity(None, &only(queue)) else {
        return true;
    };
    if !kicker.told.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            cpu = queue,
            "requests of callers on this CPU may wait until another of them is answered, for this process cannot run \
             there: {error}; its cpuset leaves the CPU out, or it is offline. Over /dev/fuse they do not wait"
        );
    }
    kicker.wanted.store(0, Ordering::SeqCst);
    kicker.running.store(false, Ordering::SeqCst);
    false
}

fn mountpoint(shared: &Shared) -> io::Result<Option<PathBuf>> {
    let mount = shared.connection.map(MountEntry::of_connection);
    Ok(mount.transpose()?.flatten().map(|mount| mount.mountpoint))
}

fn start(kicker: &Kicker, mountpoint: &Path) -> io::Result<Child> {
    #[cfg(test)]
    if let Some(fail) = kicker.fail
        && fail
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    {
        return Err(rustix::io::Errno::AGAIN.into());
    }
    // Not a pipe: a program in C would die of SIGPIPE where the other end is gone.
    let (word, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let child = Command::new("sh")
        .args([OsStr::new("-c"), OsStr::new(SCRIPT), mountpoint.as_os_str()])
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("run sh: {error}")))?;
    kicker.processes().insert(child.id());
    if let Err(error) = send(&word, b"go\n", SendFlags::NOSIGNAL) {
        tracing::debug!("a kick ended before it began: {error}");
    }
    Ok(child)
}

fn lives(kicker: &Kicker, child: &mut Child) -> bool {
    let lives = matches!(child.try_wait(), Ok(None));
    if !lives {
        kicker.processes().remove(&child.id());
    }
    lives
}

/// Kills a process and waits for its end: the connection has ended, or is about to.
fn end(kicker: &Kicker, mut child: Child) {
    let ended = child.kill().and_then(|()| child.wait());
    if let Err(error) = ended {
        tracing::debug!("ending a kick: {error}");
    }
    kicker.processes().remove(&child.id());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_out_of_reach_is_not_kicked_from_another() {
        let kicker = Kicker::default();
        let kicked = |cpu| {
            kicker.wanted.store(1, Ordering::SeqCst);
            kicker.running.store(true, Ordering::SeqCst);
            // A thread of its own, which goes to that CPU.
            thread::scope(|scope| scope.spawn(|| reach(&kicker, cpu)).join()).unwrap()
        };
        assert!(!kicked(u16::MAX));
        assert!(kicker.told.load(Ordering::SeqCst));
        assert!(!kicker.running.load(Ordering::SeqCst), "the next is tried");
        assert_eq!(kicker.wanted.load(Ordering::SeqCst), 0);
        let ours = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| ours.is_set(usize::from(*cpu)));
        assert!(kicked(cpu.unwrap()));
        assert!(kicker.running.load(Ordering::SeqCst));
    }
}
