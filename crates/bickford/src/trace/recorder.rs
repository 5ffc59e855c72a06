//! Counts and log2 histograms per opcode, one recorder per worker, merged when they are read.

use std::sync::atomic::{AtomicU64, Ordering};

use bickford_abi::Opcode;

use super::Stages;
use crate::transport::Outgoing;

/// Columns of a histogram. Column N counts durations of 2^N to 2^(N+1) nanoseconds; the last one
/// everything longer.
pub const BUCKETS: usize = 32;

/// Stages of a request: in the library before the handler, in the handler, sending the answer.
pub const STAGES: usize = 3;

#[derive(Default)]
struct Row {
    errors: AtomicU64,
    bytes_out: AtomicU64,
    nanoseconds: [AtomicU64; STAGES],
    histogram: [[AtomicU64; STAGES]; BUCKETS],
}

/// What one worker saw. Only counters: recording never waits.
pub struct Recorder {
    rows: Box<[Row]>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            rows: (0..Opcode::COUNT).map(|_| Row::default()).collect(),
        }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    (nanoseconds.max(1).ilog2() as usize).min(BUCKETS - 1)
}

impl Recorder {
    /// Does for one request without a session all that a session does for its instrumentation: four
    /// readings of the clock and a record. For measuring what that costs.
    pub fn rehearse(&self, opcode: Opcode) {
        let mut stages = Stages::received(std::time::Instant::now());
        stages.mark_decoded();
        stages.mark_handled();
        stages.mark_sent();
        let answer = Outgoing {
            error: 0,
            fixed: &[],
            data: &crate::ops::Data::Empty,
        };
        self.record(opcode, &stages, &answer);
    }

    pub(crate) fn record(&self, opcode: Opcode, stages: &Stages, answer: &Outgoing<'_>) {
        let Some(row) = self.rows.get(opcode.index()) else {
            return;
        };
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        if answer.error != 0 {
            add(&row.errors, 1);
        }
        add(
            &row.bytes_out,
            (answer.fixed.len() + answer.data.len()) as u64,
        );
        for (stage, duration) in stages.durations().into_iter().enumerate() {
            let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            if let Some(total) = row.nanoseconds.get(stage) {
                add(total, nanoseconds);
            }
            let cell = row
                .histogram
                .get(bucket(nanoseconds))
                .and_then(|cells| cells.get(stage));
            if let Some(cell) = cell {
                add(cell, 1);
            }
        }
    }
}

/// What happened to the requests of one opcode. Stages: in the library before the handler, in the
/// handler, sending the answer.
#[derive(Clone, Debug, Default)]
pub struct OpcodeStats {
    /// Requests that were answered.
    pub count: u64,
    /// Those among them that were answered with an error.
    pub errors: u64,
    /// Bytes of answers, without headers; for file ranges, as many as were asked for.
    pub bytes_out: u64,
    /// Sum of the durations of each stage.
    pub nanoseconds: [u64; STAGES],
    /// Histograms of each stage; see [`BUCKETS`].
    pub histogram: [[u64; BUCKETS]; STAGES],
}

/// Statistics of a session, by [`Opcode::index`].
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// One row per opcode.
    pub rows: Vec<OpcodeStats>,
}

impl Stats {
    /// Adds up what the recorders hold.
    pub fn merge<'a>(recorders: impl IntoIterator<Item = &'a Recorder>) -> Self {
        let mut rows = vec![OpcodeStats::default(); Opcode::COUNT];
        for recorder in recorders {
            for (sum, row) in rows.iter_mut().zip(&recorder.rows) {
                sum.add(row);
            }
        }
        Self { rows }
    }

    /// The row of one opcode.
    #[must_use]
    pub fn of(&self, opcode: Opcode) -> OpcodeStats {
        self.rows.get(opcode.index()).cloned().unwrap_or_default()
    }
}

impl OpcodeStats {
    fn add(&mut self, row: &Row) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.errors += value(&row.errors);
        self.bytes_out += value(&row.bytes_out);
        for (sum, total) in self.nanoseconds.iter_mut().zip(&row.nanoseconds) {
            *sum += value(total);
        }
        for (column, cells) in row.histogram.iter().enumerate() {
            for (stage, cell) in cells.iter().enumerate() {
                let count = value(cell);
                if stage == 0 {
                    self.count += count;
                }
                if let Some(sum) = self
                    .histogram
                    .get_mut(stage)
                    .and_then(|h| h.get_mut(column))
                {
                    *sum += count;
                }
            }
        }
    }
}
