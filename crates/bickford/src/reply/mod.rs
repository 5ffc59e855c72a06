//! Replies: sent once, from any thread, later if need be.

mod completion;

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;

pub use completion::Completion;

use crate::backing::Backing;
use crate::ops::Answer;
use crate::transport::Responder;

/// The right, and the duty, to answer one request.
///
/// It can be moved to another thread and used after the handler has returned. A reply that is
/// dropped answers EIO.
#[must_use = "a reply that is dropped answers EIO"]
pub struct Reply<A: Answer> {
    route: Route<A>,
}

type Interceptor<A> = Box<dyn FnOnce(Result<A, Errno>) + Send>;

enum Route<A: Answer> {
    Kernel(Completion, PhantomData<fn(A)>),
    Interceptor(Interceptor<A>, Option<Arc<dyn Responder>>),
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
    pub(crate) fn new(completion: Completion) -> Self {
        Self {
            route: Route::Kernel(completion, PhantomData),
        }
    }

    /// A reply whose answer goes to `interceptor` instead of the kernel. A layer hands it to the
    /// file system below and answers the reply that it got itself; tests use it too. When the reply
    /// is dropped, `interceptor` gets EIO.
    pub fn intercept(interceptor: impl FnOnce(Result<A, Errno>) + Send + 'static) -> Self {
        Self {
            route: Route::Interceptor(Box::new(interceptor), None),
        }
    }

    /// A reply for the file system below whose answer goes to `interceptor`, together with this
    /// one, which is then to be answered. Backing files are registered through the session of this
    /// reply. When the reply below is dropped, `interceptor` gets EIO.
    pub fn wrap<B: Answer>(
        self,
        interceptor: impl FnOnce(Result<B, Errno>, Self) + Send + 'static,
    ) -> Reply<B> {
        let responder = match &self.route {
            Route::Kernel(completion, _) => Some(Arc::clone(&completion.responder)),
            Route::Interceptor(_, responder) => responder.clone(),
            Route::Done => None,
        };
        Reply {
            route: Route::Interceptor(Box::new(move |result| interceptor(result, self)), responder),
        }
    }

    /// Answers with success or an error.
    pub fn complete(mut self, result: Result<A, Errno>) {
        match std::mem::replace(&mut self.route, Route::Done) {
            Route::Kernel(completion, _) => completion.finish(result),
            Route::Interceptor(interceptor, _) => interceptor(result),
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

    /// Registers a backing file for kernel pass-through with the session that this reply belongs
    /// to; see [`crate::backing`]. `None` when the answer does not go to the kernel through a
    /// device.
    pub fn open_backing(&self, file: impl AsFd) -> Option<std::io::Result<Backing>> {
        match &self.route {
            Route::Kernel(completion, _) => completion.open_backing(file.as_fd()),
            Route::Interceptor(_, Some(responder)) => responder.open_backing(file.as_fd()),
            Route::Interceptor(_, None) | Route::Done => None,
        }
    }
}

impl<A: Answer> Drop for Reply<A> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.route, Route::Done) {
            Route::Kernel(completion, _) => completion.abandon(),
            Route::Interceptor(interceptor, _) => interceptor(Err(Errno::IO)),
            Route::Done => {}
        }
    }
}
