//! Retrievals that wait for the kernel's data (NOTIFY_REPLY).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Receive = Box<dyn FnOnce(u64, &[u8]) + Send>;

/// How many retrievals may wait for data.
pub const RETRIEVALS_MAX: usize = 4096;
/// Over io_uring the kernel finds the answer to its request by our number among those that it gives
/// to requests itself: small and even. So ours are large, and even because odd ones mean INTERRUPT.
const NUMBERS: u64 = 1 << 61;

#[derive(Default)]
struct State {
    next: u64,
    waiting: HashMap<u64, Receive>,
}

#[derive(Default)]
pub(crate) struct Retrievals(Mutex<State>);

impl std::fmt::Debug for Retrievals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Retrievals({})", self.state().waiting.len())
    }
}

impl Retrievals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, receive: Receive) -> Option<u64> {
        let mut state = self.state();
        if state.waiting.len() >= RETRIEVALS_MAX {
            return None;
        }
        state.next += 2;
        let number = NUMBERS + state.next;
        state.waiting.insert(number, receive);
        Some(number)
    }

    /// Drops all that wait; nothing comes any more.
    pub(crate) fn end(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        super::queue::dropped(waiting);
    }

    pub(crate) fn take(&self, number: u64) -> Option<Receive> {
        self.state().waiting.remove(&number)
    }
}
