//! What is measured of one run, and where it comes from.

pub mod cpu;
pub mod cycles;
pub mod disk;
pub mod tracepoints;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latency of one kind of operation as the workload saw it, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OpLatency {
    pub op: String,
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

impl OpLatency {
    /// Sums up a histogram of nanoseconds.
    #[must_use]
    pub fn of(op: &str, histogram: &Histogram<u32>) -> Self {
        let at = |q: f64| histogram.value_at_quantile(q) as f64 / 1000.0;
        Self {
            op: op.to_owned(),
            count: histogram.len(),
            mean_us: histogram.mean() / 1000.0,
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1000.0,
        }
    }
}

/// A histogram of nanoseconds with 32-bit counters: a hundred threads have several each, within the
/// memory limit of the row. Goes up to 1,000 s with two significant digits.
///
/// # Errors
/// hdrhistogram refused the bounds.
pub fn histogram() -> Result<Histogram<u32>, String> {
    Histogram::new_with_bounds(1, 1_000_000_000_000, 2).map_err(|e| format!("histogram: {e}"))
}

/// What a workload did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Operations: I/Os of fio, flow operations of the engine, transactions of PostMark, files copied, bytes for
    /// Bonnie's per-character phases and blocks for the others, writes of figure 2.
    pub operations: u64,
    /// Bytes read and written by the workload where it counts them.
    pub bytes: u64,
    /// Files created, opened, removed or asked for attributes, where it is about files.
    pub files: u64,
    /// Time of the work itself in seconds.
    pub elapsed_s: f64,
    /// Latency by operation.
    pub latencies: Vec<OpLatency>,
    /// Threads of the engine that found no file for their first operation, and did none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_threads: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Work {
    /// Nanoseconds of its time for each operation; `None` where there was none.
    pub(crate) fn operation_ns(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.elapsed_s * 1e9 / self.operations as f64)
    }
}
