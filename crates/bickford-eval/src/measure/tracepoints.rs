//! The requests of one FUSE connection, from the kernel's tracepoints `fuse_request_send` and
//! `fuse_request_end`, joined on their unique number.
//!
//! The buffer is an instance of its own: nobody else's tracing is touched, and nothing stays enabled.
//! Pages are read as the kernel wrote them, since formatting each event as text would cost more than
//! many requests do.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::ring_buffer::read_page;
use super::{OpLatency, histogram};

/// Buffer of each CPU in KiB: 16 MiB hold some 400,000 events between two readings.
const BUFFER_KIB: u32 = 16 * 1024;
/// The most requests that are kept while their other half is missing.
const MAX_HALVES: usize = 1 << 20;
const EVENTS: [&str; 2] = ["fuse_request_send", "fuse_request_end"];

static COUNT: AtomicU32 = AtomicU32::new(0);

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
        self.by_opcode.iter().map(|o| o.count).sum()
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

/// Where the fields of an event are.
#[derive(Debug, Clone, Default)]
struct Format {
    id: u16,
    offsets: BTreeMap<String, usize>,
    symbols: BTreeMap<u32, String>,
}

impl Format {
    fn parse(text: &str) -> Self {
        let mut format = Self::default();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().unwrap_or(0);
            }
            let mut parts = line.trim().split(';').map(str::trim);
            let declared = parts.next().and_then(|p| p.strip_prefix("field:"));
            let offset = parts
                .next()
                .and_then(|p| p.strip_prefix("offset:")?.parse().ok());
            if let (Some(declared), Some(offset)) = (declared, offset)
                && let Some(name) = declared.split_whitespace().next_back()
            {
                format.offsets.insert(name.to_owned(), offset);
            }
        }
        // The names of the opcodes are part of how the event is printed: {1, "FUSE_LOOKUP"}, ...
        for pair in text.split('{').skip(1) {
            if let Some((number, rest)) = pair.split_once(", \"")
                && let (Ok(number), Some((name, _))) = (number.parse(), rest.split_once('"'))
            {
                format
                    .symbols
                    .insert(number, name.trim_start_matches("FUSE_").to_owned());
            }
        }
        format
    }

    fn word(&self, payload: &[u8], name: &str) -> Option<u32> {
        let at = *self.offsets.get(name)?;
        Some(u32::from_ne_bytes(
            payload.get(at..at + 4)?.try_into().ok()?,
        ))
    }

    fn long(&self, payload: &[u8], name: &str) -> Option<u64> {
        let at = *self.offsets.get(name)?;
        Some(u64::from_ne_bytes(
            payload.get(at..at + 8)?.try_into().ok()?,
        ))
    }
}

/// Joins the halves of requests. They come from a buffer per CPU, so the end may be read first.
#[derive(Debug, Default)]
struct Join {
    sent: HashMap<u64, (u64, u32)>,
    ended: HashMap<u64, u64>,
    times: BTreeMap<u32, Option<Histogram<u32>>>,
    errors: u64,
    lost: u64,
}

impl Join {
    fn send(&mut self, unique: u64, time: u64, opcode: u32) {
        match self.ended.remove(&unique) {
            Some(end) => self.record(opcode, end.saturating_sub(time)),
            None if self.sent.len() < MAX_HALVES => {
                self.sent.insert(unique, (time, opcode));
            }
            None => self.lost += 1,
        }
    }

    fn end(&mut self, unique: u64, time: u64, error: i32) {
        self.errors += u64::from(error != 0);
        match self.sent.remove(&unique) {
            Some((begun, opcode)) => self.record(opcode, time.saturating_sub(begun)),
            None if self.ended.len() < MAX_HALVES => {
                self.ended.insert(unique, time);
            }
            None => self.lost += 1,
        }
    }

    fn record(&mut self, opcode: u32, nanoseconds: u64) {
        if let Some(times) = self.times.entry(opcode).or_insert_with(|| histogram().ok()) {
            times.saturating_record(nanoseconds.max(1));
        }
    }

    fn requests(&self, names: &BTreeMap<u32, String>) -> Requests {
        let name = |opcode: &u32| {
            names
                .get(opcode)
                .cloned()
                .unwrap_or_else(|| format!("opcode {opcode}"))
        };
        let mut by_opcode: Vec<OpLatency> = self
            .times
            .iter()
            .filter_map(|(opcode, times)| Some(OpLatency::of(&name(opcode), times.as_ref()?)))
            .collect();
        by_opcode.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.op.cmp(&b.op)));
        Requests {
            by_opcode,
            errors: self.errors,
            unanswered: self.sent.len() as u64,
            lost: self.lost,
        }
    }
}

/// What the readers of all CPUs share.
#[derive(Debug)]
struct Shared {
    send: Format,
    end: Format,
    join: Mutex<Join>,
    stop: AtomicBool,
}

impl Shared {
    fn page(&self, page: &[u8]) {
        let mut join = self.join.lock().unwrap_or_else(PoisonError::into_inner);
        read_page(page, |time, payload| {
            let id = payload
                .get(..2)
                .and_then(|b| Some(u16::from_ne_bytes(b.try_into().ok()?)));
            if id == Some(self.send.id) {
                if let (Some(unique), Some(opcode)) = (
                    self.send.long(payload, "unique"),
                    self.send.word(payload, "opcode"),
                ) {
                    join.send(unique, time, opcode);
                }
            } else if id == Some(self.end.id)
                && let (Some(unique), Some(error)) = (
                    self.end.long(payload, "unique"),
                    self.end.word(payload, "error"),
                )
            {
                join.end(unique, time, error.cast_signed());
            }
        });
    }
}

/// Tracing of one connection; ends and leaves nothing behind when dropped.
#[derive(Debug)]
pub struct Tracing {
    instance: PathBuf,
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

fn tracefs() -> Result<PathBuf, String> {
    let candidates = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
    let usable = |path: &Path| path.join("instances").is_dir();
    if let Some(found) = candidates.iter().find(|p| usable(p)) {
        return Ok(found.clone());
    }
    let [first, _] = candidates;
    crate::host::tool(
        "mount",
        &["-t", "tracefs", "tracefs", crate::host::utf8(&first)?],
    )?;
    if usable(&first) {
        Ok(first)
    } else {
        Err(format!("{} has no instances", first.display()))
    }
}

fn put(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|e| format!("write {value} to {}: {e}", path.display()))
}

impl Tracing {
    /// Begins to trace the FUSE connection `number`.
    ///
    /// # Errors
    /// Why requests cannot be traced here: no root, no tracefs, no FUSE tracepoints.
    pub fn start(number: u32) -> Result<Self, String> {
        let root = tracefs()?;
        let format = |event: &str| {
            let path = root.join("events/fuse").join(event).join("format");
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok::<_, String>(Format::parse(&text))
        };
        let [send, end] = EVENTS;
        let shared = Arc::new(Shared {
            send: format(send)?,
            end: format(end)?,
            join: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let instance = root.join(format!(
            "instances/bickford-eval-{}-{count}",
            std::process::id()
        ));
        fs::create_dir(&instance).map_err(|e| format!("make {}: {e}", instance.display()))?;
        let mut tracing = Self {
            instance,
            shared,
            readers: Vec::new(),
        };
        tracing.enable(number)?;
        Ok(tracing)
    }

    fn enable(&mut self, number: u32) -> Result<(), String> {
        put(
            &self.instance.join("buffer_size_kb"),
            &BUFFER_KIB.to_string(),
        )?;
        // One clock for all CPUs, since a request may end on another than it began on.
        put(&self.instance.join("trace_clock"), "mono")?;
        for event in EVENTS {
            let event = self.instance.join("events/fuse").join(event);
            put(&event.join("filter"), &format!("connection == {number}"))?;
            put(&event.join("enable"), "1")?;
        }
        let buffers = self.instance.join("per_cpu");
        let cpus = fs::read_dir(&buffers).map_err(|e| format!("{}: {e}", buffers.display()))?;
        for cpu in cpus.flatten() {
            let path = cpu.path().join("trace_pipe_raw");
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            let file = File::options()
                .read(true)
                .custom_flags(flags)
                .open(&path)
                .map_err(|e| format!("open {}: {e}", path.display()))?;
            let shared = Arc::clone(&self.shared);
            self.readers
                .push(std::thread::spawn(move || read(file, &shared)));
        }
        Ok(())
    }

    /// Ends tracing and returns what was seen.
    #[must_use]
    pub fn finish(mut self) -> Requests {
        self.stop();
        let mut lost = 0;
        for cpu in fs::read_dir(self.instance.join("per_cpu"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let stats = fs::read_to_string(cpu.path().join("stats")).unwrap_or_default();
            let overrun = stats
                .lines()
                .find_map(|l| l.strip_prefix("overrun:")?.trim().parse::<u64>().ok());
            lost += overrun.unwrap_or(0);
        }
        let mut join = self
            .shared
            .join
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        join.lost += lost;
        join.requests(&self.shared.send.symbols)
    }

    fn stop(&mut self) {
        for event in EVENTS {
            let _ = put(
                &self.instance.join("events/fuse").join(event).join("enable"),
                "0",
            );
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.stop();
        if let Err(error) = fs::remove_dir(&self.instance) {
            eprintln!("bickford eval: remove {}: {error}", self.instance.display());
        }
    }
}

/// Reads one CPU's buffer until tracing has stopped and it is empty.
fn read(mut file: File, shared: &Shared) {
    // A page of the buffer is one of memory; the kernel hands out whole ones.
    let mut page = vec![0; rustix::param::page_size()];
    loop {
        let stopping = shared.stop.load(Ordering::Relaxed);
        match file.read(&mut page) {
            Ok(count) if count > 0 => shared.page(page.get(..count).unwrap_or_default()),
            Err(error)
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            _ if stopping => return,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: fuse_request_send
ID: 1293
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:uint64_t unique;\toffset:16;\tsize:8;\tsigned:0;
\tfield:enum fuse_opcode opcode;\toffset:24;\tsize:4;\tsigned:0;

print fmt: \"x %u\", __print_symbolic(REC->opcode, {1, \"FUSE_LOOKUP\"}, {15, \"FUSE_READ\"})
";

    #[test]
    fn a_format_gives_places_and_names() {
        let format = Format::parse(TEXT);
        assert_eq!(format.id, 1293);
        assert_eq!(format.offsets.get("unique"), Some(&16));
        assert_eq!(format.offsets.get("opcode"), Some(&24));
        assert_eq!(format.symbols.get(&15).map(String::as_str), Some("READ"));
        let mut payload = vec![0; 32];
        payload[16] = 7;
        assert_eq!(format.long(&payload, "unique"), Some(7));
        assert_eq!(format.long(&payload[..20], "unique"), None);
    }

    #[test]
    fn halves_are_joined_in_any_order() {
        let mut join = Join::default();
        join.send(1, 1000, 15);
        join.end(1, 3000, 0);
        join.end(2, 9000, -2);
        join.send(2, 8000, 1);
        join.send(3, 10, 15);
        let requests = join.requests(&Format::parse(TEXT).symbols);
        assert_eq!(
            (requests.total(), requests.errors, requests.unanswered),
            (2, 1, 1)
        );
        let read = requests.by_opcode.iter().find(|o| o.op == "READ").unwrap();
        assert!((read.mean_us - 2.0).abs() < 0.05, "{}", read.mean_us);
        assert!((requests.total_s() - 3e-6).abs() < 1e-7);
    }
}
