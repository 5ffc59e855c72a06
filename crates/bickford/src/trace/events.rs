//! Each request as it ends, for one reader at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bickford_abi::Opcode;
use serde::{Deserialize, Serialize};

use super::Stages;
use super::stages;
use super::stamp::Anchor;

/// One request that was answered. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Number of the request within its connection.
    pub unique: u64,
    /// Number of the opcode.
    pub opcode: u32,
    /// Zero, or the errno that was answered.
    pub error: i32,
    /// The transport had the request.
    pub received: u64,
    /// It was decoded, and the handler began.
    pub decoded: u64,
    /// The handler answered.
    pub handled: u64,
    /// The transport had sent the answer.
    pub sent: u64,
    /// The thread of the handler, where it answered on the thread on which it began; else 0.
    #[serde(default)]
    pub thread: u32,
}

/// Events that wait for the reader; those beyond are counted and dropped.
const EVENTS_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    dropped: u64,
    read: bool,
}

/// A bounded queue of events; while nobody reads, it costs one load of a flag.
#[derive(Debug, Default)]
pub struct Events {
    enabled: AtomicBool,
    state: Mutex<State>,
    arrived: Condvar,
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, unique: u64, opcode: Opcode, error: i32, stages: &Stages) {
        let anchor = Anchor::now();
        let same = stages.thread == stages::thread_id();
        let thread = if same { stages.thread } else { 0 };
        let mut state = self.state();
        if !state.read {
            return;
        }
        if state.waiting.len() >= EVENTS_MAX {
            state.dropped += 1;
            return;
        }
        state.waiting.push_back(Event {
            unique,
            opcode: opcode as u32,
            error,
            received: anchor.time_of(stages.received),
            decoded: anchor.time_of(stages.decoded),
            handled: anchor.time_of(stages.handled),
            sent: anchor.time_of(stages.sent),
            thread,
        });
        drop(state);
        self.arrived.notify_one();
    }

    /// Begins to collect; `false` when somebody reads already.
    #[must_use]
    pub fn enable(&self) -> bool {
        if self.enabled.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut state = self.state();
        state.waiting.clear();
        state.dropped = 0;
        state.read = true;
        true
    }

    /// Ends collecting.
    pub fn disable(&self) {
        let mut state = self.state();
        state.read = false;
        state.waiting.clear();
        drop(state);
        self.enabled.store(false, Ordering::SeqCst);
    }

    /// Takes what has arrived, waiting for at most `timeout`; and how many were dropped since the
    /// last call.
    pub fn take(&self, timeout: Duration) -> (Vec<Event>, u64) {
        let state = self.state();
        let nothing = |state: &mut State| state.waiting.is_empty() && state.dropped == 0;
        let (mut state, _) = self
            .arrived
            .wait_timeout_while(state, timeout, nothing)
            .unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut state.dropped);
        (state.waiting.drain(..).collect(), dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stamp;
    use super::super::stamp::monotonic;
    use super::*;

    #[test]
    fn events_are_kept_only_while_somebody_reads() {
        let events = Events::default();
        let stages = Stages::received(Stamp::now());
        events.push(1, Opcode::Read, 0, &stages);
        assert!(events.enable());
        assert!(!events.enable());
        let before = monotonic();
        events.push(2, Opcode::Read, 5, &Stages::received(Stamp::now()));
        let (seen, dropped) = events.take(Duration::ZERO);
        assert_eq!(
            (seen.len(), dropped, seen[0].unique, seen[0].error),
            (1, 0, 2, 5)
        );
        let second = 1_000_000_000;
        assert!(
            seen[0].received.abs_diff(before) < 3_600 * second,
            "not the monotonic clock"
        );
        for unique in 0..EVENTS_MAX as u64 + 3 {
            events.push(unique, Opcode::Read, 0, &stages);
        }
        assert_eq!(events.take(Duration::ZERO).1, 3);
        events.disable();
        assert_eq!(events.take(Duration::ZERO).0.len(), 0);
    }
}
