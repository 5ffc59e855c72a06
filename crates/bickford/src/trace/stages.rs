//! The times of one request.

use std::time::{Duration, Instant};

/// When one request passed each stage.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// The transport had it.
    pub received: Instant,
    /// It was decoded, and the handler began.
    pub decoded: Instant,
    /// The handler answered.
    pub handled: Instant,
    /// The transport had sent the answer.
    pub sent: Instant,
}

impl Stages {
    /// A request that was just received.
    #[must_use]
    pub fn received(at: Instant) -> Self {
        Self {
            received: at,
            decoded: at,
            handled: at,
            sent: at,
        }
    }

    pub(crate) fn mark_decoded(&mut self) {
        self.decoded = Instant::now();
    }

    pub(crate) fn mark_handled(&mut self) {
        self.handled = Instant::now();
    }

    pub(crate) fn mark_sent(&mut self) {
        self.sent = Instant::now();
    }

    /// Time in the library before the handler, in the handler, and in sending the answer.
    #[must_use]
    pub fn durations(&self) -> [Duration; 3] {
        [
            self.decoded.saturating_duration_since(self.received),
            self.handled.saturating_duration_since(self.decoded),
            self.sent.saturating_duration_since(self.handled),
        ]
    }
}
