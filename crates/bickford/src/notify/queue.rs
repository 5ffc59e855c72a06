//! The bounded queue of notifications, emptied by a thread of its own.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bickford_abi::NotifyCode;
use rustix::io::Errno;

use super::{Message, NotifyError, message};
use crate::NodeId;
use crate::ops::Forget;
use crate::parked::Parked;
use crate::transport::NotifySink;

/// How many notifications may wait.
pub const QUEUE_MAX: usize = 65_536;
/// How many bytes of notifications may wait, if there is more than one: data for the page cache may be large, and
/// the kernel takes none while it holds the pages for a READ.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// The first minor version of the interface that has `FUSE_NOTIFY_PRUNE`, from Linux 6.18 on.
pub const PRUNE_SINCE: u32 = 45;
/// How often the kernel is asked to forget files of which something could not be written back.
const PRUNE_EVERY: Duration = Duration::from_millis(250);
/// How many such files are known at most.
const UNWRITTEN_MAX: usize = 4096;

#[derive(Default)]
struct State {
    waiting: VecDeque<Message>,
    /// Bytes of those.
    bytes: usize,
    pushed: u64,
    sent: u64,
    ended: bool,
    /// While the session lives: it keeps the device open.
    sink: Option<Arc<dyn NotifySink>>,
    /// Files of which something could not be written back from the kernel's cache. The kernel goes on with
    /// the size that it gave them itself, whatever attributes it is told, until it forgets the inode, and
    /// it does not while they are open.
    unwritten: BTreeSet<NodeId>,
    /// When the kernel is asked next.
    prune_at: Option<Instant>,
}

impl State {
    fn add(&mut self, messages: impl IntoIterator<Item = Message>) {
        for message in messages {
            self.pushed += 1;
            self.bytes += message.bytes.len();
            self.waiting.push_back(message);
        }
    }

    fn take(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        self.bytes -= message.bytes.len();
        Some(message)
    }

    /// Whether there is no room for so many more, of so many bytes.
    fn is_full(&self, count: usize, bytes: usize) -> bool {
        let all = self.bytes.saturating_add(bytes);
        count > QUEUE_MAX - self.waiting.len().min(QUEUE_MAX)
            || (all > QUEUE_BYTES_MAX && !self.waiting.is_empty())
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} sent", self.sent, self.pushed)
    }
}

/// What is sent, and by what.
type Word = (Arc<Queue>, Arc<dyn NotifySink>);

/// A thread that sends, once it is told what.
pub(crate) type Sender = Parked<Word>;

/// Starts one.
pub(crate) fn sender() -> io::Result<Sender> {
    Parked::new("bickford-notify".into(), |word: &Receiver<Word>| {
        if let Ok((queue, sink)) = word.recv() {
            queue.run(&*sink);
        }
    })
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether anything is in `unwritten`: asked with every FORGET.
    some_unwritten: AtomicBool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues all of them, or none.
    pub(super) fn push(
        &self,
        messages: impl IntoIterator<Item = Message> + AsRef<[Message]>,
    ) -> Result<(), NotifyError> {
        let count = messages.as_ref().len();
        let bytes: usize = messages.as_ref().iter().map(|one| one.bytes.len()).sum();
        let mut state = self.state();
        if state.ended {
            return Err(NotifyError::Ended);
        }
        if state.is_full(count, bytes) {
            return Err(NotifyError::Full);
        }
        state.add(messages);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Sends past the queue, on this thread.
    pub(super) fn send_now(&self, code: NotifyCode, bytes: &[u8]) -> Result<(), NotifyError> {
        let sink = self.state().sink.clone().ok_or(NotifyError::Ended)?;
        if let Err(error) = sink.notify(code as i32, bytes) {
            not_taken(code, &error);
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<(), NotifyError> {
        let state = self.state();
        let until = state.pushed;
        let state = self
            .changed
            .wait_while(state, |state| state.sent < until && !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if state.sent < until {
            Err(NotifyError::Ended)
        } else {
            Ok(())
        }
    }

    /// The same, but no longer than this.
    pub(super) fn flush_within(&self, patience: Duration) {
        let state = self.state();
        let until = state.pushed;
        let waits = |state: &mut State| state.sent < until && !state.ended;
        drop(self.changed.wait_timeout_while(state, patience, waits));
    }

    /// Something of a file could not be written back: the kernel is asked to forget it, until it does.
    pub(crate) fn not_written(&self, node: NodeId) {
        let mut state = self.state();
        if state.ended || state.unwritten.len() >= UNWRITTEN_MAX || !state.unwritten.insert(node) {
            return;
        }
        self.some_unwritten.store(true, Ordering::Release);
        let due = Instant::now() + PRUNE_EVERY;
        state.prune_at.get_or_insert(due);
        drop(state);
        self.changed.notify_all();
    }

    /// The kernel has forgotten inodes.
    pub(crate) fn forgotten(&self, forgets: &[Forget]) {
        if !self.some_unwritten.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        for forget in forgets {
            state.unwritten.remove(&forget.node);
        }
        if state.unwritten.is_empty() {
            state.prune_at = None;
            self.some_unwritten.store(false, Ordering::Release);
        }
    }

    /// Waits for the next message; `None` when the session has ended.
    fn next(&self) -> Option<Message> {
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            let left = state
                .prune_at
                .map(|at| at.saturating_duration_since(Instant::now()));
            // Not behind others that wait, so that what is asked again does not pile up.
            if left == Some(Duration::ZERO) && state.waiting.is_empty() {
                state.prune_at = Some(Instant::now() + PRUNE_EVERY);
                let nodes: Vec<_> = state.unwritten.iter().copied().collect();
                let messages: Vec<_> = message::prunes(&nodes).collect();
                state.add(messages);
            }
            if let Some(message) = state.take() {
                return Some(message);
            }
            state = match left {
                None => {
                    let woken = self.changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                Some(left) => {
                    let woken = self.changed.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Has a thread send. It ends with [`Queue::end`].
    pub(crate) fn serve(
        self: &Arc<Self>,
        sender: Sender,
        sink: Arc<dyn NotifySink>,
    ) -> io::Result<JoinHandle<()>> {
        let mut state = self.state();
        if state.ended || state.sink.is_some() {
            let why = match state.ended {
                true => "the session has ended",
                false => "a thread sends them already",
            };
            let text = format!("no thread for notifications: {why}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        state.sink = Some(Arc::clone(&sink));
        drop(state);
        let ended = || {
            self.state().sink = None;
            io::Error::other("the thread of notifications ended before it began")
        };
        sender.go((Arc::clone(self), sink)).ok_or_else(ended)
    }

    fn run(&self, sink: &dyn NotifySink) {
        while let Some(message) = self.next() {
            let result = sink.notify(message.code as i32, &message.bytes);
            if let Err(error) = &result {
                not_taken(message.code, error);
            }
            let done = message.done;
            let call = AssertUnwindSafe(|| done.map(|done| (done.0)(result)));
            if catch_unwind(call).is_err() {
                tracing::error!(
                    code = message.code.name(),
                    "what was to be called after a notification panicked"
                );
            }
            self.state().sent += 1;
            self.changed.notify_all();
        }
    }

    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        state.bytes = 0;
        let sink = state.sink.take();
        drop(state);
        self.changed.notify_all();
        drop(sink);
        dropped(waiting);
    }
}

/// Drops what holds something of the user's.
pub(super) fn dropped<T>(held: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(held))).is_err() {
        tracing::error!("what was not called at the end of a session panicked as it was dropped");
    }
}

fn not_taken(code: NotifyCode, error: &io::Error) {
    // ENOENT: the kernel does not have what was to be dropped.
    if Errno::from_io_error(error) != Some(Errno::NOENT) {
        tracing::debug!(code = code.name(), "notification not taken: {error}");
    }
}
