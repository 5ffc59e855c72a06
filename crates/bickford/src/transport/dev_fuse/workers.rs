//! Threads that receive and handle requests; as many as the load asks for.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::receiver::{Receipt, Receiver};
use super::{Channel, wait_for_memory};
use crate::dispatch::Server;
use crate::transport::{Responder, abort};

/// How many threads handle requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// At most this many; zero counts as one, and more than 1,024 as that.
    pub max: usize,
    /// No more than this many wait for requests, but for a moment after a burst; zero counts as one. The
    /// kernel gives requests to those that wait in turn, so that with more than there are CPUs each
    /// finds its caches filled by others.
    pub max_idle: usize,
}

impl Default for Workers {
    /// At most 32, of which one for each CPU waits, but two at least and ten at most.
    fn default() -> Self {
        Self::up_to(32)
    }
}

impl Workers {
    /// One thread: requests are handled one after the other.
    pub const SINGLE: Self = Self {
        max: 1,
        max_idle: 1,
    };

    /// At most `max` threads.
    #[must_use]
    pub fn up_to(max: usize) -> Self {
        let max = max.max(1);
        let cpus = thread::available_parallelism().map_or(2, usize::from);
        Self {
            max,
            max_idle: max.min(cpus.clamp(2, 10)),
        }
    }
}

/// The number of the first worker.
const FIRST: usize = 1;
/// Threads of a session, at most.
const THREADS_MAX: usize = 1024;
/// How long a worker with a large buffer waits before it gives the memory back.
const KEEP_BUFFER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// How long there must be too many idle workers before one rests. Where a client and several workers
/// share a CPU, workers that only wait for it look busy: their number goes up and down within
/// microseconds.
const LINGER: Duration = Duration::from_millis(10);
/// How long a worker rests before it ends.
const REST_MAX: Duration = Duration::from_secs(1);
/// How long the pool waits before it tries again to start a thread that could not be started.
const RETRY: Duration = Duration::from_secs(1);

/// The threads of one session.
#[derive(Debug)]
pub(crate) struct Pool {
    server: Arc<Server>,
    channel: Channel,
    /// Number of the connection, where it is known.
    connection: Option<u32>,
    workers: Workers,
    idle: AtomicUsize,
    running: Mutex<Running>,
    /// A worker has ended, or could not be started.
    changed: Condvar,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    count: usize,
    next: usize,
    /// When a worker could not be started, or failed.
    failed: Option<Instant>,
    /// Workers that wait to be called, and not for requests.
    resting: usize,
    /// How many of these have been called; never more than rest.
    called: usize,
    /// The connection has ended, or nobody serves it any more: no worker is started.
    over: bool,
}

impl Pool {
    /// Starts the first worker; it starts others.
    pub(crate) fn start(
        server: Arc<Server>,
        channel: Channel,
        connection: Option<u32>,
        workers: Workers,
    ) -> io::Result<Arc<Self>> {
        let pool = Self::of(server, channel, connection, workers);
        // Here, so that a session that nobody could serve does not begin.
        let receiver = Receiver::new(&pool.server, FIRST)?;
        pool.spawn_with(Some(receiver))?;
        if pool.workers.max > 1 {
            let keeper = Arc::clone(&pool);
            let builder = thread::Builder::new().name("bickford-keeper".into());
            if let Err(error) = builder.spawn(move || keeper.keep()) {
                tracing::warn!("workers that cannot be started are not tried again: {error}");
            }
        }
        Ok(pool)
    }

    /// A pool without a worker.
    pub(super) fn of(
        server: Arc<Server>,
        channel: Channel,
        connection: Option<u32>,
        workers: Workers,
    ) -> Arc<Self> {
        let workers = Workers {
            max: workers.max.clamp(1, THREADS_MAX),
            max_idle: workers.max_idle.max(1),
        };
        Arc::new(Self {
            server,
            channel,
            connection,
            workers,
            idle: AtomicUsize::new(0),
            running: Mutex::default(),
            changed: Condvar::new(),
            called: Condvar::new(),
        })
    }

    /// As if there were `count` workers, of which `idle` wait for requests.
    #[cfg(test)]
    pub(super) fn pretend(&self, count: usize, idle: usize) {
        self.running().count = count;
        self.idle.store(idle, Ordering::SeqCst);
    }

    /// How many workers were started.
    #[cfg(test)]
    pub(super) fn started(&self) -> usize {
        self.running().next
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every worker has ended, which they do with the connection, and the file system has
    /// been told.
    pub(crate) fn join(&self) {
        let running = self.running();
        drop(
            self.changed
                .wait_while(running, |running| running.count > 0),
        );
    }

    /// How many workers there may be.
    pub(crate) fn workers(&self) -> usize {
        self.workers.max
    }

    /// How many workers there are.
    pub(crate) fn len(&self) -> usize {
        self.running().count
    }

    /// One more worker is to wait for requests: one that rests, or a new one.
    pub(super) fn call(self: &Arc<Self>) -> io::Result<()> {
        let mut running = self.running();
        if running.called < running.resting {
            running.called += 1;
            drop(running);
            self.called.notify_one();
            return Ok(());
        }
        drop(running);
        self.spawn()
    }

    /// Waits to be called. Answers whether it was; else this worker is to end.
    pub(super) fn rest(&self) -> bool {
        let mut running = self.running();
        // Whoever took the last request may have found nobody at rest.
        if self.idle.load(Ordering::SeqCst) == 0 {
            return true;
        }
        running.resting += 1;
        let idle = |running: &mut Running| running.called == 0 && !running.over;
        let waited = self.called.wait_timeout_while(running, REST_MAX, idle);
        let (mut running, _) = waited.unwrap_or_else(PoisonError::into_inner);
        running.resting -= 1;
        let called = running.called > 0;
        running.called -= usize::from(called);
        called
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        self.spawn_with(None)
    }

    fn spawn_with(self: &Arc<Self>, receiver: Option<Receiver>) -> io::Result<()> {
        let number = {
            let mut running = self.running();
            let rests = running.failed.is_some_and(|at| at.elapsed() < RETRY);
            if running.count >= self.workers.max || rests || running.over {
                return Ok(());
            }
            running.count += 1;
            running.next += 1;
            running.next
        };
        let pool = Arc::clone(self);
        let builder = thread::Builder::new().name(format!("bickford-{number}"));
        let spawned = builder.spawn(move || {
            let _guard = Leave(&pool);
            let receiver = receiver.map_or_else(|| Receiver::new(&pool.server, number), Ok);
            if let Err(error) = receiver.and_then(|receiver| pool.work(receiver)) {
                tracing::error!("{error}; this worker ends");
                pool.running().failed = Some(Instant::now());
            }
        });
        if let Err(error) = spawned {
            let mut running = self.running();
            running.count -= 1;
            running.failed = Some(Instant::now());
            drop(running);
            self.changed.notify_all();
            return Err(error);
        }
        Ok(())
    }

    /// Starts a worker later where none could be started and nobody waits for requests. All others may be in
    /// methods that wait for a further request.
    fn keep(self: &Arc<Self>) {
        let mut running = self.running();
        loop {
            let fine = |running: &mut Running| running.failed.is_none() && !running.over;
            let failed = self.changed.wait_while(running, fine);
            running = failed.unwrap_or_else(PoisonError::into_inner);
            let rests = |running: &mut Running| !running.over;
            let rested = self.changed.wait_timeout_while(running, RETRY, rests);
            running = rested.unwrap_or_else(PoisonError::into_inner).0;
            if running.over {
                return;
            }
            running.failed = None;
            drop(running);
            if self.idle.load(Ordering::SeqCst) == 0
                && let Err(error) = self.spawn()
            {
                tracing::debug!("no further worker: {error}");
            }
            running = self.running();
        }
    }

    fn work(self: &Arc<Self>, mut receiver: Receiver) -> io::Result<()> {
        let channel = if self.workers.max == 1 {
            Arc::new(Channel::new(self.channel.shared()))
        } else {
            Arc::new(self.channel.duplicate())
        };
        let responder: Arc<dyn Responder> = channel.clone();
        let mut surplus = None;
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            if receiver.buffer.is_large() && rested(&channel) {
                receiver.buffer.shrink();
            }
            let received = receiver.receive(&channel);
            let last_idle = self.idle.fetch_sub(1, Ordering::SeqCst) == 1;
            let received = match received {
                Ok(Receipt::Request(received)) => received,
                Ok(Receipt::Nothing) => continue,
                Ok(Receipt::End) => {
                    self.running().over = true;
                    self.called.notify_all();
                    self.server.in_flight().end();
                    return Ok(());
                }
                Err(error @ (Errno::NOMEM | Errno::FAULT)) => {
                    wait_for_memory(error);
                    continue;
                }
                Err(error) => {
                    let text = format!("receiving a request: {error}");
                    return Err(io::Error::other(text));
                }
            };
            if last_idle && let Err(error) = self.call() {
                tracing::warn!("no further worker: {error}");
            }
            receiver.handle(&self.server, received, &responder);
            let enough = self.workers.max_idle;
            if self.idle.load(Ordering::SeqCst) < enough || self.workers.max == 1 {
                surplus = None;
            } else if surplus.get_or_insert_with(Instant::now).elapsed() > LINGER {
                if receiver.buffer.is_large() {
                    receiver.buffer.shrink();
                }
                if !self.rest() {
                    return Ok(());
                }
                surplus = None;
            }
        }
    }
}

/// Whether no request came for a while.
fn rested(channel: &Channel) -> bool {
    let device = channel.device();
    let mut fds = [PollFd::new(&device, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&KEEP_BUFFER)), Ok(0))
}

/// Leaves the pool however the thread ends. The last one tells the file system: nobody else need be
/// there, and whoever waits for the pool waits for that, too.
pub(super) struct Leave<'a>(pub(super) &'a Arc<Pool>);

impl Leave<'_> {
    /// Leaves unless this is the last one, which stays that: none is started any more.
    fn is_last(&self) -> bool {
        let mut running = self.0.running();
        let last = running.count <= 1;
        running.over |= last;
        running.count -= usize::from(!last);
        last
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.is_last() {
            // Nothing happens where it has ended.
            abort::give_up(self.0.connection, self.0.channel.device());
            self.0.server.in_flight().end();
            self.0.server.destroy();
            self.0.running().count = 0;
        } else if self.0.idle.load(Ordering::SeqCst) == 0
            && let Err(error) = self.0.spawn()
        {
            // Until it left it counted, and whoever took the last request may have started nobody.
            tracing::warn!("no further worker: {error}");
        }
        self.0.changed.notify_all();
    }
}
