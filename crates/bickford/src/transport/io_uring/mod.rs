//! FUSE over io_uring: a queue for each CPU, served by threads that are pinned to it.
//!
//! A request goes to the queue of the CPU on which its caller runs, into an entry that waits. Every
//! thread has a ring of its own with one waiting entry, so that a handler that takes long holds up
//! nobody else: the kernel gives further requests to the entries of other threads of the queue.
//! Each queue begins with a few threads; `watch.rs` adds more when all but one are stuck in handlers.
//! While a reply is due later, its entry is kept and the thread registers another one.
//!
//! Where the file system says that it is prompt, the entries of a queue gather at one thread, which
//! answers all that has come with one system call; while methods wait, they go back to one for each
//! thread (`pace.rs`). An entry belongs to the ring in which its last answer was committed, so either
//! happens as requests come: a thread leaves its answer to the other one, or passes the request on.
//!
//! On a machine that is not busy, threads yield to callers (`yielding.rs`).
//!
//! FORGET, INTERRUPT and notifications do not use the rings; they go over /dev/fuse.

mod entry;
mod handover;
mod kick;
mod pace;
mod pages;
mod probe;
mod queue;
mod reader;
mod ring;
mod schedule;
mod signals;
mod spawn;
#[cfg(test)]
mod tests;
mod watch;
mod yielding;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

pub use probe::io_uring_obstacle;
pub use yielding::yielding_obstacle;

use super::{Workers, Yielding};
use crate::dispatch;
use crate::filesystem::MAX_WRITE;
use crate::parked::Parked;
use crate::sys::payloads::Areas;
use crate::sys::uring::{Event, Ring};
use queue::Queue;
use spawn::{Role, Starting};

/// Threads of one queue, at most.
const THREADS_MAX: usize = 16;
/// Threads of one queue at the beginning, at least.
const THREADS_MIN: usize = 2;
/// Threads of all queues together at the beginning, at least. The kernel takes the entry that was
/// given back last: threads that are not needed sleep, and cost what they have of the stack.
const THREADS_BEGIN: usize = 16;

/// Descriptors of a thread: its ring, what wakes it, and its pidfd.
const DESCRIPTORS: usize = 3;

/// What the threads of a session share.
#[derive(Debug)]
struct Shared {
    device: Arc<OwnedFd>,
    /// Bytes that an entry has for names and data.
    payload: usize,
    queues: Vec<Arc<Queue>>,
    /// Threads that a queue may have.
    threads_max: usize,
    /// Threads that a queue begins with.
    threads_begin: usize,
    workers: AtomicUsize,
    kickers: Vec<kick::Kicker>,
    pace: pace::Pace,
    pages: pages::Pages,
    yielding: yielding::Common,
    /// Number of the connection, where it is known.
    connection: Option<u32>,
    stopping: AtomicBool,
    /// Wakes the watcher.
    bell: OwnedFd,
    watching: AtomicBool,
    /// Parts that must end before the session has ended: the watcher and the reader.
    parts: Mutex<usize>,
    changed: Condvar,
}

impl Shared {
    /// Has the watcher look at the queues until none is short of entries.
    fn watch(&self) {
        // Not before the entry was taken: the watcher puts its flag back, and then looks for entries.
        if !self.watching.load(Ordering::SeqCst) && !self.watching.swap(true, Ordering::SeqCst) {
            self.ring_bell();
        }
    }

    /// Has the watcher look for entries that much has gone through.
    fn look_at_pages(&self) {
        if self.pages.ask() {
            self.ring_bell();
        }
    }

    fn ring_bell(&self) {
        if let Err(error) = rustix::io::write(&self.bell, &1u64.to_ne_bytes()) {
            tracing::error!("waking the watcher of the queues: {error}");
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Has every thread end.
    fn stop(&self) {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        for queue in &self.queues {
            for member in queue.members().iter() {
                member.port.wake();
            }
        }
    }

    /// Aborts the connection because it cannot be served any more.
    fn give_up(&self) {
        super::abort::give_up(self.connection, &*self.device);
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, usize> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the session, which ends when this is dropped. The last one tells the file system: nobody
/// else need be there, and whoever waits for the parts waits for that, too.
#[derive(Debug)]
struct Part {
    shared: Arc<Shared>,
    dispatcher: Arc<dispatch::Server>,
}

impl Part {
    fn new(shared: &Arc<Shared>, dispatcher: &Arc<dispatch::Server>) -> Self {
        *shared.parts() += 1;
        Self {
            shared: Arc::clone(shared),
            dispatcher: Arc::clone(dispatcher),
        }
    }

    /// Ends unless this is the last one.
    fn is_last(&self) -> bool {
        let mut parts = self.shared.parts();
        let last = *parts <= 1;
        *parts -= usize::from(!last);
        last
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_last() {
            self.dispatcher.destroy();
            *self.shared.parts() -= 1;
        }
        self.shared.changed.notify_all();
    }
}

/// Rings that are ready to be registered. The kernel holds back every request from INIT until all
/// queues are there; so everything that can fail is done before INIT is answered.
#[derive(Debug)]
pub(crate) struct Prepared {
    shared: Arc<Shared>,
    starting: Vec<Starting>,
    watcher: Parked<Part>,
    reader: Parked<Part>,
}

impl Prepared {
    /// Sets up the first thread of every queue, and what a session cannot do without.
    ///
    /// # Errors
    /// What the system refuses: threads, descriptors, memory, rings.
    pub(crate) fn new(
        device: &Arc<OwnedFd>,
        workers: Workers,
        yielding: Yielding,
        connection: Option<u32>,
    ) -> io::Result<Self> {
        let cpus = probe::possible_cpus()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (threads_begin, threads_max) = threads(workers, cpus, descriptors())?;
        let payload = payload_size();
        let shared = Arc::new(Shared {
            device: Arc::clone(device),
            payload,
            queues: (0..cpus)
                .map(|number| Arc::new(Queue::new(number, payload)))
                .collect(),
            threads_max,
            threads_begin,
            workers: AtomicUsize::new(1),
            kickers: (0..cpus).map(|_| kick::Kicker::new()).collect(),
            pace: pace::Pace::default(),
            pages: pages::Pages::default(),
            yielding: yielding::Common::new(yielding),
            connection,
            stopping: AtomicBool::new(false),
            bell: rustix::event::eventfd(0, flags)?,
            watching: AtomicBool::new(false),
            parts: Mutex::default(),
            changed: Condvar::new(),
        });
        let starting: Vec<_> = shared
            .queues
            .iter()
            .map(|queue| spawn::spawn(&shared, queue))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            watcher: watch::prepare(&starting)?,
            reader: reader::prepare(&shared)?,
            shared,
            starting,
        })
    }

    /// Registers the rings and begins to serve, after INIT was answered.
    ///
    /// # Errors
    /// [`StartError`].
    pub(crate) fn start(self, dispatcher: &Arc<dispatch::Server>) -> Result<Rings, StartError> {
        let rings = Rings {
            shared: self.shared,
        };
        // Before the first request can ask for its interrupt.
        watch::seek_signals(&rings.shared, dispatcher);
        for starting in self.starting {
            if let Err(error) = starting.go(dispatcher, Role::First) {
                rings.shared.stop();
                return Err(refused(&rings.shared, error));
            }
        }
        for queue in &rings.shared.queues {
            for _ in 1..rings.shared.threads_begin {
                let more = spawn::spawn(&rings.shared, queue)
                    .and_then(|starting| starting.go(dispatcher, Role::First));
                if let Err(error) = more {
                    spawn::say_no_thread(queue, &error);
                }
            }
        }
        rings.kick_begun();
        // Both before either begins: one that ended at once would be the last.
        let parts = [(); 2].map(|()| Part::new(&rings.shared, dispatcher));
        for (thread, part) in [self.watcher, self.reader].into_iter().zip(parts) {
            thread.go(part);
        }
        Ok(rings)
    }
}

/// Descriptors that this process may have.
fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many threads a queue begins with, and how many it may have. With one that receives they leave a quarter of
/// all descriptors to the file system, where that has more need of them.
fn threads(workers: Workers, queues: u16, descriptors: u64) -> io::Result<(usize, usize)> {
    let queues = usize::from(queues).max(1);
    let all = usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX) / DESCRIPTORS;
    let of_queue = all / queues;
    if of_queue < THREADS_MIN {
        let text = format!(
            "its threads for {queues} CPUs would take more than three quarters of {descriptors} descriptors: \
             raise the limit (ulimit -n)"
        );
        return Err(io::Error::other(text));
    }
    let bound = (of_queue - 1).clamp(THREADS_MIN, THREADS_MAX);
    let max = workers.max.clamp(THREADS_MIN, bound);
    Ok((THREADS_BEGIN.div_ceil(queues).clamp(THREADS_MIN, max), max))
}

/// Why rings do not serve.
#[derive(Debug)]
pub(crate) enum StartError {
    /// A queue could not be registered. The kernel has gone back to /dev/fuse, and so must the session.
    Refused(io::Error),
    /// The kernel waits for rings that cannot be served; the connection was aborted.
    Broken(io::Error),
}

/// What comes of a queue that could not be registered.
fn refused(shared: &Shared, error: io::Error) -> StartError {
    match go_back(&shared.device) {
        Ok(()) => StartError::Refused(error),
        Err(also) => {
            shared.give_up();
            let text = format!("{error}; going back to /dev/fuse: {also}");
            StartError::Broken(io::Error::new(error.kind(), text))
        }
    }
}

/// Has the kernel go back to /dev/fuse, which it does when it refuses an entry. What it was never asked, for want
/// of memory for the command, it has not refused: it would go on holding back every request.
fn go_back(device: &OwnedFd) -> io::Result<()> {
    let mut ring = Ring::new(device, 0)?;
    // Without room for any request.
    ring.register(Areas::new(0).area()?, 0)?;
    ring.submit(0)?;
    match ring.next_event()? {
        Some(Event::Lost(Errno::INVAL | Errno::OPNOTSUPP)) => Ok(()),
        Some(Event::Lost(error)) => Err(error.into()),
        _ => Err(io::Error::other("an entry without room was not refused")),
    }
}

/// Bytes of names and data that an entry has room for: the kernel refuses less than max_write.
fn payload_size() -> usize {
    #[cfg(test)]
    if let Some(size) = tests::PAYLOAD.get() {
        return size;
    }
    MAX_WRITE as usize
}

/// The running rings of a session.
#[derive(Debug)]
pub(crate) struct Rings {
    shared: Arc<Shared>,
}

impl Rings {
    /// Kicks the queues whose first thread has had a request: until the others had registered, further ones were
    /// kept back.
    fn kick_begun(&self) {
        let has_begun = |queue: &&Arc<Queue>| {
            let members = queue.members();
            let first = members.first();
            first.is_some_and(|first| first.turns.load(Ordering::SeqCst) > 0)
        };
        for queue in self.shared.queues.iter().filter(has_begun) {
            kick::kick(&self.shared, queue.number);
        }
    }

    /// How many threads serve requests.
    pub(crate) fn len(&self) -> usize {
        let queues = self.shared.queues.iter();
        queues.map(|queue| queue.members().len()).sum()
    }

    /// How many threads there may be in all.
    pub(crate) fn workers(&self) -> usize {
        self.queues() * self.shared.threads_max
    }

    /// How many threads a queue may have.
    pub(crate) fn workers_of_queue(&self) -> usize {
        self.shared.threads_max
    }

    /// How many queues there are.
    pub(crate) fn queues(&self) -> usize {
        self.shared.queues.len()
    }

    /// Whether threads yield to callers: `on`, `off`, or `off: ...` with the reason.
    pub(crate) fn yielding(&self) -> &str {
        self.shared.yielding.said()
    }

    /// Waits until every thread has ended, which they do with the connection, and the file system has
    /// been told.
    pub(crate) fn join(&self) {
        let parts = self.shared.parts();
        drop(self.shared.changed.wait_while(parts, |parts| *parts > 0));
    }
}
