//! What a callback was asked and answers, at once or later.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Task, Poll, Waker};

use bickford::backing::Backings;
use bickford::{Context, Errno};

use crate::answer::FromFlat;
use crate::deferred::Destination;

enum Stage<A> {
    Open(Option<Waker>),
    Answered(Result<A, Errno>),
    Taken,
}

struct Slot<A>(Mutex<Stage<A>>);

impl<A> Slot<A> {
    fn replace(&self, stage: impl FnOnce(Stage<A>) -> Stage<A>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, Stage::Taken);
        *place = stage(before);
    }
}

/// The answer of a callback, when it is there.
pub(super) struct Asked<A>(Arc<Slot<A>>);

/// Where the answer goes; dropped without one it is EIO.
pub(super) struct Promise<A>(Arc<Slot<A>>);

/// A question and where its answer goes.
pub(super) fn ask<A>() -> (Asked<A>, Promise<A>) {
    let slot = Arc::new(Slot(Mutex::new(Stage::Open(None))));
    (Asked(Arc::clone(&slot)), Promise(slot))
}

impl<A> Asked<A> {
    /// Answered without asking.
    pub(super) fn error(errno: Errno) -> Self {
        Self(Arc::new(Slot(Mutex::new(Stage::Answered(Err(errno))))))
    }
}

impl<A> Future for Asked<A> {
    type Output = Result<A, Errno>;

    fn poll(self: Pin<&mut Self>, cx: &mut Task<'_>) -> Poll<Self::Output> {
        let mut found = Poll::Pending;
        self.0.replace(|stage| match stage {
            Stage::Open(_) => Stage::Open(Some(cx.waker().clone())),
            Stage::Answered(answer) => {
                found = Poll::Ready(answer);
                Stage::Taken
            }
            Stage::Taken => Stage::Taken,
        });
        found
    }
}

impl<A> Promise<A> {
    fn answer(&self, answer: Result<A, Errno>) {
        let mut woken = None;
        self.0.replace(|stage| match stage {
            Stage::Open(waker) => {
                woken = waker;
                Stage::Answered(answer)
            }
            other => other,
        });
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

impl<A> Drop for Promise<A> {
    fn drop(&mut self) {
        self.answer(Err(Errno::IO));
    }
}

impl<A: FromFlat> Destination for Promise<A> {
    type Answer = A;

    fn complete(self, result: Result<A, Errno>) {
        self.answer(result);
    }

    fn backings(&self, cx: &Context<'_>) -> Option<Backings> {
        cx.backings()
    }
}
