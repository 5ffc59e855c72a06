//! The stages of requests, as kernel and library tell them, against what their caller waited.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bickford::trace::Event;
use bickford::trace::control::{EventReader, socket_path};
use bickford::trace::kernel::{KernelRequest, Tracepoints};

use super::{Check, Findings, StageSum};
use crate::target::{Config, PRESETS, Target};

/// How often an operation is done; half as many before go uncounted.
const OPERATIONS: u32 = 4_000;
/// How long all of one kind may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// After so many tenths of a second without an event the daemon has told everything.
const QUIET: u32 = 10;

/// One operation of the caller, on the name with a number.
type Operation = fn(&Path) -> std::io::Result<()>;

const KINDS: [(&str, Operation); 3] = [
    (
        "stat of a missing name",
        |path| match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(std::io::Error::other("it exists")),
        },
    ),
    ("mkdir", |path| std::fs::create_dir(path)),
    ("symlink", |path| std::os::unix::fs::symlink("x", path)),
];

pub(super) fn check(check: &Check<'_>, findings: &mut Findings) {
    for preset in PRESETS {
        for (operation, run) in KINDS {
            if check.stopped() {
                findings.problems.push("stages: interrupted".into());
                return;
            }
            match one(check, preset, operation, run) {
                Ok(sum) => findings.stages.push(sum),
                Err(error) => findings
                    .problems
                    .push(format!("stages of {operation}, {preset}: {error}")),
            }
        }
    }
}

fn one(
    check: &Check<'_>,
    preset: &str,
    operation: &'static str,
    run: Operation,
) -> Result<StageSum, String> {
    check.device.remake()?;
    let config = Config::preset(preset, &check.bickford)?;
    let point = check.work.join("mnt");
    let log = check.work.join("log");
    let target = Target::mount(&config, check.device.data(), &point, &log, None)?;
    let measured = measure(&target, run);
    let unmounted = target.unmount();
    let seen = measured?;
    unmounted?;
    add_up(preset, operation, seen)
}

/// Gives each request to the operation it came in, and adds up. Every stage is told by two clocks that
/// know nothing of each other where it begins and ends in different places: what they do not agree on
/// is missing from the sum, or too much in it.
fn add_up(preset: &str, operation: &'static str, seen: Seen) -> Result<StageSum, String> {
    let (spans, mut requests, events) = seen;
    requests.sort_by_key(|request| request.sent_ns);
    let mut sum = StageSum {
        config: preset.to_owned(),
        operation,
        requests_per_operation: 0.0,
        queued_us: 0.0,
        decode_us: 0.0,
        handler_us: 0.0,
        reply_us: 0.0,
        own_us: 0.0,
        waited_us: 0.0,
    };
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3 / f64::from(OPERATIONS);
    let mut requests = requests.iter().peekable();
    for (begun, over) in spans {
        let mut at = begun;
        while let Some(request) = requests.next_if(|request| request.sent_ns < over) {
            // Those nobody waits for, such as a RELEASE, end after or begin before.
            if request.sent_ns < begun || request.ended_ns > over {
                continue;
            }
            let event = events
                .get(&request.unique)
                .ok_or("the daemon did not tell of every request")?;
            sum.requests_per_operation += 1.0 / f64::from(OPERATIONS);
            sum.own_us += us(at, request.sent_ns);
            sum.queued_us += us(request.sent_ns, event.received);
            sum.decode_us += us(event.received, event.decoded);
            sum.handler_us += us(event.decoded, event.handled);
            sum.reply_us += us(event.handled, request.ended_ns);
            at = request.ended_ns;
        }
        sum.own_us += us(at, over);
        sum.waited_us += us(begun, over);
    }
    if sum.requests_per_operation == 0.0 {
        return Err("no request was seen".into());
    }
    Ok(sum)
}

/// When each operation began and was over.
type Spans = Vec<(u64, u64)>;
type Seen = (Spans, Vec<KernelRequest>, HashMap<u64, Event>);

/// Does the operation, and tells when its caller waited, and every request with the daemon's
/// times of it.
fn measure(target: &Target, run: Operation) -> Result<Seen, String> {
    let connection = target.connection().ok_or("it is no FUSE mount")?;
    let root = target.directory().to_owned();
    // The first requests take longer, and are not what is asked for.
    caller(target, root.clone(), "w", OPERATIONS / 2, run)?;
    crate::measure::tracepoints::provide_tracefs()?;
    let mut tracepoints = Tracepoints::open(Some(connection)).map_err(|e| e.to_string())?;
    let socket = socket_path(connection);
    let reader = EventReader::connect(&socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let events = std::thread::spawn(move || collect(reader, &told));
    // The daemon begins to collect when it has read what the socket was sent.
    std::thread::sleep(Duration::from_millis(500));
    let spans = caller(target, root, "c", OPERATIONS, run);
    over.store(true, Ordering::Relaxed);
    let events = events.join().map_err(|_| "the reader of events panicked")?;
    tracepoints.stop().map_err(|e| e.to_string())?;
    let mut requests = Vec::new();
    loop {
        let ended = tracepoints
            .take(Duration::ZERO)
            .map_err(|e| e.to_string())?;
        if ended.is_empty() {
            break;
        }
        requests.extend(ended);
    }
    if tracepoints.lost() > 0 {
        return Err(format!(
            "{} events of the kernel were lost",
            tracepoints.lost()
        ));
    }
    Ok((spans?, requests, events?))
}

/// Every event until all is over and the daemon has told everything.
fn collect(mut reader: EventReader, over: &AtomicBool) -> Result<HashMap<u64, Event>, String> {
    let mut events = HashMap::new();
    let mut quiet = 0;
    loop {
        match reader.next_event().map_err(|e| format!("events: {e}"))? {
            Some(event) => {
                quiet = 0;
                events.insert(event.unique, event);
            }
            // A busy machine may hold the daemon up for longer than one wait.
            None if over.load(Ordering::Relaxed) && quiet >= QUIET => break,
            None => quiet += 1,
        }
    }
    if reader.dropped > 0 {
        return Err(format!("the daemon dropped {} events", reader.dropped));
    }
    Ok(events)
}

/// Does the operation `count` times, in a thread that may hang: then the mount is released.
fn caller(
    target: &Target,
    root: PathBuf,
    prefix: &'static str,
    count: u32,
    run: Operation,
) -> Result<Spans, String> {
    let (tell, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let paths: Vec<PathBuf> = (0..count)
            .map(|n| root.join(format!("{prefix}{n}")))
            .collect();
        let done: Result<Spans, String> = paths
            .iter()
            .map(|path| {
                let begun = monotonic();
                run(path).map_err(|error| format!("{}: {error}", path.display()))?;
                Ok((begun, monotonic()))
            })
            .collect();
        tell.send(done)
    });
    match hear.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(_) => {
            target.release();
            Err(format!("not done within {} s", PATIENCE.as_secs()))
        }
    }
}

/// Nanoseconds of the clock that the tracepoints have too.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
