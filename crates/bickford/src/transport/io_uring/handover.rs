//! Requests that one thread of a queue receives and others handle.
//!
//! The kernel may put a request into any entry that waits, into one of a thread that is in a method, too: there it
//! waits as long as the method does, and if the method waits for that very request, neither ends, whatever is
//! done to them. Where methods may wait (the file system is not prompt) a thread therefore has no entry
//! with the kernel while it is in one. At first each thread has one entry and handles what comes in it, which is
//! quickest. Replies that are due later keep entries away; when none is left and a thread has nothing to do,
//! one more thread is started, the *receiver*, and gets further ones. From then on every entry that was
//! answered goes to it; it handles nothing, and passes requests to those that rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::entry::Port;
use super::queue::Member;
use crate::sys::uring::Held;

/// What the threads of a queue share of it.
#[derive(Debug, Default)]
pub(super) struct Handover {
    receiver: OnceLock<Weak<Port>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that wait for a request to be passed to them.
    resting: Vec<Weak<Member>>,
    /// Requests that came while none did, no more than there are entries.
    left: VecDeque<Held>,
}

impl Handover {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is a receiver from now on.
    pub(super) fn begin(&self, receiver: &Arc<Port>) {
        // A second one is never started.
        let _ = self.receiver.set(Arc::downgrade(receiver));
    }

    /// Whether there is, or was, a receiver.
    pub(super) fn has_receiver(&self) -> bool {
        self.receiver.get().is_some()
    }

    /// Where entries go that were answered.
    pub(super) fn receiver(&self) -> Option<Arc<Port>> {
        self.receiver.get()?.upgrade()
    }

    /// Passes a request to a thread that rests, or keeps it for the next that has nothing to do; then the answer
    /// is no.
    pub(super) fn pass(&self, held: Held) -> bool {
        let mut state = self.state();
        while let Some(member) = state.resting.pop() {
            if let Some(member) = member.upgrade() {
                // Under the lock: it must not rest again before it has found this.
                member.port.pass_on(held);
                return true;
            }
        }
        state.left.push_back(held);
        false
    }

    /// A request that was just passed to the thread, or one that was kept; where there is none, the thread rests. Its
    /// ring must have no entry that waits.
    pub(super) fn next(&self, member: &Arc<Member>) -> Option<Held> {
        if !self.has_receiver() {
            return None;
        }
        let mut state = self.state();
        if let Some(held) = member.port.passed_on().or_else(|| state.left.pop_front()) {
            return Some(held);
        }
        let own = Arc::downgrade(member);
        if !state.resting.iter().any(|other| other.ptr_eq(&own)) {
            state.resting.push(own);
        }
        None
    }

    /// Whether requests are kept.
    pub(super) fn keeps(&self) -> bool {
        self.has_receiver() && !self.state().left.is_empty()
    }

    /// The connection has ended.
    pub(super) fn close(&self) {
        *self.state() = State::default();
    }
}
