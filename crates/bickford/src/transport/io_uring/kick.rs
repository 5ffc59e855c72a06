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
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

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
/// Waits for the word, so that its number is known before its request comes.
const SCRIPT: &str = "read -r go && exec stat -f -- \"$0\"";

/// The processes that kick one queue.
#[derive(Debug, Default)]
pub(super) struct Kicker {
    wanted: AtomicUsize,
    running: AtomicBool,
    /// That the CPU is out of reach has been told.
    told: AtomicBool,
    processes: Mutex<HashSet<u32>>,
}

impl Kicker {
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
    if kicker.running.swap(true, Ordering::SeqCst) {
        return;
    }
    let of = Arc::clone(shared);
    let spawned = thread::Builder::new()
        .name("bickford-kick".into())
        .spawn(move || run(&of, queue));
    if let Err(error) = spawned {
        kicker.running.store(false, Ordering::SeqCst);
        tracing::warn!(queue, "no thread to look for requests that wait: {error}");
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
    loop {
        let wanted = kicker.wanted.swap(0, Ordering::SeqCst).min(PROCESSES_MAX);
        for _ in 0..wanted {
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
            waiting.extend(mountpoint(shared).and_then(|mount| start(kicker, &mount)));
        }
        waiting.retain_mut(|child| lives(kicker, child));
        dying.retain_mut(|child| lives(kicker, child));
        if waiting.is_empty() && dying.is_empty() || shared.is_stopping() {
            let left = waiting.drain(..).chain(dying.drain(..));
            left.for_each(|child| end(kicker, child));
            kicker.running.store(false, Ordering::SeqCst);
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

fn mountpoint(shared: &Shared) -> Option<PathBuf> {
    let mount = MountEntry::of_connection(shared.connection?).ok()??;
    Some(mount.mountpoint)
}

fn start(kicker: &Kicker, mountpoint: &Path) -> Option<Child> {
    let spawned = Command::new("sh")
        .args([OsStr::new("-c"), OsStr::new(SCRIPT), mountpoint.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            tracing::warn!("requests may wait until another is answered: run sh: {error}");
            return None;
        }
    };
    kicker.processes().insert(child.id());
    if let Some(mut word) = child.stdin.take()
        && let Err(error) = word.write_all(b"go\n")
    {
        tracing::debug!("a kick ended before it began: {error}");
    }
    Some(child)
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
