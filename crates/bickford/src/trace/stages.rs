//! The times of one request.

use super::Stamp;

/// The number of the calling thread, as the kernel's tracepoints have it.
pub(crate) fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// When one request passed each stage.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// The transport had it.
    pub received: Stamp,
    /// It was decoded, and the handler began.
    pub decoded: Stamp,
    /// The handler answered.
    pub handled: Stamp,
    /// The transport had sent the answer.
    pub sent: Stamp,
    /// The thread on which the handler began; 0 while nobody reads events.
    pub thread: u32,
}

impl Stages {
    /// A request that was just received.
    #[must_use]
    pub fn received(at: Stamp) -> Self {
        Self {
            received: at,
            decoded: at,
            handled: at,
            sent: at,
            thread: 0,
        }
    }

    pub(crate) fn mark_decoded(&mut self) {
        self.decoded = Stamp::now();
    }

    pub(crate) fn mark_handled(&mut self) {
        self.handled = Stamp::now();
    }

    pub(crate) fn mark_sent(&mut self) {
        self.sent = Stamp::now();
    }

    /// Nanoseconds in the library before the handler, in the handler, and in sending the answer.
    #[must_use]
    pub fn nanoseconds(&self) -> [u64; 3] {
        [
            self.decoded.since(self.received),
            self.handled.since(self.decoded),
            self.sent.since(self.handled),
        ]
    }
}
