//! The wish of a caller that its request may end (INTERRUPT).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

type Callback = Box<dyn FnOnce() + Send>;

/// Tells a handler that the caller of its request got a signal. The request must be answered all
/// the same, with EINTR if nothing was done.
///
/// It is raised too when the connection ends (an abort, `umount -f`), so that nobody waits for a
/// caller who is gone. Over `/dev/fuse` the end is seen by whoever waits for requests: where every
/// worker is in a method that waits for its interrupt, only [`Session::abort`] and
/// [`MountedSession::unmount`] by force raise it.
///
/// [`Session::abort`]: crate::Session::abort
/// [`MountedSession::unmount`]: crate::MountedSession::unmount
#[derive(Default)]
pub struct Interrupt {
    raised: AtomicBool,
    callback: Mutex<Option<Callback>>,
    changed: Condvar,
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interrupt({})", self.is_raised())
    }
}

impl Interrupt {
    pub(crate) fn new(raised: bool) -> Self {
        Self {
            raised: AtomicBool::new(raised),
            ..Self::default()
        }
    }

    /// Whether the caller wants the request to end.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Waits until the caller wants the request to end, or `timeout` is over. Answers whether it
    /// does.
    pub fn wait(&self, timeout: Duration) -> bool {
        let guard = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |_: &mut Option<Callback>| !self.is_raised();
        drop(self.changed.wait_timeout_while(guard, timeout, waiting));
        self.is_raised()
    }

    /// Calls `callback` when the caller wants the request to end, and must not block. It runs on the
    /// thread that raises the interrupt: the one that received it or saw the connection end, or that
    /// ends the session with [`Session::abort`](crate::Session::abort) or the like. Where it is raised
    /// already, it runs here, before this returns. A later callback takes the place of an earlier one,
    /// which is dropped. A panic of it is logged, and nothing else ends.
    pub fn on_raise(&self, callback: impl FnOnce() + Send + 'static) {
        let mut slot = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_raised() {
            drop(slot);
            return call(callback);
        }
        let earlier = slot.replace(Box::new(callback));
        drop(slot);
        drop(earlier);
    }

    /// For whoever sees the request end: interrupts it.
    pub fn raise(&self) {
        let callback = {
            let mut slot = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
            self.raised.store(true, Ordering::SeqCst);
            slot.take()
        };
        self.changed.notify_all();
        if let Some(callback) = callback {
            call(callback);
        }
    }
}

fn call(callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("what was to be called at an interrupt panicked");
    }
}
