//! `stats`: counts operations, errors and bytes, and measures latency.
//!
//! | option | meaning |
//! |---|---|
//! | `file=PATH` | where the figures go at the end; by default to the log of the process |
//! | `format=text` or `format=json` | how they are written; text by default |
//! | `ops=A\|B` | which operations are counted; all by default |
//! | `data=true` | READ and WRITE are to come here: turns kernel pass-through off |
//!
//! The latency is that of what stands below this layer, from the call to the answer. Percentiles
//! are upper bounds of buckets, four for each power of two, so at most a quarter too large. Without
//! `data=true` READ and WRITE are counted as far as they come; nothing is turned off.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bickford::Errno;
use bickford::layer::{
    About, Done, Interest, Layer, Needs, OperationKind, OperationSet, Outcome, PostCalls, PreCalls,
};

use crate::LayerError;
use crate::files::{advice, append, replace};
use crate::registry::{Built, Entry, Reporter, stack};
use crate::spec::Options;

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "stats",
    about: "counts operations, errors and bytes, and measures latency",
    options: &[
        ("file=PATH", "where the figures go at the end [the log]"),
        ("format=text|json", "how they are written [text]"),
        ("ops=A|B", "which operations are counted [all]"),
        (
            "data=true",
            "READ and WRITE must come here: no kernel pass-through",
        ),
    ],
    constructor: construct,
};

/// As any program's output: the umask decides.
const MODE: u32 = 0o666;

/// Four buckets for each power of two of nanoseconds.
const BUCKETS: usize = 4 * 64;

fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < 4 {
        return usize::try_from(nanoseconds).unwrap_or(0);
    }
    let exponent = nanoseconds.ilog2();
    let quarter = (nanoseconds >> (exponent - 2)) & 3;
    4 * (exponent as usize - 1) + usize::try_from(quarter).unwrap_or(0)
}

/// The largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let shift = bucket / 4 - 1;
    let next = (bucket as u128 % 4 + 5) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct Row {
    count: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
    histogram: Box<[AtomicU64]>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            histogram: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

/// What was counted of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStats {
    /// The operation.
    pub kind: OperationKind,
    /// How often it was answered.
    pub count: u64,
    /// How often with an error.
    pub errors: u64,
    /// Bytes that were read, written or listed.
    pub bytes: u64,
    /// Mean latency.
    pub mean: Duration,
    /// Latency that half of them did not exceed.
    pub p50: Duration,
    /// Latency that 99 of 100 did not exceed.
    pub p99: Duration,
    /// Longest latency.
    pub longest: Duration,
}

/// Counters of every operation; counting never waits.
#[derive(Debug)]
pub struct Counters {
    rows: Vec<Row>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            rows: OperationKind::ALL.iter().map(|_| Row::default()).collect(),
        }
    }
}

impl Counters {
    fn record(&self, kind: OperationKind, outcome: &Outcome, latency: Duration) {
        let Some(row) = self.rows.get(kind as usize) else {
            return;
        };
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        add(&row.count, 1);
        add(&row.errors, u64::from(outcome.errno.is_some()));
        add(&row.bytes, outcome.bytes);
        add(&row.nanoseconds, nanoseconds);
        row.longest.fetch_max(nanoseconds, Ordering::Relaxed);
        if let Some(bucket) = row.histogram.get(bucket_of(nanoseconds)) {
            add(bucket, 1);
        }
    }

    /// What was counted so far, of operations that came at all.
    #[must_use]
    pub fn snapshot(&self) -> Vec<OperationStats> {
        let rows = OperationKind::ALL.iter().zip(&self.rows);
        rows.filter_map(|(kind, row)| row.stats(*kind)).collect()
    }

    /// As a table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::from(
            "operation            count     errors          bytes     mean us      p50 us      p99 us      max us\n",
        );
        let us = |duration: Duration| duration.as_secs_f64() * 1e6;
        for row in self.snapshot() {
            let _ = writeln!(
                text,
                "{:<16} {:>9} {:>10} {:>14} {:>11.1} {:>11.1} {:>11.1} {:>11.1}",
                row.kind,
                row.count,
                row.errors,
                row.bytes,
                us(row.mean),
                us(row.p50),
                us(row.p99),
                us(row.longest)
            );
        }
        text
    }

    /// As a JSON object with an object for each operation; times in nanoseconds.
    #[must_use]
    pub fn json(&self) -> String {
        let rows = self.snapshot().into_iter().map(|row| {
            let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            let value = serde_json::json!({
                "count": row.count,
                "errors": row.errors,
                "bytes": row.bytes,
                "mean_ns": ns(row.mean),
                "p50_ns": ns(row.p50),
                "p99_ns": ns(row.p99),
                "max_ns": ns(row.longest),
            });
            (row.kind.name().to_owned(), value)
        });
        serde_json::Value::Object(rows.collect()).to_string()
    }
}

impl Row {
    fn stats(&self, kind: OperationKind) -> Option<OperationStats> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let histogram: Vec<u64> = self.histogram.iter().map(value).collect();
        let count: u64 = histogram.iter().sum();
        let longest = value(&self.longest);
        let percentile = |per_cent: u64| {
            let rank = (count * per_cent).div_ceil(100).max(1);
            let mut seen = 0;
            let at = histogram.iter().position(|bucket| {
                seen += bucket;
                seen >= rank
            });
            Duration::from_nanos(at.map_or(0, bucket_end).min(longest))
        };
        (count > 0).then(|| OperationStats {
            kind,
            count,
            errors: value(&self.errors),
            bytes: value(&self.bytes),
            mean: Duration::from_nanos(value(&self.nanoseconds) / count),
            p50: percentile(50),
            p99: percentile(99),
            longest: Duration::from_nanos(longest),
        })
    }
}

impl Reporter for Counters {
    fn report(&self) -> String {
        self.text()
    }
}

/// The layer.
#[derive(Debug)]
pub struct Stats {
    counters: Arc<Counters>,
    operations: OperationSet,
    data: bool,
    json: bool,
    file: Option<PathBuf>,
}

impl Stats {
    /// Counts every operation that comes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counters: Arc::default(),
            operations: OperationSet::ALL,
            data: false,
            json: false,
            file: None,
        }
    }

    /// The counters, to be read while the layer counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

fn construct(
    options: &mut Options<'_>,
    below: Box<dyn bickford::FileSystem>,
) -> Result<Built, LayerError> {
    let layer = Stats {
        json: options.word("format", ["text", "json"])? == "json",
        // A daemon leaves its directory.
        file: options.text("file")?.map(|path| {
            let path = PathBuf::from(path);
            std::path::absolute(&path).unwrap_or(path)
        }),
        operations: options.operations("ops")?.unwrap_or(OperationSet::ALL),
        data: options.flag("data")?.unwrap_or(false),
        ..Stats::new()
    };
    // Better now than after hours of counting.
    if let Some(path) = &layer.file {
        append(path, MODE).map_err(|error| {
            options.error(format_args!(
                "file={}: {error}{}",
                path.display(),
                advice(&error)
            ))
        })?;
    }
    let about = match &layer.file {
        Some(path) => format!("to {} at the end", path.display()),
        None => "to the log at the end".to_owned(),
    };
    let counters = layer.counters();
    stack(options, layer, below, about, Some(counters))
}

impl PreCalls for Stats {}

impl PostCalls for Stats {
    fn every(&self, done: &Done, _: &About<'_>, outcome: &Outcome) -> Option<Errno> {
        self.counters.record(done.kind(), outcome, done.took());
        None
    }
}

impl Layer for Stats {
    fn name(&self) -> &str {
        "stats"
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn interest(&self) -> Interest {
        Interest {
            post: self.operations,
            timed: true,
            ..Interest::default()
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            data: self.data,
            because: "data=true".to_owned(),
            ..Needs::default()
        }
    }

    fn destroy(&self) {
        let text = if self.json {
            self.counters.json() + "\n"
        } else {
            self.counters.text()
        };
        if let Some(path) = &self.file {
            match replace(path, MODE, &text) {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(layer = "stats", path = %path.display(), "not written, and so logged: {error}");
                }
            }
        }
        for line in text.lines() {
            tracing::info!(layer = "stats", "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_everything_without_gaps() {
        assert_eq!(bucket_of(u64::MAX), 4 * 62 + 3);
        let mut before = 0;
        for bucket in 0..=bucket_of(u64::MAX) {
            let end = bucket_end(bucket);
            assert_eq!(bucket_of(end), bucket, "{end}");
            assert_eq!(bucket_of(before), bucket, "{before}");
            assert!(end - before <= before / 4, "{before} to {end}");
            before = end.wrapping_add(1);
        }
        assert_eq!(before, 0, "the last bucket ends with the largest value");
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let counters = Counters::default();
        for n in 1..=100 {
            let latency = Duration::from_micros(n);
            counters.record(OperationKind::Read, &Outcome::default(), latency);
        }
        let [read] = counters.snapshot()[..] else {
            panic!("one operation was recorded");
        };
        assert_eq!((read.count, read.errors), (100, 0));
        assert_eq!(read.longest, Duration::from_micros(100));
        assert_eq!(read.mean, Duration::from_nanos(50_500));
        assert!(read.p50 >= Duration::from_micros(50) && read.p50 <= Duration::from_nanos(62_500));
        assert!(read.p99 >= Duration::from_micros(99) && read.p99 <= Duration::from_micros(100));
        assert!(counters.text().contains("read "));
        let json: serde_json::Value = serde_json::from_str(&counters.json()).unwrap();
        assert_eq!(json["read"]["count"], 100);
    }
}
