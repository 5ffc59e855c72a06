//! The low-level interface with asynchronous methods, on any executor.
//!
//! See [`crate::path::future`] for the path API with asynchronous methods.
//!
//! Each request becomes a task of its own, so that hundreds can wait at once on a few threads. A
//! task owns what it needs: the file system behind an [`Arc`], the context as
//! [`DetachedContext`], and the operation as [`Owned`], with copies of names and data.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bickford::filesystem::future::{FileSystem, Owned, Spawned, Task};
//! use bickford::ops::{Attr, Entry, Kept, Lookup};
//! use bickford::{DetachedContext, Errno, NodeId};
//!
//! struct Remote;
//!
//! impl FileSystem for Remote {
//!     async fn lookup(
//!         self: Arc<Self>,
//!         _: DetachedContext,
//!         op: Owned<Lookup<'static>>,
//!     ) -> Result<Entry, Errno> {
//!         let op = op.operation();
//!         let size = ask_somebody(op.name.to_bytes()).await?;
//!         Ok(Entry::new(NodeId(2), Attr::file(2, 0o644, size), Duration::from_secs(1)))
//!     }
//! }
//! # async fn ask_somebody(_: &[u8]) -> Result<u64, Errno> { Ok(0) }
//!
//! # fn runtime_spawn(_: Task) {}
//! // With tokio: `let handle = runtime.handle().clone();` and `move |task| drop(handle.spawn(task))`.
//! let filesystem = Spawned::new(Remote, |task: Task| runtime_spawn(task));
//! # fn serve(_: impl bickford::FileSystem) {}
//! # serve(filesystem);
//! ```
//!
//! # Interrupts
//! When the caller gets a signal, the method's future is dropped and the caller gets EINTR, as if
//! nothing had been done; see [`FileSystem::may_cancel`] for what must not end half-way. When a
//! task is dropped by its executor, the caller gets EIO.
//!
//! There are never more tasks than requests in flight
//! ([`crate::dispatch::ServerConfig::max_in_flight`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Waker};

use bickford_abi::Opcode;
use rustix::io::Errno;

use super::Negotiation;
use crate::dispatch::{Context, DetachedContext, Interrupt};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::reply::Reply;

/// An operation that owns its names and data: [`Kept::operation`] lends it. For operations that
/// borrow nothing it is the operation itself.
pub type Owned<O> = <O as Keep>::Kept;

/// What an executor is given: one request, to its answer.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs tasks. Closures that take a [`Task`] do.
pub trait Spawn: Send + Sync + 'static {
    /// Begins to run a task, and returns at once.
    fn spawn(&self, task: Task);
}

impl<S: Fn(Task) + Send + Sync + 'static> Spawn for S {
    fn spawn(&self, task: Task) {
        self(task);
    }
}

/// The type of an operation of the table that owns what it is about.
macro_rules! owned {
    ($operation:ident) => { Owned<$operation> };
    ($operation:ident $lifetime:lifetime) => { Owned<$operation<'static>> };
}

pub(crate) use owned;

macro_rules! define_future {
    ($($method:ident: $operation:ident $(<$lifetime:lifetime>)? => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        /// A file system over inodes with asynchronous methods. Serve it with [`Spawned`].
        pub trait FileSystem: Send + Sync + 'static {
            /// The session begins: choose from what the kernel offers.
            ///
            /// # Errors
            /// An error ends the session before it begins.
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                let _ = negotiation;
                Ok(())
            }

            /// See [`super::FileSystem::is_prompt`]; it is about what runs before a task is spawned and,
            /// where the spawner runs a task until it waits, about that.
            fn is_prompt(&self) -> bool {
                false
            }

            /// The session has ended; no request follows, but tasks may still run.
            fn destroy(&self) {}

            /// The kernel gives back lookups.
            fn forget(&self, forgets: &[Forget]) {
                let _ = forgets;
            }

            /// Whether an operation ends where it is when its caller gets a signal. By default all
            /// but those that end an open file do.
            fn may_cancel(&self, opcode: Opcode) -> bool {
                !matches!(opcode, Opcode::Release | Opcode::Releasedir | Opcode::Flush)
            }

            $(
                #[doc = $doc]
                fn $method(
                    self: Arc<Self>,
                    cx: DetachedContext,
                    op: owned!($operation $($lifetime)?),
                ) -> impl Future<Output = Result<$answer, Errno>> + Send + 'static {
                    let _ = (cx, op);
                    async { $default }
                }
            )+
        }

        impl<F: FileSystem, S: Spawn> super::FileSystem for Spawned<F, S> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.filesystem.init(negotiation)?;
                // Data are copied anyway, for the task to own them.
                negotiation.set_splice_writes(false);
                Ok(())
            }

            fn is_prompt(&self) -> bool {
                self.filesystem.is_prompt()
            }

            fn destroy(&self) {
                self.filesystem.destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                self.filesystem.forget(forgets);
            }

            $(
                fn $method(
                    &self,
                    cx: &Context<'_>,
                    op: $operation $(<$lifetime>)?,
                    reply: Reply<$answer>,
                ) {
                    let filesystem = Arc::clone(&self.filesystem);
                    let detached = cx.detach_for(&[$(Opcode::$opcode),+]);
                    let may_cancel = filesystem.may_cancel(detached.opcode());
                    let interrupt = may_cancel.then(|| cx.interrupt());
                    let work = filesystem.$method(detached, op.keep(true));
                    self.run(interrupt.as_deref(), work, reply);
                }
            )+
        }
    };
}

for_each_operation!(define_future);

/// Serves an asynchronous file system: one task for each request.
#[derive(Debug)]
pub struct Spawned<F, S> {
    filesystem: Arc<F>,
    spawner: S,
}

impl<F: FileSystem, S: Spawn> Spawned<F, S> {
    /// Serves `filesystem` with tasks that `spawner` runs.
    pub fn new(filesystem: F, spawner: S) -> Self {
        Self {
            filesystem: Arc::new(filesystem),
            spawner,
        }
    }

    pub(crate) fn over(filesystem: Arc<F>, spawner: S) -> Self {
        Self {
            filesystem,
            spawner,
        }
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &Arc<F> {
        &self.filesystem
    }

    fn run<A: Answer>(
        &self,
        interrupt: Option<&Interrupt>,
        work: impl Future<Output = Result<A, Errno>> + Send + 'static,
        reply: Reply<A>,
    ) {
        let Some(interrupt) = interrupt else {
            let task = async move { reply.complete(work.await) };
            return self.spawner.spawn(Box::pin(task));
        };
        let signal = Arc::<Signal>::default();
        let raises = Arc::clone(&signal);
        interrupt.on_raise(move || raises.raise());
        let work = Cancellable {
            work: Box::pin(work),
            signal,
        };
        let task = async move { reply.complete(work.await) };
        self.spawner.spawn(Box::pin(task));
    }
}

/// Whether a task is to end, and how to wake it.
#[derive(Default)]
struct Signal {
    raised: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Signal {
    fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        let waker = self
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn listen(&self, waker: &Waker) {
        let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !slot.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }
}

/// A future that ends with EINTR when its caller gets a signal.
struct Cancellable<W> {
    work: Pin<Box<W>>,
    signal: Arc<Signal>,
}

impl<A, W: Future<Output = Result<A, Errno>>> Future for Cancellable<W> {
    type Output = Result<A, Errno>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<Self::Output> {
        // First the waker, then the flag: a signal in between is seen by one of the two.
        self.signal.listen(cx.waker());
        if self.signal.raised.load(Ordering::SeqCst) {
            return task::Poll::Ready(Err(Errno::INTR));
        }
        self.work.as_mut().poll(cx)
    }
}
