//! Starts a thread for a queue.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::process::{PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use super::Shared;
use super::entry::Port;
use super::kick::kick;
use super::queue::{Member, Queue};
use super::ring::Server;
use crate::dispatch;
use crate::parked::Parked;
use crate::sys::payloads::Area;
use crate::sys::uring::Ring;

/// A thread that has everything it needs and waits for the word to register.
#[derive(Debug)]
pub(super) struct Starting {
    queue: Arc<Queue>,
    member: Arc<Member>,
    parked: Parked<Go>,
}

#[derive(Debug)]
struct Go {
    dispatcher: Arc<dispatch::Server>,
    role: Role,
    done: Sender<io::Result<()>>,
}

/// What a thread is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// To handle requests, at the beginning of a session.
    First,
    /// To handle requests, where some may be waiting.
    Further,
    /// To receive requests for the others: see `handover.rs`.
    Receiver,
}

/// Starts a thread that is pinned to the queue's CPU, and waits until it is ready.
pub(super) fn spawn(shared: &Arc<Shared>, queue: &Arc<Queue>) -> io::Result<Starting> {
    let number = shared.workers.fetch_add(1, Ordering::Relaxed);
    let (ready_to, ready) = channel();
    let (shared, of) = (Arc::clone(shared), Arc::clone(queue));
    let name = format!("bickford-q{}-{number}", queue.number);
    let parked = Parked::new(name, move |word| run(shared, of, number, &ready_to, word))?;
    let member = ready
        .recv()
        .map_err(|_| io::Error::other("a thread of io_uring ended before it began"))??;
    Ok(Starting {
        queue: Arc::clone(queue),
        member,
        parked,
    })
}

impl Starting {
    /// Readable once the thread has ended.
    pub(super) fn ended(&self) -> &OwnedFd {
        &self.member.ended
    }

    /// Has the thread register what entries it needs and serve.
    pub(super) fn go(self, dispatcher: &Arc<dispatch::Server>, role: Role) -> io::Result<()> {
        #[cfg(test)]
        if super::tests::NO_MEMORY.get() {
            return Err(rustix::io::Errno::NOMEM.into());
        }
        let (done, result) = channel();
        let go = Go {
            dispatcher: Arc::clone(dispatcher),
            role,
            done,
        };
        let ended = || io::Error::other("a thread of io_uring ended before it began");
        self.queue.members().push(Arc::clone(&self.member));
        let registered = match self.parked.go(go) {
            Some(_) => result.recv().unwrap_or_else(|_| Err(ended())),
            None => Err(ended()),
        };
        if registered.is_err() {
            self.queue
                .members()
                .retain(|member| !Arc::ptr_eq(member, &self.member));
        }
        registered.map_err(|error| {
            let text = format!("register queue {}: {error}", self.queue.number);
            io::Error::new(error.kind(), text)
        })
    }
}

/// Says why there is no further thread: nothing is wrong where the connection has just ended.
pub(super) fn say_no_thread(queue: &Queue, error: &io::Error) {
    let queue = queue.number;
    match error.kind() {
        io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted => {
            tracing::debug!(queue, "no further thread: {error}");
        }
        _ => tracing::warn!(queue, "no further thread: {error}"),
    }
}

fn run(
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    number: usize,
    ready: &Sender<io::Result<Arc<Member>>>,
    word: &Receiver<Go>,
) {
    let (ring, area, member) = match prepare(&shared, &queue) {
        Ok(prepared) => prepared,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let told = ready.send(Ok(Arc::clone(&member)));
    let (Ok(()), Ok(go)) = (told, word.recv()) else {
        member.finished.store(true, Ordering::SeqCst);
        return;
    };
    let mut server = Server::new(
        go.dispatcher,
        shared,
        queue,
        Arc::clone(&member),
        ring,
        number,
    );
    let registered = match go.role {
        Role::Receiver => server.register_receiver(area),
        // The receiver has the entries.
        Role::Further if server.has_receiver() => Ok(()),
        Role::First | Role::Further => server.register(area),
    };
    let failed = registered.is_err();
    if failed {
        member.finished.store(true, Ordering::SeqCst);
    }
    if go.done.send(registered).is_err() || failed {
        return;
    }
    match go.role {
        Role::First => server.serve(),
        Role::Further => {
            kick(server.shared(), server.queue());
            server.serve();
        }
        Role::Receiver => server.receive(),
    }
}

fn prepare(shared: &Shared, queue: &Arc<Queue>) -> io::Result<(Ring, Area, Arc<Member>)> {
    if let Err(error) = sched_setaffinity(None, &only(queue.number)) {
        // The CPU may be offline, or not ours to use.
        tracing::debug!(cpu = queue.number, "a thread is not pinned: {error}");
    }
    let mut ring = Ring::new(&shared.device, queue.number)
        .map_err(|error| io::Error::new(error.kind(), format!("io_uring_setup: {error}")))?;
    // A system call filter may allow the one and not the other.
    ring.submit(0)
        .map_err(|error| io::Error::new(error.kind(), format!("io_uring_enter: {error}")))?;
    let area = queue.areas.area()?;
    let member = Arc::new(Member {
        thread: gettid(),
        turns: AtomicU64::new(0),
        yields: AtomicBool::new(false),
        finished: AtomicBool::new(false),
        ended: own_end()?,
        port: Arc::new(Port::new(ring.waker(), Arc::clone(&shared.device), queue)),
        entries: AtomicUsize::new(1),
        waiting: AtomicUsize::new(0),
    });
    Ok((ring, area, member))
}

/// The set of one CPU.
pub(super) fn only(cpu: u16) -> CpuSet {
    let mut cpus = CpuSet::new();
    if usize::from(cpu) < CpuSet::MAX_CPU {
        cpus.set(usize::from(cpu));
    }
    cpus
}

/// A descriptor that becomes readable when the calling thread ends.
fn own_end() -> io::Result<OwnedFd> {
    // PIDFD_THREAD, which is O_EXCL.
    let thread = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());
    pidfd_open(gettid(), thread)
        .map_err(|error| io::Error::new(error.kind(), format!("pidfd_open of a thread: {error}")))
}
