//! The stages of requests, as kernel and library tell them, against what their caller waited.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bickford::trace::Event;
use bickford::trace::control::{EventReader, socket_path};
use bickford::trace::kernel::{KernelRequest, Tracepoints};

use super::{Check, Findings, StageSum};
use crate::target::{Config, PRESETS, Target};

/// How often an operation is done; half as many before go uncounted.
const OPERATIONS: u32 = 4_000;
/// How long all of one kind may take.
const PATIENCE: Duration = Duration::from_secs(120);

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
    let (caller_us, requests, events) = measured?;
    unmounted?;
    let mut sum = StageSum {
        config: preset.to_owned(),
        operation,
        requests_per_operation: 0.0,
        queued_us: 0.0,
        decode_us: 0.0,
        handler_us: 0.0,
        reply_us: 0.0,
        kernel_us: 0.0,
        caller_us,
    };
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3 / f64::from(OPERATIONS);
    for request in &requests {
        let event = events
            .get(&request.unique)
            .ok_or("the daemon did not tell of every request")?;
        sum.requests_per_operation += 1.0 / f64::from(OPERATIONS);
        sum.queued_us += us(request.sent_ns, event.received);
        sum.decode_us += us(event.received, event.decoded);
        sum.handler_us += us(event.decoded, event.handled);
        sum.reply_us += us(event.handled, event.sent);
        sum.kernel_us += us(request.sent_ns, request.ended_ns);
    }
    if requests.is_empty() {
        return Err("no request was seen".into());
    }
    Ok(sum)
}

type Seen = (f64, Vec<KernelRequest>, HashMap<u64, Event>);

/// Does the operation, and tells what its caller waited on average, and every request with the daemon's
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
    let caller_us = caller(target, root, "c", OPERATIONS, run);
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
    Ok((caller_us?, requests, events?))
}

/// Every event until all is over and the daemon has told everything.
fn collect(mut reader: EventReader, over: &AtomicBool) -> Result<HashMap<u64, Event>, String> {
    let mut events = HashMap::new();
    loop {
        match reader.next_event().map_err(|e| format!("events: {e}"))? {
            Some(event) => {
                events.insert(event.unique, event);
            }
            None if over.load(Ordering::Relaxed) => break,
            None => {}
        }
    }
    if reader.dropped > 0 {
        return Err(format!("the daemon dropped {} events", reader.dropped));
    }
    Ok(events)
}

/// Mean time of one of `count` operations in microseconds, by a thread that may hang: then the mount is
/// released.
fn caller(
    target: &Target,
    root: PathBuf,
    prefix: &'static str,
    count: u32,
    run: Operation,
) -> Result<f64, String> {
    let (tell, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let paths: Vec<PathBuf> = (0..count)
            .map(|n| root.join(format!("{prefix}{n}")))
            .collect();
        let begun = Instant::now();
        let done = paths
            .iter()
            .try_for_each(|path| run(path).map_err(|error| format!("{}: {error}", path.display())));
        let us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(count);
        tell.send(done.map(|()| us))
    });
    match hear.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(_) => {
            target.release();
            Err(format!("not done within {} s", PATIENCE.as_secs()))
        }
    }
}
