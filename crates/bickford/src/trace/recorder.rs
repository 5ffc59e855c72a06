//! Counts and log2 histograms per opcode, one recorder per worker, merged when they are read.
//!
//! A worker's thread is the only one that writes to its rows, so that it adds by a load and a store,
//! which cost a tenth of an atomic addition. Answers that other threads give are counted in rows that
//! they share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bickford_abi::Opcode;

use super::{Stages, Stamp};
use crate::transport::Outgoing;

/// Columns of a histogram. Column N counts durations of 2^N to 2^(N+1) nanoseconds; the last one
/// everything longer.
pub const BUCKETS: usize = 32;

/// Stages of a request: in the library before the handler, in the handler, sending the answer.
pub const STAGES: usize = 3;

/// On cache lines of its own: the next row may be another opcode's, but the next block is another
/// worker's.
#[derive(Default)]
#[repr(align(64))]
struct Row {
    errors: AtomicU64,
    bytes_out: AtomicU64,
    nanoseconds: [AtomicU64; STAGES],
    histogram: [[AtomicU64; STAGES]; BUCKETS],
}

/// What one worker saw. Only counters: recording never waits.
pub struct Recorder {
    /// The thread that writes to `rows`; 0 for none.
    owner: AtomicUsize,
    rows: Box<[Row]>,
    /// What other threads answered, made when the first does.
    others: OnceLock<Box<[Row]>>,
}

/// A number of the calling thread that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        // Without a destructor it is there as long as the thread is.
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

fn make_rows() -> Box<[Row]> {
    (0..Opcode::COUNT).map(|_| Row::default()).collect()
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            rows: make_rows(),
            others: OnceLock::new(),
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
        self.claim();
        let mut stages = Stages::received(Stamp::now());
        stages.mark_decoded();
        stages.mark_handled();
        stages.mark_sent();
        self.record(opcode, &stages, &Outgoing::without_data(0, &[]));
    }

    /// Makes the calling thread the one that writes to the rows, unless another is.
    pub(crate) fn claim(&self) {
        if self.owner.load(Ordering::Relaxed) == 0 {
            let thread = this_thread();
            let _ = self
                .owner
                .compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Its worker is gone; the next one may claim it.
    pub(crate) fn disown(&mut self) {
        *self.owner.get_mut() = 0;
    }

    pub(crate) fn record(&self, opcode: Opcode, stages: &Stages, answer: &Outgoing<'_>) {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            // Nobody else writes, so that nothing is lost between the load and the store.
            let add = |counter: &AtomicU64, value| {
                let sum = counter.load(Ordering::Relaxed).wrapping_add(value);
                counter.store(sum, Ordering::Relaxed);
            };
            count(&self.rows, opcode, stages, answer, add);
        } else {
            let add = |counter: &AtomicU64, value| {
                counter.fetch_add(value, Ordering::Relaxed);
            };
            let rows = self.others.get_or_init(make_rows);
            count(rows, opcode, stages, answer, add);
        }
    }
}

fn count(
    rows: &[Row],
    opcode: Opcode,
    stages: &Stages,
    answer: &Outgoing<'_>,
    add: impl Fn(&AtomicU64, u64),
) {
    let Some(row) = rows.get(opcode.index()) else {
        return;
    };
    if answer.error != 0 {
        add(&row.errors, 1);
    }
    let bytes = answer.fixed.len() + answer.data.len();
    if bytes != 0 {
        add(&row.bytes_out, bytes as u64);
    }
    for (stage, nanoseconds) in stages.nanoseconds().into_iter().enumerate() {
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
            let others = recorder.others.get().map(|rows| rows.iter());
            for (sum, row) in rows.iter_mut().zip(&recorder.rows) {
                sum.add(row);
            }
            for (sum, row) in rows.iter_mut().zip(others.into_iter().flatten()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: u64 = 20_000;

    /// The thread that claims it, others at the same time, and a later one after the worker is gone.
    #[test]
    fn nothing_is_lost_whoever_records() {
        let mut recorder = Recorder::default();
        recorder.claim();
        let stages = Stages::received(Stamp::now());
        let answer = Outgoing::without_data(5, &[1, 2, 3]);
        let work = |recorder: &Recorder| {
            for _ in 0..EACH {
                recorder.claim();
                recorder.record(Opcode::Read, &stages, &answer);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(&recorder));
            scope.spawn(|| work(&recorder));
            work(&recorder);
        });
        assert_eq!(recorder.owner.load(Ordering::Relaxed), this_thread());
        recorder.disown();
        std::thread::scope(|scope| {
            scope.spawn(|| work(&recorder));
        });
        let row = Stats::merge([&recorder]).of(Opcode::Read);
        assert_eq!((row.count, row.errors), (4 * EACH, 4 * EACH));
        assert_eq!(row.bytes_out, 12 * EACH);
        let others = recorder
            .others
            .get()
            .map(|rows| &rows[Opcode::Read.index()]);
        assert_eq!(others.unwrap().errors.load(Ordering::Relaxed), 2 * EACH);
    }
}
