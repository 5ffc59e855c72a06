//! `bickford trace`.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford::trace::Event;
use bickford::trace::control::EventReader;
use bickford::trace::kernel::{KernelRequest, Tracepoints};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::target::Target;
use crate::cli::Failure;

/// Show each request of a FUSE mount as it ends, with the time it spent in every stage.
///
/// The kernel's tracepoints are used, so that it works for any daemon; where bickford serves the
/// mount, its own times are joined. Needs root and tracefs. The mount itself is not touched, and
/// nothing stays enabled afterwards. Pass-through I/O makes no requests.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these requests, such as LOOKUP,READ
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = opcode)]
    opcode: Vec<Opcode>,
    /// Only requests that took at least this many microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    slower_than: u64,
    /// Only requests of this thread
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// End after this many requests
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT", value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each request
    Text,
    /// A JSON object for each request
    Json,
    /// For chrome://tracing and Perfetto
    Chrome,
}

fn opcode(name: &str) -> Result<Opcode, String> {
    let found = Opcode::ALL
        .iter()
        .find(|opcode| opcode.name().eq_ignore_ascii_case(name));
    found
        .copied()
        .ok_or_else(|| format!("no request is called {name:?}; LOOKUP, READ and so on are"))
}

/// The kernel's view of a request, and the daemon's where it is known.
struct Request {
    kernel: KernelRequest,
    daemon: Option<Event>,
}

impl Request {
    fn total_us(&self) -> f64 {
        self.kernel.duration_ns() as f64 / 1e3
    }

    /// Microseconds queued and in transport, in the library, in the handler, and in sending.
    fn stages(&self) -> Option<[f64; 4]> {
        let event = self.daemon.as_ref()?;
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        Some([
            us(self.kernel.sent_ns, event.received),
            us(event.received, event.decoded),
            us(event.decoded, event.handled),
            us(event.handled, event.sent),
        ])
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let target = Target::find(&arguments.mountpoint)?;
    let fail = |error: io::Error| Failure::new(format!("trace: {error}"));
    let stop = Arc::new(AtomicBool::new(false));
    // Each would end this process with tracing enabled.
    for signal in [SIGINT, SIGTERM, SIGQUIT, SIGHUP] {
        if signal != SIGHUP || !hangup_is_ignored() {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(fail)?;
        }
    }
    let events = match target.ask(EventReader::connect) {
        Ok(reader) => Some(reader),
        Err(reason) => {
            eprintln!("bickford: the daemon's own times are left out: {reason}");
            None
        }
    };
    let mut tracepoints = Tracepoints::open(Some(target.connection)).map_err(fail)?;
    tracepoints.name_callers();
    let mut tracer = Tracer {
        arguments,
        tracepoints,
        events,
        known: HashMap::new(),
        order: VecDeque::new(),
    };
    let mut out = io::stdout().lock();
    match tracer.run(&stop, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(fail(error)),
        _ => {
            tracer.epilogue();
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whether it was started with nohup(1).
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

struct Tracer<'a> {
    arguments: &'a Arguments,
    tracepoints: Tracepoints,
    events: Option<EventReader>,
    known: HashMap<u64, Event>,
    order: VecDeque<u64>,
}

/// Events of the daemon that wait for the kernel's line; the oldest are dropped.
const KNOWN_MAX: usize = 65_536;
/// How long a request of the kernel waits for the daemon's event.
const JOIN_WAIT: Duration = Duration::from_millis(300);

impl Tracer<'_> {
    fn run(&mut self, stop: &AtomicBool, out: &mut impl Write) -> io::Result<()> {
        let until = self
            .arguments
            .duration
            .map(|s| Instant::now() + Duration::from_secs(s));
        let mut left = self.arguments.count.unwrap_or(u64::MAX);
        let mut waiting: VecDeque<(Instant, KernelRequest)> = VecDeque::new();
        let mut first = true;
        if self.arguments.format == Format::Chrome {
            writeln!(out, "[")?;
        }
        while left > 0 {
            let ending =
                stop.load(Ordering::SeqCst) || until.is_some_and(|at| Instant::now() >= at);
            self.collect();
            let now = Instant::now();
            let pause = Duration::from_millis(if waiting.is_empty() { 100 } else { 10 });
            waiting.extend(
                self.tracepoints
                    .take(pause)?
                    .into_iter()
                    .map(|request| (now, request)),
            );
            self.collect();
            while let Some((since, kernel)) = waiting.front() {
                let daemon = self.known.remove(&kernel.unique);
                let joins = self.events.is_some() && daemon.is_none();
                if joins && since.elapsed() < JOIN_WAIT && !ending {
                    break;
                }
                let Some((_, kernel)) = waiting.pop_front() else {
                    break;
                };
                let request = Request { kernel, daemon };
                if left > 0 && self.wanted(&request) {
                    self.print(&request, &mut first, out)?;
                    left -= 1;
                }
            }
            if ending {
                break;
            }
        }
        if self.arguments.format == Format::Chrome {
            writeln!(out, "\n]")?;
        }
        Ok(())
    }

    /// Takes the daemon's events that have arrived.
    fn collect(&mut self) {
        let Some(reader) = &mut self.events else {
            return;
        };
        for _ in 0..4_096 {
            match reader.next_event() {
                Ok(Some(event)) => {
                    self.order.push_back(event.unique);
                    self.known.insert(event.unique, event);
                    if self.order.len() > KNOWN_MAX
                        && let Some(oldest) = self.order.pop_front()
                    {
                        self.known.remove(&oldest);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    eprintln!("bickford: the daemon's own times end here: {error}");
                    self.events = None;
                    return;
                }
            }
        }
    }

    fn wanted(&self, request: &Request) -> bool {
        let opcodes = &self.arguments.opcode;
        let kind = Opcode::from_u32(request.kernel.opcode);
        (opcodes.is_empty() || kind.is_some_and(|kind| opcodes.contains(&kind)))
            && request.kernel.duration_ns() >= self.arguments.slower_than.saturating_mul(1_000)
            && self
                .arguments
                .pid
                .is_none_or(|pid| pid == request.kernel.pid)
    }

    fn print(&self, request: &Request, first: &mut bool, out: &mut impl Write) -> io::Result<()> {
        let kernel = &request.kernel;
        match self.arguments.format {
            Format::Text => {
                write!(
                    out,
                    "{:>16.6} {:<16} {:>10} {}-{} {:.1} us error {}",
                    kernel.sent_ns as f64 / 1e9,
                    kernel.name(),
                    kernel.unique,
                    kernel.comm,
                    kernel.pid,
                    request.total_us(),
                    kernel.error,
                )?;
                if let Some([queued, library, handler, send]) = request.stages() {
                    write!(
                        out,
                        ": queued {queued:.1}, decode {library:.1}, handler {handler:.1}, reply {send:.1}"
                    )?;
                }
                writeln!(out)
            }
            Format::Json => writeln!(out, "{}", self.object(request)),
            Format::Chrome => {
                let comma = if std::mem::take(first) { "" } else { ",\n" };
                let span = json!({
                    "name": kernel.name(), "cat": "fuse", "ph": "X", "ts": kernel.sent_ns as f64 / 1e3,
                    "dur": request.total_us(), "pid": kernel.connection, "tid": kernel.pid,
                    "args": self.object(request),
                });
                write!(out, "{comma}{span}")
            }
        }
    }

    fn object(&self, request: &Request) -> serde_json::Value {
        let kernel = &request.kernel;
        let stages = request.stages().map(|[queued, decode, handler, reply]| {
            json!({"queued": queued, "decode": decode, "handler": handler, "reply": reply})
        });
        json!({
            "connection": kernel.connection, "unique": kernel.unique, "opcode": kernel.name(),
            "comm": kernel.comm, "pid": kernel.pid, "sent_us": kernel.sent_ns as f64 / 1e3,
            "total_us": request.total_us(), "bytes_in": kernel.bytes_in,
            "bytes_out": kernel.bytes_out, "error": kernel.error, "stages_us": stages,
        })
    }

    /// What was not answered, and what was missed.
    fn epilogue(&self) {
        let mut open: Vec<_> = self.tracepoints.unanswered().collect();
        open.sort_by_key(|request| request.sent_ns);
        for request in open {
            eprintln!(
                "not answered: {} unique {} of {}-{}",
                request.name(),
                request.unique,
                request.comm,
                request.pid
            );
        }
        let lost =
            self.tracepoints.lost() + self.events.as_ref().map_or(0, |events| events.dropped);
        if lost > 0 {
            eprintln!("{lost} lines were lost: requests came faster than they were read");
        }
    }
}
