//! The requests of one FUSE connection while a row runs, summed up by opcode.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bickford::trace::kernel::{self, KernelRequest, Tracepoints};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{OpLatency, histogram};

/// The requests of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Count and round trip by opcode, the most frequent first.
    pub by_opcode: Vec<OpLatency>,
    /// Answers that were errors.
    pub errors: u64,
    /// Requests sent whose end was not seen (still under way at the end, or lost).
    pub unanswered: u64,
    /// Events the buffer had no room for; where this is not 0 the counts are too small.
    pub lost: u64,
}

impl Requests {
    /// All requests that were answered.
    #[must_use]
    pub fn total(&self) -> u64 {
        let counts = self.by_opcode.iter().map(|o| o.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Round trips of all requests together, in seconds.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.by_opcode
            .iter()
            .map(|o| o.count as f64 * o.mean_us / 1e6)
            .sum()
    }
}

/// Counts and round trips by opcode.
#[derive(Debug, Default)]
struct Tally {
    times: BTreeMap<u32, (String, Option<Histogram<u32>>)>,
    errors: u64,
}

impl Tally {
    fn record(&mut self, request: &KernelRequest) {
        self.errors += u64::from(request.error != 0);
        let (_, times) = self
            .times
            .entry(request.opcode)
            .or_insert_with(|| (request.name(), histogram().ok()));
        if let Some(times) = times {
            times.saturating_record(request.duration_ns().max(1));
        }
    }

    fn requests(&self, unanswered: u64, lost: u64) -> Requests {
        let mut by_opcode: Vec<OpLatency> = self
            .times
            .values()
            .filter_map(|(name, times)| Some(OpLatency::of(name, times.as_ref()?)))
            .collect();
        by_opcode.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.op.cmp(&b.op)));
        Requests {
            by_opcode,
            errors: self.errors,
            unanswered,
            lost,
        }
    }
}

/// Tracing of one connection; ends and leaves nothing behind when dropped.
#[derive(Debug)]
pub struct Tracing {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<Result<Requests, String>>>,
}

/// Mounts tracefs where it is not.
pub(crate) fn provide_tracefs() -> Result<(), String> {
    if kernel::tracefs().is_ok() {
        return Ok(());
    }
    let place = Path::new("/sys/kernel/tracing");
    let place = crate::host::utf8(place)?;
    crate::host::tool("mount", &["-t", "tracefs", "tracefs", place]).map(drop)
}

impl Tracing {
    /// Begins to trace the FUSE connection `number`.
    ///
    /// # Errors
    /// Why requests cannot be traced here: no root, no tracefs, no FUSE tracepoints.
    pub fn start(number: u32) -> Result<Self, String> {
        provide_tracefs()?;
        let tracepoints = Tracepoints::open(Some(number)).map_err(|e| e.to_string())?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let reader = std::thread::spawn(move || read(tracepoints, &told));
        Ok(Self {
            stop,
            reader: Some(reader),
        })
    }

    /// Ends tracing and returns what was seen.
    ///
    /// # Errors
    /// Why the requests are not known after all.
    pub fn finish(mut self) -> Result<Requests, String> {
        self.end()
            .unwrap_or_else(|| Err("the reader of tracepoints was ended before".into()))
    }

    fn end(&mut self) -> Option<Result<Requests, String>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.reader.take()?.join();
        Some(ended.unwrap_or_else(|_| Err("the reader of tracepoints panicked".into())))
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(mut tracepoints: Tracepoints, stop: &AtomicBool) -> Result<Requests, String> {
    let mut tally = Tally::default();
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        if stopping {
            tracepoints.stop().map_err(|e| e.to_string())?;
        }
        let ended = tracepoints
            .take(Duration::from_millis(if stopping { 0 } else { 5 }))
            .map_err(|e| format!("read tracepoints: {e}"))?;
        ended.iter().for_each(|request| tally.record(request));
        if stopping && ended.is_empty() {
            break;
        }
    }
    let unanswered = tracepoints.unanswered().count() as u64;
    Ok(tally.requests(unanswered, tracepoints.lost()))
}
