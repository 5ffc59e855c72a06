//! `bickford trace`.

mod filter;
mod output;
mod print;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, LineWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford::trace::control::{self, EventReader};
use bickford::trace::kernel::{KernelRequest, SystemCalls, Tracepoints};
use bickford::trace::{Event, Snapshot};
use bickford_program::terminal::printable;
use rustix::process::Pid;

use self::filter::Filter;
use self::output::Output;
use self::print::{Format, Open, Printer, Request};
use super::target::Target;
use crate::cli::Failure;

/// Show each request of a FUSE mount as it ends, with the time it spent in every stage, and at the
/// end those without an answer.
///
/// The kernel's tracepoints are used (Linux 6.12), so that it works for any daemon. Needs root and tracefs. The
/// mount itself is not touched, and nothing stays enabled afterwards. Pass-through I/O makes no
/// requests; FORGET and INTERRUPT have no tracepoints. Linux 6.12 does not tell which answer is to which request: they
/// are joined by their order, and of several under way at once the times and errors may be those of another.
///
/// Where bickford serves the mount, its own times are joined, in microseconds: "queued" until the
/// daemon has the request, "decode" in the library before the handler, "handler", and "reply" from
/// the handler's answer until the kernel has ended the request. Waiting in the queue and being
/// transported to the daemon are one stage, because the kernel has no tracepoint between them. I/O
/// of a pass-through file system on the lower one is part of "handler", and told by --lower-io; data of a
/// READ that are given as a range of a lower file are read in "reply".
///
/// Requests without an answer are told with their age and, by a daemon of ours, whether it has
/// them; it also tells of those that were sent before tracing began, at once and at the end. Of
/// other daemons only the number of such requests is known.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these requests, such as LOOKUP,READ
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = opcode)]
    opcode: Vec<Opcode>,
    /// Only requests that took, or have been open for, at least this many microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    slower_than: u64,
    /// Only requests of this thread, or of any thread of this process
    ///
    /// Whose a thread is, is looked up in /proc when its request is read: one that has ended by then
    /// is known by its own number only. What the kernel sends by itself (read-ahead, write-back) is
    /// of the thread that sent it.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Tell for how much of "handler" the daemon's thread was in system calls
    ///
    /// In a pass-through file system that is I/O on the lower one. Waiting for other threads (futex) is
    /// left out, and so are requests that another thread than the handler's answered. Meanwhile system
    /// calls of the whole machine take a little longer. The daemon has to be in this PID namespace.
    #[arg(long)]
    lower_io: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// End after this many requests have ended
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT", value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,
}

fn opcode(name: &str) -> Result<Opcode, String> {
    let found = Opcode::ALL
        .iter()
        .find(|opcode| opcode.name().eq_ignore_ascii_case(name));
    found
        .copied()
        .ok_or_else(|| format!("no request is called {name:?}; LOOKUP, READ and so on are"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let target = Target::find(&arguments.mountpoint)?;
    let fail = |error: io::Error| Failure::new(format!("trace: {error}"));
    // Each would end this process with tracing enabled.
    let stop = bickford_program::signals::stop_on_signals().map_err(fail)?;
    let connect = |path: &Path| {
        let mut reader = EventReader::connect(path)?;
        reader.set_patience(EVENT_WAIT).map(|()| reader)
    };
    let events = match target.ask(connect) {
        Ok(reader) => Some(reader),
        Err(reason) => {
            note(&format!("the daemon's own times are left out: {reason}"));
            None
        }
    };
    let daemon = target.daemon();
    let waiting_before = target.connection().waiting.unwrap_or(0);
    let mut tracepoints = Tracepoints::open(Some(target.connection)).map_err(fail)?;
    tracepoints.name_callers();
    let duration = arguments.duration.map(Duration::from_secs);
    let patience = duration.map_or(BEGIN_PATIENCE, |most| most.min(BEGIN_PATIENCE));
    let calls = arguments
        .lower_io
        .then(|| follow_daemon(&target, patience))
        .flatten();
    let mut tracer = Tracer {
        ours: events.is_some(),
        daemon,
        waiting_before,
        target: Arc::new(target),
        filter: Filter {
            opcodes: arguments.opcode.clone(),
            slower_than_us: arguments.slower_than,
            pid: arguments.pid,
        },
        tracepoints,
        events,
        calls,
        known: HashMap::new(),
        order: VecDeque::new(),
        waiting: VecDeque::new(),
        left: arguments.count.unwrap_or(u64::MAX),
        first_sent: u64::MAX,
        expected: HashSet::new(),
        silent: false,
        ended: false,
        looked: Instant::now(),
    };
    let output = LineWriter::new(Output::new(&stop));
    let traced = Printer::begin(arguments.format, output).and_then(|mut printer| {
        tracer.run(duration, patience, &stop, &mut printer)?;
        printer.end()
    });
    tracer.report_lost();
    match traced {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(fail(error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Not eprintln, which panics when the terminal is gone.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "bickford: {}", printable(text));
}

/// The system calls of the daemon, where it is one of ours.
fn follow_daemon(target: &Target, patience: Duration) -> Option<SystemCalls> {
    let snapshot = target.ask(|path| control::snapshot_within(path, patience));
    let calls = snapshot.and_then(|snapshot| match target.daemon_number() {
        Some(pid) if pid == snapshot.pid => SystemCalls::of(pid).map_err(|error| error.to_string()),
        here => Err(format!(
            "the daemon is in another PID namespace, where its threads have other numbers than in this one (it is \
             process {} there and {} here)",
            snapshot.pid,
            here.map_or("unknown".to_owned(), |pid| pid.to_string())
        )),
    });
    calls
        .inspect_err(|reason| note(&format!("--lower-io is left out: {reason}")))
        .ok()
}

/// Nanoseconds of the clock that the tracepoints have.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

struct Tracer {
    target: Arc<Target>,
    /// Whether a daemon of ours serves the mount.
    ours: bool,
    /// Its process.
    daemon: Option<Pid>,
    /// How many requests had no answer when tracing began.
    waiting_before: u64,
    filter: Filter,
    tracepoints: Tracepoints,
    events: Option<EventReader>,
    /// The daemon's system calls, if they are asked for.
    calls: Option<SystemCalls>,
    known: HashMap<u64, Event>,
    order: VecDeque<u64>,
    /// Requests that have ended and are not printed yet, and since when.
    waiting: VecDeque<(Instant, KernelRequest)>,
    /// How many may still be printed.
    left: u64,
    /// The least number that was read. Numbers rise: any below was sent before tracing began.
    first_sent: u64,
    /// Requests from before that the daemon told of.
    expected: HashSet<u64>,
    /// Whether the daemon did not answer.
    silent: bool,
    /// Whether the daemon of ours has ended.
    ended: bool,
    /// When the mount was last looked for.
    looked: Instant,
}

/// Events of the daemon that wait for the kernel's line; the oldest are dropped.
const KNOWN_MAX: usize = 65_536;
/// How long a request of the kernel waits for the daemon's event.
const JOIN_WAIT: Duration = Duration::from_millis(300);
/// How long events are collected before the kernel's are looked at again: they may come without a pause.
const COLLECT_MAX: Duration = Duration::from_millis(50);
/// How often it is looked whether the mount is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const EVENT_WAIT: Duration = Duration::from_millis(1);
/// How long the daemon may take to tell what it has, at the beginning and at the end.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);
const END_PATIENCE: Duration = Duration::from_secs(1);

impl Tracer {
    fn run<W: Write>(
        &mut self,
        duration: Option<Duration>,
        patience: Duration,
        stop: &AtomicBool,
        printer: &mut Printer<W>,
    ) -> io::Result<()> {
        let until = duration.and_then(|duration| Instant::now().checked_add(duration));
        self.begin(patience, stop, printer)?;
        // Without an end that was asked for there is time to ask again.
        self.silent &= duration.is_some();
        while self.left > 0 {
            let ending =
                stop.load(Ordering::SeqCst) || until.is_some_and(|at| Instant::now() >= at);
            self.collect();
            let idle = self.waiting.is_empty();
            self.read(Duration::from_millis(if idle { 100 } else { 10 }))?;
            self.collect();
            self.print_ended(ending, printer)?;
            if ending || self.has_gone() {
                break;
            }
        }
        self.finish(printer)
    }

    /// Whether there is nothing left to trace; then it is said.
    fn has_gone(&mut self) -> bool {
        if !self.ended && self.looked.elapsed() < LOOK_AGAIN {
            return false;
        }
        self.looked = Instant::now();
        // One that is ending may hang up before it stops to listen, and one without events tells nothing.
        let is_told = self.events.is_some() || self.daemon.is_none();
        self.ended |= !is_told && !self.is_same_daemon();
        let place = self.target.mounted_at();
        let mounted = place.is_some();
        let mountpoint = place.as_ref().unwrap_or(&self.target.mountpoint).display();
        if !mounted {
            note(&format!("{mountpoint} has been unmounted"));
        } else if self.ended && self.target.listens() {
            note(&format!(
                "{mountpoint} has been mounted anew: trace it again"
            ));
        } else if self.ended {
            note(&format!(
                "the daemon of {mountpoint} has ended: 'bickford unmount {mountpoint}' takes away what is left of the mount"
            ));
        }
        !mounted || self.ended
    }

    /// The number of a connection is used again at once, by another daemon. Which one it is, is not known where
    /// too many wait to be accepted.
    fn is_same_daemon(&self) -> bool {
        let daemon = self.target.daemon();
        (daemon.is_none() || daemon == self.daemon) && self.target.listens()
    }

    fn read(&mut self, pause: Duration) -> io::Result<()> {
        let ended = self.tracepoints.take(pause)?;
        self.take_in(ended);
        Ok(())
    }

    /// Keeps those that are wanted until they are printed.
    fn take_in(&mut self, mut ended: Vec<KernelRequest>) {
        let sent = ended.iter().filter(|request| !request.before);
        let least = sent.map(|request| request.unique).min();
        self.first_sent = self.first_sent.min(least.unwrap_or(u64::MAX));
        self.filter.keep(&mut ended, KernelRequest::duration_ns);
        // Each CPU tells its own.
        ended.sort_by_key(|request| request.ended_ns);
        let now = Instant::now();
        self.waiting
            .extend(ended.into_iter().map(|request| (now, request)));
    }

    fn print_ended<W: Write>(&mut self, ending: bool, printer: &mut Printer<W>) -> io::Result<()> {
        if let Some(calls) = &mut self.calls {
            calls.read()?;
        }
        while self.left > 0
            && let Some((since, kernel)) = self.waiting.front()
        {
            let daemon = self.known.remove(&kernel.unique);
            let joins = self.events.is_some() && daemon.is_none();
            if joins && since.elapsed() < JOIN_WAIT && !ending {
                break;
            }
            let Some((_, kernel)) = self.waiting.pop_front() else {
                break;
            };
            self.left -= 1;
            let lower_ns = daemon.as_ref().and_then(|event: &Event| {
                let calls = self.calls.as_ref()?;
                calls.within(event.thread, event.decoded, event.handled)
            });
            printer.print(&Request {
                kernel,
                daemon,
                lower_ns,
                open: None,
            })?;
        }
        Ok(())
    }

    /// Tells what is open already.
    fn begin<W: Write>(
        &mut self,
        patience: Duration,
        stop: &AtomicBool,
        printer: &mut Printer<W>,
    ) -> io::Result<()> {
        if self.ask_daemon(patience, Some(stop))?.is_none() {
            if self.waiting_before > 0 {
                let count = self.waiting_before;
                note(&format!(
                    "requests sent before tracing began that had no answer then: {count}; only their number is known"
                ));
            }
            return Ok(());
        }
        if printer.tells_changes() {
            let mut open = self.tracepoints.open_requests();
            open.retain(|request| request.before);
            self.print_open(open, |_| Some(true), printer)?;
        }
        Ok(())
    }

    /// Tells what has no answer.
    fn finish<W: Write>(&mut self, printer: &mut Printer<W>) -> io::Result<()> {
        let received = if self.ended || self.silent {
            None
        } else {
            self.ask_daemon(END_PATIENCE, None)?
        };
        self.collect();
        self.drain(printer)?;
        let open = self.tracepoints.open_requests();
        let has = |unique| received.as_ref().map(|received| received.contains(&unique));
        self.print_open(open, has, printer)
    }

    /// Tells what the kernel has still to tell, and no more.
    fn drain<W: Write>(&mut self, printer: &mut Printer<W>) -> io::Result<()> {
        self.tracepoints.stop()?;
        loop {
            self.print_ended(true, printer)?;
            let ended = self.tracepoints.take(Duration::ZERO)?;
            if ended.is_empty() {
                return Ok(());
            }
            self.waiting.clear();
            self.take_in(ended);
        }
    }

    fn print_open<W: Write>(
        &self,
        mut open: Vec<KernelRequest>,
        received: impl Fn(u64) -> Option<bool>,
        printer: &mut Printer<W>,
    ) -> io::Result<()> {
        let at_ns = now_ns();
        self.filter
            .keep(&mut open, |request| at_ns.saturating_sub(request.sent_ns));
        let lost = self.tracepoints.lost() > 0;
        for kernel in open {
            let open = Open::new(at_ns, received(kernel.unique), lost);
            printer.print(&Request {
                kernel,
                daemon: None,
                lower_ns: None,
                open: Some(open),
            })?;
        }
        Ok(())
    }

    /// Asks a daemon of ours which requests it has, and takes in those from before tracing began.
    fn ask_daemon(
        &mut self,
        patience: Duration,
        stop: Option<&AtomicBool>,
    ) -> io::Result<Option<HashSet<u64>>> {
        if !self.ours {
            return Ok(None);
        }
        let snapshot = match ask(&self.target, patience, stop) {
            Ok(snapshot) => snapshot,
            Err(reason) => {
                self.silent = true;
                let stopped = stop.is_some_and(|stop| stop.load(Ordering::SeqCst));
                if !stopped {
                    note(&format!(
                        "which requests the daemon has is not known: {reason}"
                    ));
                }
                return Ok(None);
            }
        };
        // Before what the daemon says is looked at: what has ended meanwhile is open no more.
        let ended = self.tracepoints.take(Duration::ZERO)?;
        let over: HashSet<u64> = ended.iter().map(|request| request.unique).collect();
        self.take_in(ended);
        let sent = self.tracepoints.unanswered().filter(|open| !open.before);
        let least = sent.map(|open| open.unique).min();
        self.first_sent = self.first_sent.min(least.unwrap_or(u64::MAX));
        for row in &snapshot.in_flight {
            let before = row.unique < self.first_sent && !over.contains(&row.unique);
            if before && self.expected.insert(row.unique) {
                let ended = self.tracepoints.expect(self.target.connection, row);
                self.take_in(ended.into_iter().collect());
            }
        }
        Ok(Some(
            snapshot.in_flight.iter().map(|row| row.unique).collect(),
        ))
    }

    /// Takes the daemon's events that have arrived.
    fn collect(&mut self) {
        let Some(reader) = &mut self.events else {
            return;
        };
        let end = Instant::now() + COLLECT_MAX;
        while Instant::now() < end {
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
                    // Reset where it had not read what it was asked.
                    use io::ErrorKind::{ConnectionReset, UnexpectedEof};
                    let hung_up = matches!(error.kind(), UnexpectedEof | ConnectionReset);
                    self.ended = hung_up && !self.is_same_daemon();
                    if !self.ended {
                        note(&format!("the daemon's own times end here: {error}"));
                    }
                    self.events = None;
                    return;
                }
            }
        }
    }

    fn report_lost(&self) {
        let events = self.events.as_ref().map_or(0, |events| events.dropped);
        let calls = self.calls.as_ref().map_or(0, SystemCalls::lost);
        let lost = (self.tracepoints.lost() + calls).saturating_add(events);
        if lost > 0 {
            note(&format!(
                "{lost} events were lost: requests came faster than they were read"
            ));
        }
    }
}

/// In a thread of its own, so that a daemon that does not answer does not keep from stopping.
fn ask(
    target: &Arc<Target>,
    patience: Duration,
    stop: Option<&AtomicBool>,
) -> Result<Snapshot, String> {
    let (tell, hear) = mpsc::channel();
    let asked = Arc::clone(target);
    std::thread::spawn(move || {
        tell.send(asked.ask(|path| control::snapshot_within(path, patience)))
    });
    loop {
        match hear.recv_timeout(Duration::from_millis(50)) {
            Ok(answer) => return answer,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err("asking it failed".into()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
                    return Err("interrupted".into());
                }
            }
        }
    }
}
