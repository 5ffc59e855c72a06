//! Replies: sent once, from any thread, later if need be.

mod completion;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;

use rustix::io::Errno;

pub use completion::Completion;
pub(crate) use completion::report_panic;

use crate::backing::{Backing, Backings};
use crate::ops::Answer;

/// The right, and the duty, to answer one request.
///
/// It can be moved to another thread and used after the handler has returned. A reply that is
/// dropped answers EIO, and so does one that the kernel would not take: with more bytes than were asked for,
/// such as data of READ, or with attributes without a type ([`Answer::flaw`]). Each is an error in the log.
#[must_use = "a reply that is dropped answers EIO"]
pub struct Reply<A: Answer> {
    route: Route<A>,
}

/// Whoever gets an answer instead of the kernel.
trait Intercept<A>: Send {
    fn answer(self: Box<Self>, result: Result<A, Errno>);

    fn may_wait(&self) -> bool;

    fn backings(&self) -> Option<Backings>;
}

/// A closure.
struct Alone<C>(C);

impl<A, C: FnOnce(Result<A, Errno>) + Send> Intercept<A> for Alone<C> {
    fn answer(self: Box<Self>, result: Result<A, Errno>) {
        (self.0)(result);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn backings(&self) -> Option<Backings> {
        None
    }
}

/// A closure, and the reply that it is to answer.
struct Around<C, A: Answer>(C, Reply<A>);

impl<A: Answer, B, C: FnOnce(Result<B, Errno>, Reply<A>) + Send> Intercept<B> for Around<C, A> {
    fn answer(self: Box<Self>, result: Result<B, Errno>) {
        let Self(interceptor, reply) = *self;
        interceptor(result, reply);
    }

    fn may_wait(&self) -> bool {
        self.1.may_wait()
    }

    fn backings(&self) -> Option<Backings> {
        self.1.backings()
    }
}

enum Route<A: Answer> {
    Kernel(Box<Completion>, PhantomData<fn(A)>),
    Interceptor(Box<dyn Intercept<A>>),
    Done,
}

impl<A: Answer> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.route {
            Route::Kernel(completion, _) => completion.fmt(f),
            Route::Interceptor(..) => f.write_str("Reply(intercepted)"),
            Route::Done => f.write_str("Reply(done)"),
        }
    }
}

impl<A: Answer> Reply<A> {
    pub(crate) fn new(completion: Box<Completion>) -> Self {
        Self {
            route: Route::Kernel(completion, PhantomData),
        }
    }

    /// A reply whose answer goes to `interceptor` instead of the kernel. A layer hands it to the
    /// file system below and answers the reply that it got itself; tests use it too. When the reply
    /// is dropped, `interceptor` gets EIO.
    pub fn intercept(interceptor: impl FnOnce(Result<A, Errno>) + Send + 'static) -> Self {
        Self {
            route: Route::Interceptor(Box::new(Alone(interceptor))),
        }
    }

    /// A reply for the file system below whose answer goes to `interceptor`, together with this
    /// one, which is then to be answered. Backing files are registered through the session of this
    /// reply. When the reply below is dropped, `interceptor` gets EIO.
    pub fn wrap<B: Answer>(
        self,
        interceptor: impl FnOnce(Result<B, Errno>, Self) + Send + 'static,
    ) -> Reply<B> {
        Reply {
            route: Route::Interceptor(Box::new(Around(interceptor, self))),
        }
    }

    /// Answers with success or an error.
    pub fn complete(mut self, result: Result<A, Errno>) {
        match std::mem::replace(&mut self.route, Route::Done) {
            Route::Kernel(completion, _) => completion.finish(result),
            Route::Interceptor(interceptor) => interceptor.answer(result),
            Route::Done => {}
        }
    }

    /// Answers with success.
    pub fn ok(self, answer: A) {
        self.complete(Ok(answer));
    }

    /// Answers with an error.
    pub fn error(self, errno: Errno) {
        self.complete(Err(errno));
    }

    /// Whether this reply may be kept until something else happens, such as another request or the
    /// end of a pause.
    ///
    /// Over io_uring each reply that is due keeps an entry of the queue of its CPU, of which there are
    /// 512. When they are used up, no further request comes from that CPU, nor one that those that
    /// wait are waiting for. So this is false when few are left; then answer now, with an error such
    /// as ENOLCK where nothing else can be said. It holds for the moment: ask right before keeping
    /// the reply. A reply that another thread is about to answer in any case need not ask. One that a layer made
    /// by [`Self::intercept`] tells nothing of the request that it is made for: [`Context::may_wait`](crate::Context::may_wait)
    /// does.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        match &self.route {
            Route::Kernel(completion, _) => completion.may_wait(),
            Route::Interceptor(interceptor) => interceptor.may_wait(),
            Route::Done => true,
        }
    }

    /// Registers a backing file for kernel pass-through with the session that this reply belongs
    /// to; see [`crate::backing`]. `None` when the answer does not go to the kernel through a
    /// device.
    pub fn open_backing(&self, file: impl AsFd) -> Option<io::Result<Backing>> {
        Some(self.backings()?.open(file))
    }

    /// What registers backing files with the session that this reply belongs to, when that is not done
    /// before the answer. `None` as for [`Self::open_backing`].
    #[must_use]
    pub fn backings(&self) -> Option<Backings> {
        match &self.route {
            Route::Kernel(completion, _) => completion.backings(),
            Route::Interceptor(interceptor) => interceptor.backings(),
            Route::Done => None,
        }
    }
}

impl<A: Answer> Drop for Reply<A> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.route, Route::Done) {
            Route::Kernel(completion, _) => completion.abandon(),
            Route::Interceptor(interceptor) => interceptor.answer(Err(Errno::IO)),
            Route::Done => {}
        }
    }
}
