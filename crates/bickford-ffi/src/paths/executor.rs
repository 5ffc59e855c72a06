//! Runs requests over paths: where they came as long as they need not wait, and afterwards on threads that
//! are there for that.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use bickford::path::future::{Spawn, Task};

/// As many requests can be in callbacks that wait, after they waited for something else.
const THREADS_MAX: usize = 1024;
/// How long a thread stays that has nothing to do.
const IDLE: Duration = Duration::from_secs(10);

/// See the module; clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Executor(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What can go on; each is a request in flight, whose number the session bounds.
    ready: VecDeque<Arc<Run>>,
    threads: usize,
    idle: usize,
    running: usize,
    ended: bool,
    /// Somebody drops what is ready after the end.
    buries: bool,
}

impl Executor {
    /// No task goes on from now on: those that wait are dropped when they could.
    pub(super) fn end(&self) {
        let mut state = self.0.state();
        state.ended = true;
        self.0.changed.notify_all();
        self.0.bury(state);
    }

    /// Waits for the tasks that run on threads of this, after [`Executor::end`].
    pub(super) fn settle(&self) {
        let running = |state: &mut State| state.running > 0;
        let waited = self.0.changed.wait_while(self.0.state(), running);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Spawn for Executor {
    fn spawn(&self, mut task: Task) {
        if self.0.state().ended {
            return;
        }
        // Most are done at once.
        let mut idle = Context::from_waker(Waker::noop());
        if poll(&mut task, &mut idle).is_ready() {
            return;
        }
        let run = Run {
            shared: Arc::clone(&self.0),
            stage: AtomicU8::new(RUNNING),
            task: Mutex::new(Some(task)),
        };
        Arc::new(run).run();
    }
}

/// A task that panics is done: whoever waits for its answer gets EIO.
fn poll(task: &mut Task, cx: &mut Context<'_>) -> Poll<()> {
    catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))).unwrap_or_else(|_| {
        tracing::error!("a request over paths panicked; its caller gets EIO");
        Poll::Ready(())
    })
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, run: Arc<Run>) {
        let mut state = self.state();
        state.ready.push_back(run);
        if state.ended {
            return self.bury(state);
        }
        if state.ready.len() <= state.idle || state.threads >= THREADS_MAX {
            drop(state);
            return self.changed.notify_one();
        }
        state.threads += 1;
        drop(state);
        if let Err(error) = self.start() {
            let mut state = self.state();
            state.threads -= 1;
            tracing::warn!("start a thread for requests over paths: {error}");
            // Nobody else would.
            if state.threads == 0 {
                drop(self.work(state));
            }
        }
    }

    /// Drops what is ready. What one held wakes the next, which is dropped in turn and not within.
    fn bury<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if std::mem::replace(&mut state.buries, true) {
            return;
        }
        while let Some(run) = state.ready.pop_front() {
            drop(state);
            drop(run);
            state = self.state();
        }
        state.buries = false;
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let shared = Arc::clone(self);
        let threads = thread::Builder::new().name("bickford-path".into());
        threads.spawn(move || shared.serve()).map(drop)
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            state = self.work(state);
            if state.ended {
                break;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.ready.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Runs what is ready.
    fn work<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while !state.ended
            && let Some(run) = state.ready.pop_front()
        {
            state.running += 1;
            drop(state);
            run.stage.store(RUNNING, Ordering::SeqCst);
            run.run();
            drop(run);
            state = self.state();
            state.running -= 1;
            if state.ended {
                self.changed.notify_all();
            }
        }
        state
    }
}

/// Waits to be woken.
const WAITING: u8 = 0;
/// Was woken, and waits for a thread.
const READY: u8 = 1;
const RUNNING: u8 = 2;
/// Was woken while it ran.
const WOKEN: u8 = 3;

/// A task that had to wait.
struct Run {
    shared: Arc<Shared>,
    stage: AtomicU8,
    /// Taken out while it runs, and for good when it is done.
    task: Mutex<Option<Task>>,
}

impl Run {
    fn place(&self) -> MutexGuard<'_, Option<Task>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it until it waits or is done.
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        loop {
            let Some(mut task) = self.place().take() else {
                return;
            };
            if poll(&mut task, &mut Context::from_waker(&waker)).is_ready() {
                return;
            }
            *self.place() = Some(task);
            if self.advance(RUNNING, WAITING) {
                return;
            }
            self.stage.store(RUNNING, Ordering::SeqCst);
        }
    }

    fn advance(&self, from: u8, to: u8) -> bool {
        let changed = (self.stage).compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        changed.is_ok()
    }
}

impl Wake for Run {
    fn wake(self: Arc<Self>) {
        loop {
            if self.advance(WAITING, READY) {
                let shared = Arc::clone(&self.shared);
                return shared.push(self);
            }
            if self.advance(RUNNING, WOKEN) {
                return;
            }
            if matches!(self.stage.load(Ordering::SeqCst), READY | WOKEN) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    use super::*;

    /// Ready after it was woken.
    #[derive(Clone, Default)]
    struct Gate(Arc<Mutex<(bool, Option<Waker>)>>);

    impl Gate {
        fn open(&self) {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            let waker = state.1.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    impl Future for Gate {
        type Output = ();

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    fn until(mut done: impl FnMut() -> bool) {
        let limit = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < limit, "it does not come to it");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_need_not_wait_is_done_at_once() {
        let executor = Executor::default();
        let done = Arc::<AtomicUsize>::default();
        let ran = Arc::clone(&done);
        executor.spawn(Box::pin(async move {
            ran.fetch_add(1, Ordering::SeqCst);
        }));
        assert_eq!(done.load(Ordering::SeqCst), 1);
        assert_eq!(executor.0.state().threads, 0);
    }

    #[test]
    fn what_waits_goes_on_elsewhere() {
        let executor = Executor::default();
        let gates: Vec<Gate> = (0..100).map(|_| Gate::default()).collect();
        let own = thread::current().id();
        let done = Arc::<AtomicUsize>::default();
        for gate in &gates {
            let (gate, done) = (gate.clone(), Arc::clone(&done));
            executor.spawn(Box::pin(async move {
                gate.await;
                assert_ne!(thread::current().id(), own);
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        gates.iter().for_each(Gate::open);
        until(|| done.load(Ordering::SeqCst) == 100);
    }

    #[test]
    fn what_runs_holds_up_nothing_else() {
        let executor = Executor::default();
        let (first, second) = (Gate::default(), Gate::default());
        let (told, hears) = std::sync::mpsc::channel::<()>();
        let done = Arc::<AtomicUsize>::default();
        let (gate, ran) = (first.clone(), Arc::clone(&done));
        executor.spawn(Box::pin(async move {
            gate.await;
            hears.recv().unwrap();
            ran.fetch_add(1, Ordering::SeqCst);
        }));
        let gate = second.clone();
        executor.spawn(Box::pin(async move {
            gate.await;
            told.send(()).unwrap();
        }));
        first.open();
        second.open();
        until(|| done.load(Ordering::SeqCst) == 1);
    }

    #[test]
    fn nothing_goes_on_after_the_end() {
        let executor = Executor::default();
        let gate = Gate::default();
        let held = Arc::new(());
        let (waits, kept) = (gate.clone(), Arc::clone(&held));
        executor.spawn(Box::pin(async move {
            waits.await;
            drop(kept);
            unreachable!("the session has ended");
        }));
        executor.end();
        gate.open();
        executor.settle();
        drop(gate);
        assert_eq!(Arc::strong_count(&held), 1, "the task is gone");
        executor.spawn(Box::pin(async { unreachable!("as before") }));
    }

    /// Opens another gate when it is dropped.
    struct Opens(Gate);

    impl Drop for Opens {
        fn drop(&mut self) {
            self.0.open();
        }
    }

    #[test]
    fn a_long_row_of_tasks_that_wait_for_each_other_ends() {
        let executor = Executor::default();
        let gates: Vec<Gate> = (0..=100_000).map(|_| Gate::default()).collect();
        for pair in gates.windows(2) {
            let [gate, next] = pair else { unreachable!() };
            let (gate, next) = (gate.clone(), Opens(next.clone()));
            executor.spawn(Box::pin(async move {
                gate.await;
                drop(next);
            }));
        }
        executor.end();
        gates[0].open();
        until(|| gates[100_000].0.lock().unwrap().0);
    }
}
