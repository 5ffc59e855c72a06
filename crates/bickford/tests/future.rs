//! Asynchronous file systems, over the memory transport.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bickford::abi::{EntryOut, InterruptIn, Opcode, WriteIn, WriteOut};
use bickford::filesystem::future::{FileSystem, Owned, Spawned, Task};
use bickford::ops::{Attr, Data, Entry, Flush, Kept, Lookup, Read, Release, Write, Written};
use bickford::transport::memory::Kernel;
use bickford::{Context, DetachedContext, Errno, FileHandle, NodeId, Reply};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use zerocopy::IntoBytes;

/// Reads wait for a permit; everything else answers at once.
struct Subject {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// Counts for as long as it lives.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FileSystem for Subject {
    async fn lookup(
        self: Arc<Self>,
        _: DetachedContext,
        op: Owned<Lookup<'static>>,
    ) -> Result<Entry, Errno> {
        tokio::task::yield_now().await;
        let length = op.operation().name.count_bytes() as u64;
        let attr = Attr::file(7, 0o644, length);
        Ok(Entry::new(NodeId(7), attr, Duration::from_secs(1)))
    }

    async fn read(self: Arc<Self>, _: DetachedContext, op: Owned<Read>) -> Result<Data, Errno> {
        let _waiting = Waiting::new(&self.waiting);
        let permit = self.permits.acquire().await.map_err(|_| Errno::IO)?;
        permit.forget();
        Ok(op.offset.to_ne_bytes().to_vec().into())
    }

    async fn write(
        self: Arc<Self>,
        _: DetachedContext,
        op: Owned<Write<'static>>,
    ) -> Result<Written, Errno> {
        tokio::task::yield_now().await;
        let bytes = op
            .operation()
            .data
            .bytes()
            .map_err(|_| Errno::IO)?
            .into_owned();
        Ok(Written(bytes.iter().map(|byte| u32::from(*byte)).sum()))
    }

    async fn release(self: Arc<Self>, _: DetachedContext, _: Owned<Release>) -> Result<(), Errno> {
        let _waiting = Waiting::new(&self.waiting);
        self.permits
            .acquire()
            .await
            .map_err(|_| Errno::IO)?
            .forget();
        Ok(())
    }
}

struct Fixture {
    kernel: Kernel,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    runtime: Runtime,
}

fn fixture() -> Fixture {
    fixture_of(Kernel::new)
}

type Subjects = Spawned<Subject, Box<dyn Fn(Task) + Send + Sync>>;

fn fixture_of(serve: impl FnOnce(Subjects) -> Kernel) -> Fixture {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    let permits = Arc::new(Semaphore::new(0));
    let waiting = Arc::<AtomicUsize>::default();
    let subject = Subject {
        permits: Arc::clone(&permits),
        waiting: Arc::clone(&waiting),
    };
    let spawn: Box<dyn Fn(Task) + Send + Sync> = Box::new(move |task| drop(handle.spawn(task)));
    let mut kernel = serve(Spawned::new(subject, spawn));
    assert_eq!(kernel.init().unwrap().error, 0);
    Fixture {
        kernel,
        permits,
        waiting,
        runtime,
    }
}

impl Fixture {
    fn read(&mut self, offset: u64) -> u64 {
        let body = [0u64, offset, 4096, 0, 0];
        self.kernel.send(Opcode::Read, 7, body.as_bytes())
    }

    fn wait_for(&self, waiting: usize) {
        support::wait_until(&format!("{waiting} wait"), || {
            self.waiting.load(Ordering::SeqCst) == waiting
        });
    }
}

#[test]
fn names_and_data_are_owned() {
    let mut fixture = fixture();
    let entry = fixture.kernel.call(Opcode::Lookup, 1, b"five5\0").unwrap();
    assert_eq!(entry.read::<EntryOut>().unwrap().attr.size, 5);
    let input = WriteIn {
        size: 3,
        ..WriteIn::default()
    };
    let body = [input.as_bytes(), &[0, 1, 1]].concat();
    let written = fixture.kernel.call(Opcode::Write, 7, &body).unwrap();
    assert_eq!(written.read::<WriteOut>().unwrap().size, 2);
    assert_eq!(
        fixture.kernel.call(Opcode::Readlink, 7, &[]).unwrap().error,
        -38
    );
}

#[test]
fn hundreds_wait_at_once_on_two_threads() {
    let mut fixture = fixture();
    let sent: Vec<_> = (0..500)
        .map(|offset| (offset, fixture.read(offset)))
        .collect();
    fixture.wait_for(500);
    fixture.permits.add_permits(500);
    for (offset, unique) in sent {
        assert_eq!(
            fixture.kernel.answer(unique).unwrap().body,
            offset.to_ne_bytes()
        );
    }
}

#[test]
fn an_interrupt_cancels() {
    let mut fixture = fixture();
    let unique = fixture.read(0);
    fixture.wait_for(1);
    fixture
        .kernel
        .send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
    assert_eq!(fixture.kernel.answer(unique).unwrap().error, -4);
    fixture.wait_for(0);
    let next = fixture.read(9);
    fixture.permits.add_permits(1);
    assert_eq!(fixture.kernel.answer(next).unwrap().error, 0);
}

#[test]
fn what_may_not_be_cancelled_goes_on() {
    let mut fixture = fixture();
    let unique = fixture
        .kernel
        .send(Opcode::Release, 7, [0u64; 3].as_bytes());
    fixture.wait_for(1);
    fixture
        .kernel
        .send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
    fixture.permits.add_permits(1);
    assert_eq!(fixture.kernel.answer(unique).unwrap().error, 0);
}

/// A layer that releases a file below after the signal of a READ, and then reads with a context of its
/// own. Its FLUSH is a READ below.
struct After<F>(Arc<F>);

impl<F: bickford::FileSystem> bickford::FileSystem for After<F> {
    fn read(&self, cx: &Context<'_>, op: Read, reply: Reply<Data>) {
        let (below, detached) = (Arc::clone(&self.0), cx.detach());
        cx.interrupt().on_raise(move || {
            let (cx, last) = (detached.context(), Arc::clone(&below));
            let uninterrupted = detached.clone().uninterrupted();
            let released = move |result: Result<(), Errno>| match result {
                Ok(()) => last.read(&uninterrupted.context(), op, reply),
                Err(errno) => reply.error(errno),
            };
            let op = Release::new(op.node, op.handle, 0);
            below.release(&cx, op, Reply::intercept(released));
        });
    }

    fn flush(&self, cx: &Context<'_>, op: Flush, reply: Reply<()>) {
        let read = Read::new(op.node, FileHandle(0), 0, 10);
        let below = Reply::intercept(|result: Result<Data, Errno>| {
            reply.complete(result.map(|_| ()));
        });
        self.0.read(cx, read, below);
    }
}

fn after_signals() -> Fixture {
    fixture_of(|spawned| Kernel::new(After(Arc::new(spawned))))
}

#[test]
fn a_layer_finishes_below_after_a_signal() {
    let mut fixture = after_signals();
    let unique = fixture.read(9);
    fixture
        .kernel
        .send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
    fixture.wait_for(1);
    fixture.permits.add_permits(2);
    let answer = fixture.kernel.answer(unique).unwrap();
    assert_eq!(answer.body, 9u64.to_ne_bytes());
}

#[test]
fn what_may_be_cancelled_is_told_by_the_call_and_not_by_the_request() {
    let mut fixture = after_signals();
    let unique = fixture.kernel.send(Opcode::Flush, 7, [0u64; 3].as_bytes());
    fixture.wait_for(1);
    fixture
        .kernel
        .send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
    assert_eq!(fixture.kernel.answer(unique).unwrap().error, -4);
}

#[test]
fn a_task_that_the_executor_drops_is_eio() {
    let mut fixture = fixture();
    let unique = fixture.read(0);
    fixture.wait_for(1);
    drop(fixture.runtime);
    assert_eq!(fixture.kernel.answer(unique).unwrap().error, -5);
}
