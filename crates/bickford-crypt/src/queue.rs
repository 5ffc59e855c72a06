//! Who may use which inode now: readers together, a writer alone, in the order in which they came.
//!
//! No lock is held while a turn lasts: a turn is a value, and what waits for it is a closure. Turns
//! are given, and continuations run, from a list of the thread, so that the stack does not grow
//! with the number of those that wait.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bickford::NodeId;

type Job = Box<dyn FnOnce() + Send>;
type Waiting = Box<dyn FnOnce(Turn) + Send>;

thread_local! {
    /// What is to run on this thread; `None` while nothing runs.
    static JOBS: RefCell<Option<VecDeque<Job>>> = const { RefCell::new(None) };
}

/// Empties the list of the thread even when a job panics.
struct Draining;

impl Drop for Draining {
    fn drop(&mut self) {
        let left = JOBS.with_borrow_mut(Option::take);
        if !std::thread::panicking() {
            return;
        }
        // What is left must still answer its requests.
        for job in left.into_iter().flatten() {
            let job = std::panic::AssertUnwindSafe(job);
            if std::panic::catch_unwind(job).is_err() {
                tracing::error!(layer = "crypt", "a request panicked");
            }
        }
    }
}

/// Runs a job now, or right after the one that is running on this thread.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) {
    let job: Job = Box::new(job);
    let job = JOBS.with_borrow_mut(|jobs| match jobs {
        Some(jobs) => {
            jobs.push_back(job);
            None
        }
        None => {
            *jobs = Some(VecDeque::new());
            Some(job)
        }
    });
    let Some(job) = job else { return };
    let draining = Draining;
    job();
    let next = || JOBS.with_borrow_mut(|jobs| jobs.as_mut()?.pop_front());
    while let Some(job) = next() {
        job();
    }
    drop(draining);
}

/// How an inode is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

#[derive(Default)]
struct State {
    readers: usize,
    writing: bool,
    waiting: VecDeque<(Mode, Waiting)>,
}

impl State {
    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Read => !self.writing,
            Mode::Write => !self.writing && self.readers == 0,
        }
    }

    fn enter(&mut self, mode: Mode) {
        match mode {
            Mode::Read => self.readers += 1,
            Mode::Write => self.writing = true,
        }
    }
}

/// The queues of all inodes that are in use.
#[derive(Clone, Default)]
pub(crate) struct Queues(Arc<Mutex<HashMap<NodeId, State>>>);

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queues({} inodes)", self.table().len())
    }
}

/// The right to use an inode; given back when dropped.
pub(crate) struct Turn {
    queues: Queues,
    node: NodeId,
    mode: Mode,
}

impl Queues {
    fn table(&self) -> MutexGuard<'_, HashMap<NodeId, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `job` when it is its turn: now, or later on the thread that gives the turn back.
    pub(crate) fn enter(&self, node: NodeId, mode: Mode, job: impl FnOnce(Turn) + Send + 'static) {
        {
            let mut table = self.table();
            let state = table.entry(node).or_default();
            if !state.waiting.is_empty() || !state.admits(mode) {
                state.waiting.push_back((mode, Box::new(job)));
                return;
            }
            state.enter(mode);
        }
        let turn = Turn {
            queues: self.clone(),
            node,
            mode,
        };
        run(move || job(turn));
    }

    fn leave(&self, node: NodeId, mode: Mode) -> Vec<(Mode, Waiting)> {
        let mut table = self.table();
        let Some(state) = table.get_mut(&node) else {
            return Vec::new();
        };
        match mode {
            Mode::Read => state.readers = state.readers.saturating_sub(1),
            Mode::Write => state.writing = false,
        }
        let mut next = Vec::new();
        while let Some((mode, job)) = state.waiting.pop_front() {
            if !state.admits(mode) {
                state.waiting.push_front((mode, job));
                break;
            }
            state.enter(mode);
            next.push((mode, job));
        }
        if state.readers == 0 && !state.writing {
            table.remove(&node);
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for (mode, job) in self.queues.leave(self.node, self.mode) {
            let turn = Self {
                queues: self.queues.clone(),
                node: self.node,
                mode,
            };
            run(move || job(turn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn readers_go_together_and_writers_alone_in_order() {
        let queues = Queues::default();
        let (sender, log) = channel();
        let enter = |mode, name: &'static str| {
            let sender = sender.clone();
            queues.enter(NodeId(1), mode, move |turn| {
                sender.send((name, turn)).unwrap();
            });
        };
        enter(Mode::Read, "r1");
        enter(Mode::Read, "r2");
        enter(Mode::Write, "w1");
        enter(Mode::Read, "r3");
        enter(Mode::Write, "w2");
        let running: Vec<_> = log.try_iter().collect();
        let names = |turns: &[(&'static str, Turn)]| -> Vec<_> {
            turns.iter().map(|(name, _)| *name).collect()
        };
        assert_eq!(names(&running), ["r1", "r2"]);
        drop(running);
        for expected in ["w1", "r3", "w2"] {
            let running: Vec<_> = log.try_iter().collect();
            assert_eq!(names(&running), [expected]);
        }
        assert!(queues.table().is_empty());
    }

    #[test]
    fn many_that_wait_do_not_need_much_stack() {
        let queues = Queues::default();
        let (sender, held) = channel();
        queues.enter(NodeId(1), Mode::Write, move |turn| {
            sender.send(turn).unwrap();
        });
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for _ in 0..100_000 {
            let count = Arc::clone(&count);
            queues.enter(NodeId(1), Mode::Write, move |_turn| {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        drop(held.recv().unwrap());
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 100_000);
    }
}
