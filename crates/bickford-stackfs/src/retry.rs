//! Requests that cannot be answered yet: one thread tries them again, so that no number of them keeps a
//! worker from its work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bickford::Interrupt;

use crate::sharded::lock;

/// Requests that wait at most. Over io_uring there may be fewer, see [`bickford::Reply::may_wait`].
const WAITING_MAX: usize = 4096;
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(50);

struct Queue<W> {
    waiting: Vec<W>,
    running: bool,
    /// Something may have changed, or a caller gave up.
    stirred: bool,
    ended: bool,
}

/// See the module.
pub(crate) struct Retries<W> {
    /// Of the thread.
    name: &'static str,
    queue: Mutex<Queue<W>>,
    stirred: Condvar,
    /// Those too that are being tried.
    count: AtomicUsize,
}

impl<W: Send + 'static> Retries<W> {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            queue: Mutex::new(Queue {
                waiting: Vec::new(),
                running: false,
                stirred: false,
                ended: false,
            }),
            stirred: Condvar::new(),
            count: AtomicUsize::new(0),
        })
    }

    /// Has all that wait be tried at once.
    pub(crate) fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            lock(&self.queue).stirred = true;
            self.stirred.notify_one();
        }
    }

    /// Has all that wait be given up; nothing waits from now on.
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.stirred.notify_one();
    }

    /// Keeps a request, or gives it back where it cannot wait. `attempt`, the same each time, answers what can be
    /// answered, and gives the rest back; it is told whether all are to be given up.
    pub(crate) fn push(
        self: &Arc<Self>,
        waiting: W,
        interrupt: &Interrupt,
        attempt: impl Fn(Vec<W>, bool) -> Vec<W> + Send + 'static,
    ) -> Option<W> {
        // Before another thread may answer it, and a layer above hold that answer back until the same is raised.
        let this = Arc::downgrade(self);
        interrupt.on_raise(move || {
            if let Some(this) = this.upgrade() {
                this.wake();
            }
        });
        let mut queue = lock(&self.queue);
        if queue.ended || self.count.load(Ordering::SeqCst) >= WAITING_MAX {
            return Some(waiting);
        }
        if !queue.running {
            queue.running = self.start(attempt);
        }
        if !queue.running {
            return Some(waiting);
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        queue.waiting.push(waiting);
        // What it waits for may have come since it was tried.
        queue.stirred = true;
        drop(queue);
        self.stirred.notify_one();
        None
    }

    fn start(self: &Arc<Self>, attempt: impl Fn(Vec<W>, bool) -> Vec<W> + Send + 'static) -> bool {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(move || this.run(attempt)).is_ok()
    }

    fn run(&self, attempt: impl Fn(Vec<W>, bool) -> Vec<W>) {
        let mut pause = RETRY_MIN;
        loop {
            let (batch, stirred, ended) = {
                let mut queue = lock(&self.queue);
                if !queue.stirred && !queue.ended {
                    let wait = self.stirred.wait_timeout(queue, pause);
                    queue = wait.unwrap_or_else(PoisonError::into_inner).0;
                }
                let stirred = std::mem::take(&mut queue.stirred);
                (std::mem::take(&mut queue.waiting), stirred, queue.ended)
            };
            let before = batch.len();
            // Answering runs what others have put around the reply.
            let attempted = catch_unwind(AssertUnwindSafe(|| attempt(batch, ended)));
            let mut kept = attempted.unwrap_or_else(|_| {
                tracing::error!("StackFS: {} requests that waited ended in a panic", before);
                Vec::new()
            });
            let answered = before - kept.len();
            self.count.fetch_sub(answered, Ordering::SeqCst);
            pause = match stirred || answered > 0 {
                true => RETRY_MIN,
                false => (pause * 2).min(RETRY_MAX),
            };
            let mut queue = lock(&self.queue);
            // Who has come meanwhile comes after them.
            kept.append(&mut queue.waiting);
            queue.waiting = kept;
            if queue.waiting.is_empty() {
                queue.running = false;
                return;
            }
        }
    }
}
