//! Opens that a lease holds up, and reads of what is not there yet.
//!
//! Whoever has a lease of a lower file (`F_SETLEASE` of fcntl(2); Samba takes them) is given time to
//! put it down before another opens it, up to `/proc/sys/fs/lease-break-time`. An open of ours does not
//! wait for that where requests are served: it is tried again by one thread, so that no number of
//! leases keeps others from being served. The same goes for computed files that have nothing to read until something
//! happens, as long as their reader waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bickford::ops::Answer;
use bickford::{Context, Interrupt, Reply};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{Inner, StackFs};

/// For an open below: EWOULDBLOCK where a lease is in the way, whose holder is told. It stays with the
/// descriptor; of a regular file that means nothing.
pub(crate) const AT_ONCE: OFlags = OFlags::NONBLOCK;

/// Requests that wait at most; further ones get EAGAIN. Over io_uring there may be fewer, see
/// [`Reply::may_wait`].
const WAITING_MAX: usize = 4096;
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(50);

/// Longer than the kernel lets anybody keep a lease: it is something else then.
pub(crate) const LEASE_PATIENCE: Duration = Duration::from_secs(300);

/// Answers a request if it can be answered now, or gives it up with the error; whether it is answered.
type Attempt = Box<dyn FnMut(&Inner, Option<Errno>) -> bool + Send>;

struct Waiting {
    attempt: Attempt,
    interrupt: Arc<Interrupt>,
    /// None: as long as it takes.
    until: Option<Instant>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Those too that are being tried.
    count: usize,
    running: bool,
    /// A caller gave up.
    stirred: bool,
    ended: bool,
}

/// See the module.
pub(crate) struct Leased {
    queue: Mutex<Queue>,
    stirred: Condvar,
}

impl Leased {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            stirred: Condvar::new(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers all that wait; nothing waits from now on.
    pub(crate) fn end(&self) {
        self.queue().ended = true;
        self.stirred.notify_one();
    }

    fn wake(&self) {
        self.queue().stirred = true;
        self.stirred.notify_one();
    }

    /// Keeps a request, or gives it back where it cannot wait.
    fn push(self: &Arc<Self>, inner: &Arc<Inner>, waiting: Waiting) -> Option<Waiting> {
        let interrupt = Arc::clone(&waiting.interrupt);
        let mut queue = self.queue();
        if queue.ended || queue.count >= WAITING_MAX {
            return Some(waiting);
        }
        if !queue.running {
            queue.running = self.start(inner);
        }
        if !queue.running {
            return Some(waiting);
        }
        queue.count += 1;
        queue.waiting.push(waiting);
        drop(queue);
        self.stirred.notify_one();
        let this = Arc::downgrade(self);
        interrupt.on_raise(move || {
            if let Some(this) = this.upgrade() {
                this.wake();
            }
        });
        None
    }

    fn start(self: &Arc<Self>, inner: &Arc<Inner>) -> bool {
        let (this, inner) = (Arc::clone(self), Arc::downgrade(inner));
        let thread = std::thread::Builder::new().name("stackfs-leases".to_owned());
        thread.spawn(move || this.run(&inner)).is_ok()
    }

    fn run(&self, inner: &Weak<Inner>) {
        let mut pause = RETRY_MIN;
        loop {
            let (batch, ended) = {
                let mut queue = self.queue();
                if !queue.stirred && !queue.ended {
                    let wait = self.stirred.wait_timeout(queue, pause);
                    queue = wait.unwrap_or_else(PoisonError::into_inner).0;
                }
                queue.stirred = false;
                (std::mem::take(&mut queue.waiting), queue.ended)
            };
            // The replies that are due keep the session, and that keeps the file system.
            let Some(inner) = inner.upgrade() else { return };
            let before = batch.len();
            let mut kept: Vec<Waiting> = batch
                .into_iter()
                .filter_map(|waiting| attempt(&inner, waiting, ended))
                .collect();
            drop(inner);
            pause = match kept.len() < before {
                true => RETRY_MIN,
                false => (pause * 2).min(RETRY_MAX),
            };
            let mut queue = self.queue();
            queue.count -= before - kept.len();
            kept.append(&mut queue.waiting);
            queue.waiting = kept;
            if queue.waiting.is_empty() {
                queue.running = false;
                return;
            }
        }
    }
}

/// Answers what can be answered, and gives the rest back.
fn attempt(inner: &Inner, mut waiting: Waiting, ended: bool) -> Option<Waiting> {
    let give_up = if ended || waiting.interrupt.is_raised() {
        Some(Errno::INTR)
    } else {
        waiting
            .until
            .is_some_and(|until| Instant::now() > until)
            .then_some(Errno::AGAIN)
    };
    let answered = (waiting.attempt)(inner, give_up);
    (!answered).then_some(waiting)
}

impl StackFs {
    /// Answers with what `attempt` comes to; while that is EWOULDBLOCK, because of a lease, not yet.
    pub(crate) fn patiently<A: Answer>(
        &self,
        cx: &Context<'_>,
        reply: Reply<A>,
        attempt: impl Fn(&Inner, &Context<'_>, &Reply<A>) -> Result<A, Errno> + Send + 'static,
    ) {
        self.patiently_for(|_| Some(LEASE_PATIENCE), cx, reply, attempt);
    }

    /// The same, for so long at most as `patience` says then, or as long as it takes.
    pub(crate) fn patiently_for<A: Answer>(
        &self,
        patience: impl FnOnce(&Inner) -> Option<Duration>,
        cx: &Context<'_>,
        reply: Reply<A>,
        attempt: impl Fn(&Inner, &Context<'_>, &Reply<A>) -> Result<A, Errno> + Send + 'static,
    ) {
        match attempt(&self.inner, cx, &reply) {
            Err(Errno::AGAIN) if reply.may_wait() => match patience(&self.inner) {
                Some(Duration::ZERO) => reply.error(Errno::AGAIN),
                patience => self.later(patience, cx, reply, attempt),
            },
            result => reply.complete(result),
        }
    }

    #[cold]
    fn later<A: Answer>(
        &self,
        patience: Option<Duration>,
        cx: &Context<'_>,
        reply: Reply<A>,
        attempt: impl Fn(&Inner, &Context<'_>, &Reply<A>) -> Result<A, Errno> + Send + 'static,
    ) {
        let (detached, mut kept) = (cx.detach(), Some(reply));
        let waiting = Waiting {
            interrupt: cx.interrupt(),
            until: patience.map(|patience| Instant::now() + patience),
            attempt: Box::new(move |inner, give_up| {
                let Some(reply) = &kept else { return true };
                let result = match give_up {
                    Some(error) => Err(error),
                    None => attempt(inner, &detached.context(), reply),
                };
                if give_up.is_none() && matches!(result, Err(Errno::AGAIN)) {
                    return false;
                }
                if let Some(reply) = kept.take() {
                    reply.complete(result);
                }
                true
            }),
        };
        if let Some(mut refused) = self.inner.leased.push(&self.inner, waiting) {
            (refused.attempt)(&self.inner, Some(Errno::AGAIN));
        }
    }
}
