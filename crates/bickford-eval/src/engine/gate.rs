//! Has threads begin together.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where threads wait until all of them are there, or it is known that not all will come.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    came: Condvar,
    decided: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    opened: Option<bool>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the others; false where the gate stays closed.
    pub(super) fn pass(&self) -> bool {
        let mut state = self.state();
        state.waiting += 1;
        self.came.notify_one();
        let decided = self.decided.wait_while(state, |s| s.opened.is_none());
        let state = decided.unwrap_or_else(PoisonError::into_inner);
        state.opened == Some(true)
    }

    /// Waits for `count` threads and lets them go.
    pub(super) fn open(&self, count: usize) {
        let state = self.state();
        let came = self.came.wait_while(state, |s| s.waiting < count);
        came.unwrap_or_else(PoisonError::into_inner).opened = Some(true);
        self.decided.notify_all();
    }

    /// Sends away who waits and who is still to come.
    pub(super) fn close(&self) {
        self.state().opened = Some(false);
        self.decided.notify_all();
    }
}
