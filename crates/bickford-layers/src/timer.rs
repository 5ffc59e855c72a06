//! Lets answers go later, from one thread, so that no worker waits.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bickford::layer::Resume;
use bickford::{Errno, Interrupt};

use crate::registry::Reporter;

/// Answers that may be held back at once; the default of the sessions' limit of requests. Over io_uring
/// the entries of a queue are the limit: see [`Resume::may_wait`].
const HELD_MAX: usize = 65_536;

#[derive(Default)]
struct Queue {
    held: BTreeMap<(Instant, u64), Resume>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Tells answers apart that are due at the same time.
    next: AtomicU64,
    /// Answers that went on at once because too many were held.
    overflowed: AtomicU64,
}

/// Answers that are held back. The thread is started with the session, not before: the process
/// may still fork until then.
#[derive(Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timer({} held)", self.shared.queue().held.len())
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            match self.wait() {
                Some(due) => due.into_iter().for_each(let_go),
                None => return,
            }
        }
    }

    /// Holds an answer back no longer.
    fn give_up(&self, key: &(Instant, u64)) {
        let resume = self.queue().held.remove(key);
        resume.into_iter().for_each(let_go);
    }

    /// What is due; `None` at the end. Everything is due when the session ends.
    fn wait(&self) -> Option<Vec<Resume>> {
        let mut queue = self.queue();
        loop {
            let now = Instant::now();
            if queue.ended {
                let held = std::mem::take(&mut queue.held);
                return (!held.is_empty()).then(|| held.into_values().collect());
            }
            let later = queue.held.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut queue.held, later);
            if !due.is_empty() {
                return Some(due.into_values().collect());
            }
            let next = queue.held.keys().next().map(|(at, _)| *at);
            queue = match next {
                None => self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn let_go(resume: Resume) {
    if catch_unwind(AssertUnwindSafe(|| drop(resume))).is_err() {
        tracing::error!("an answer that was held back panicked on its way");
    }
}

impl Timer {
    /// Starts the thread, for this layer.
    pub(crate) fn start(&self, layer: &str) -> Result<(), Errno> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("bickford-timer".to_owned())
            .spawn(move || shared.run());
        let thread = thread.map_err(|error| {
            tracing::error!(layer, "no thread for the timer: {error}");
            Errno::AGAIN
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Holds an answer back for `duration`, or until its caller wants the request to end.
    pub(crate) fn hold(
        &self,
        duration: Duration,
        interrupt: Option<&Arc<Interrupt>>,
        resume: Resume,
    ) {
        let Some(at) = Instant::now().checked_add(duration) else {
            return resume.now();
        };
        let key = (at, self.shared.next.fetch_add(1, Ordering::Relaxed));
        // Before the answer can go on, and what is above hold it back until the same is raised.
        if let Some(interrupt) = interrupt {
            let shared = Arc::clone(&self.shared);
            interrupt.on_raise(move || shared.give_up(&key));
        }
        let may_wait = resume.may_wait();
        {
            let mut queue = self.shared.queue();
            if queue.ended || queue.held.len() >= HELD_MAX || !may_wait {
                drop(queue);
                self.shared.overflowed.fetch_add(1, Ordering::Relaxed);
                return let_go(resume);
            }
            queue.held.insert(key, resume);
        }
        self.shared.changed.notify_one();
        if interrupt.is_some_and(|interrupt| interrupt.is_raised()) {
            self.shared.give_up(&key);
        }
    }

    /// Lets everything go and ends the thread.
    pub(crate) fn end(&self) {
        self.shared.queue().ended = true;
        self.shared.changed.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match thread {
            // The last answer can be the one that drops the file system, on this very thread.
            Some(thread) if thread.thread().id() == std::thread::current().id() => {}
            Some(thread) => {
                if thread.join().is_err() {
                    tracing::error!("the thread of held answers panicked");
                }
            }
            None => self.shared.run(),
        }
    }
}

impl Reporter for Timer {
    fn report(&self) -> String {
        match self.shared.overflowed.load(Ordering::Relaxed) {
            0 => String::new(),
            count => {
                format!("{count} answers were not held back: too many were waiting already")
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.end();
    }
}
