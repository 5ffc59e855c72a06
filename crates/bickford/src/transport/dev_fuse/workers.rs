//! Threads that receive and handle requests; as many as the load asks for.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::splice::{Received, Splicing};
use super::{Channel, HEADER_ROOM};
use crate::dispatch::Server;
use crate::transport::Responder;
use crate::transport::buffer::Buffer;

/// How many threads handle requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// At most this many.
    pub max: usize,
    /// No more than this many wait for requests, but for a second after a burst.
    pub max_idle: usize,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            max: 32,
            max_idle: 10,
        }
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
        let max = max.clamp(1, 1024);
        Self {
            max,
            max_idle: max.min(10),
        }
    }
}

/// How long a worker with a large buffer waits before it gives the memory back.
const REST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// How long there must be too many workers before one ends. Where a client and several workers share a
/// CPU, workers that only wait for it look busy: their number goes up and down within microseconds.
const LINGER: Duration = Duration::from_secs(1);
/// How long the pool waits before it tries again to start a thread that could not be started.
const RETRY: Duration = Duration::from_secs(1);

/// The threads of one session.
#[derive(Debug)]
pub(crate) struct Pool {
    server: Arc<Server>,
    channel: Channel,
    workers: Workers,
    buffer_size: usize,
    idle: AtomicUsize,
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    count: usize,
    next: usize,
    failed: Option<Instant>,
}

impl Pool {
    /// Starts the first worker; it starts others.
    pub(crate) fn start(
        server: Arc<Server>,
        channel: Channel,
        workers: Workers,
    ) -> io::Result<Arc<Self>> {
        let max_write = server
            .negotiated()
            .map_or(0, |settled| settled.negotiation.max_write());
        let pool = Arc::new(Self {
            server,
            channel,
            workers,
            buffer_size: HEADER_ROOM + max_write as usize,
            idle: AtomicUsize::new(0),
            running: Mutex::default(),
            ended: Condvar::new(),
        });
        pool.spawn()?;
        Ok(pool)
    }

    /// Waits until every worker has ended, which they do with the connection.
    pub(crate) fn join(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_while(running, |running| running.count > 0));
    }

    /// How many workers there are.
    pub(crate) fn len(&self) -> usize {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .count
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let number = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let rests = running.failed.is_some_and(|at| at.elapsed() < RETRY);
            if running.count >= self.workers.max || rests {
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
            pool.work(number);
        });
        if let Err(error) = spawned {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.count -= 1;
            running.failed = Some(Instant::now());
            return Err(error);
        }
        Ok(())
    }

    fn work(self: &Arc<Self>, number: usize) {
        let channel = if self.workers.max == 1 {
            Arc::new(Channel::new(self.channel.shared()))
        } else {
            Arc::new(self.channel.duplicate())
        };
        let responder: Arc<dyn Responder> = channel.clone();
        let worker = self.server.worker(number);
        let mut buffer = match Buffer::new(self.buffer_size) {
            Ok(buffer) => buffer,
            Err(error) => {
                tracing::error!(bytes = self.buffer_size, "no memory for a worker: {error}");
                return;
            }
        };
        let mut splicing = Splicing::new(&self.server);
        let mut surplus = None;
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            if buffer.is_large() && rested(&channel) {
                buffer.shrink();
            }
            let received = splicing.receive(&channel, &mut buffer);
            let last_idle = self.idle.fetch_sub(1, Ordering::SeqCst) == 1;
            let received = match received {
                Ok(received) => received,
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(Errno::NODEV | Errno::CONNABORTED) => return,
                Err(error) => {
                    tracing::error!("receiving a request: {error}; this worker ends");
                    return;
                }
            };
            if last_idle && let Err(error) = self.spawn() {
                tracing::warn!("no further worker: {error}");
            }
            match received {
                Received::Whole(length) => {
                    let message = buffer.received(length);
                    self.server.process_bytes(&worker, message, &responder);
                }
                Received::Piped(data) => {
                    splicing.process(&self.server, &worker, &mut buffer, data, &responder);
                }
            }
            if self.idle.load(Ordering::SeqCst) < self.workers.max_idle || self.workers.max == 1 {
                surplus = None;
            } else if surplus.get_or_insert_with(Instant::now).elapsed() > LINGER {
                return;
            }
        }
    }
}

/// Whether no request came for a while.
fn rested(channel: &Channel) -> bool {
    let device = channel.device();
    let mut fds = [PollFd::new(&device, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&REST)), Ok(0))
}

/// Leaves the pool however the thread ends.
struct Leave<'a>(&'a Pool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut running = self
            .0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        running.count -= 1;
        drop(running);
        self.0.ended.notify_all();
    }
}
