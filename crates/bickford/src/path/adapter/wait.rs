//! Waiting for a future on the thread that wants it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a future answers. One that is ready costs nothing but its call.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut idle = Context::from_waker(Waker::noop());
    if let Poll::Ready(answer) = future.as_mut().poll(&mut idle) {
        return answer;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut awake = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut awake) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}
