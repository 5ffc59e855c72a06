//! Each request as it ends, for one reader at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bickford_abi::Opcode;
use serde::{Deserialize, Serialize};

use super::Stages;

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
}

/// Events that wait for the reader; those beyond are counted and dropped.
const EVENTS_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    dropped: u64,
    /// One instant on both clocks.
    origin: Option<(Instant, u64)>,
}

/// A bounded queue of events; while nobody reads, it costs one load of a flag.
#[derive(Debug, Default)]
pub struct Events {
    enabled: AtomicBool,
    state: Mutex<State>,
    arrived: Condvar,
}

/// Nanoseconds of the monotonic clock, as the kernel's tracepoints with clock `mono` have them.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// One instant on both clocks. Of several tries the quickest is taken, since a thread may be held up
/// between reading the one and the other.
fn one_moment() -> Option<(Instant, u64)> {
    let tries = (0..32).map(|_| {
        let before = monotonic();
        let instant = Instant::now();
        let took = monotonic().saturating_sub(before);
        (took, (instant, before + took / 2))
    });
    tries
        .min_by_key(|(took, _)| *took)
        .map(|(_, moment)| moment)
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, unique: u64, opcode: Opcode, error: i32, stages: &Stages) {
        let mut state = self.state();
        let Some((origin, at_origin)) = state.origin else {
            return;
        };
        if state.waiting.len() >= EVENTS_MAX {
            state.dropped += 1;
            return;
        }
        let time = |instant: Instant| {
            let ahead = origin.saturating_duration_since(instant).as_nanos();
            let behind = instant.saturating_duration_since(origin).as_nanos();
            let (ahead, behind) = (u64::try_from(ahead), u64::try_from(behind));
            at_origin
                .saturating_add(behind.unwrap_or(0))
                .saturating_sub(ahead.unwrap_or(0))
        };
        state.waiting.push_back(Event {
            unique,
            opcode: opcode as u32,
            error,
            received: time(stages.received),
            decoded: time(stages.decoded),
            handled: time(stages.handled),
            sent: time(stages.sent),
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
        state.origin = one_moment();
        true
    }

    /// Ends collecting.
    pub fn disable(&self) {
        let mut state = self.state();
        state.origin = None;
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
    use super::*;

    #[test]
    fn events_are_kept_only_while_somebody_reads() {
        let events = Events::default();
        let stages = Stages::received(Instant::now());
        events.push(1, Opcode::Read, 0, &stages);
        assert!(events.enable());
        assert!(!events.enable());
        let before = monotonic();
        events.push(2, Opcode::Read, 5, &Stages::received(Instant::now()));
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
