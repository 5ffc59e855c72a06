//! The stages of requests, as kernel and library tell them, against what their caller waited.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bickford::trace::control::{EventReader, socket_path};
use bickford::trace::kernel::Tracepoints;

use super::sum::{Request, Served, StageSum, Told, add_up};
use super::{Check, Findings};
use crate::engine::Block;
use crate::target::{Config, PRESETS, Target};

/// How often an operation is done; half as many before go uncounted.
const OPERATIONS: u32 = 4_000;
/// How long all of one kind may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// After so many tenths of a second without an event the daemon has told everything.
const QUIET: u32 = 10;

/// Below the mount, for the operation that reads.
const DATA: &str = "data";
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256;

/// Does one operation, by its number.
type Operation = Box<dyn FnMut(u32) -> io::Result<()>>;

/// Prepares for so many operations below a directory, with names that begin with a word.
type Prepare = fn(&Path, &str, u32) -> io::Result<Operation>;

/// A kind of operation: what it is called, and what options its mount gets.
struct Kind {
    name: &'static str,
    options: &'static str,
    prepare: Prepare,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "stat of a missing name",
        options: "",
        prepare: |root, word, count| on_names(root, word, count, stat_missing),
    },
    Kind {
        name: "mkdir",
        options: "",
        prepare: |root, word, count| on_names(root, word, count, |path| std::fs::create_dir(path)),
    },
    Kind {
        name: "symlink",
        options: "",
        prepare: |root, word, count| on_names(root, word, count, symlink),
    },
    Kind {
        // Otherwise the kernel reads ahead, or passes reads through, and there is nothing to add up.
        name: "read of 4 KiB",
        options: "--io direct",
        prepare: |root, _, _| {
            let file = File::open(root.join(DATA))?;
            // At the beginning of a page: across two it would be two requests of the preset base.
            let mut block = Block::new(BLOCK as usize);
            Ok(Box::new(move |number| {
                file.read_exact_at(&mut block, u64::from(number) % BLOCKS * BLOCK)
            }))
        },
    },
];

fn on_names(
    root: &Path,
    word: &str,
    count: u32,
    run: fn(&Path) -> io::Result<()>,
) -> io::Result<Operation> {
    // Made before, so that making them is not in what the caller waits.
    let names: Vec<PathBuf> = (0..count)
        .map(|number| root.join(format!("{word}{number}")))
        .collect();
    Ok(Box::new(move |number| {
        let path = names
            .get(number as usize)
            .ok_or(io::ErrorKind::InvalidInput)?;
        run(path)
    }))
}

fn stat_missing(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("it exists")),
    }
}

fn symlink(path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink("x", path)
}

pub(super) fn check(check: &Check<'_>, findings: &mut Findings) {
    for preset in PRESETS {
        for kind in &KINDS {
            if check.stopped() {
                findings.problems.push("stages: interrupted".into());
                return;
            }
            match one(check, preset, kind) {
                Ok(sum) => findings.stages.push(sum),
                Err(error) => findings
                    .problems
                    .push(format!("stages of {}, {preset}: {error}", kind.name)),
            }
        }
    }
}

fn one(check: &Check<'_>, preset: &str, kind: &Kind) -> Result<StageSum, String> {
    check.device.remake()?;
    let data = check.device.data().join(DATA);
    std::fs::write(&data, vec![7; (BLOCK * BLOCKS) as usize])
        .map_err(|error| format!("{}: {error}", data.display()))?;
    let mut config = Config::preset(preset, &check.bickford)?;
    config.command = config
        .command
        .map(|command| format!("{command} {}", kind.options));
    let point = check.work.join("mnt");
    let log = check.work.join("log");
    let target = Target::mount(&config, check.device.data(), &point, &log, None, check.stop)?;
    let connection = target.connection().ok_or("it is no FUSE mount");
    let measured = connection.map_err(str::to_owned).and_then(|connection| {
        let caller = |word| Caller::start(target.directory(), word, kind.prepare, OPERATIONS);
        // The first requests take longer, and are not what is asked for.
        let mut warm = Caller::start(target.directory(), "w", kind.prepare, OPERATIONS / 2)?;
        released(&target, warm.run())?;
        released(&target, measure(connection, caller("c")?))
    });
    let unmounted = target.unmount();
    let told = measured?;
    unmounted.and_then(|told| told.map_or(Ok(()), Err))?;
    add_up(preset, kind.name, told)
}

/// Where something hangs, the mount lets it go.
fn released<T>(target: &Target, result: Result<T, String>) -> Result<T, String> {
    result.inspect_err(|_| target.release())
}

/// When each operation began and was over.
type Spans = Vec<(u64, u64)>;

/// Lets the caller do its operations, and tells all that was told of them.
fn measure(connection: u32, mut caller: Caller) -> Result<Told, String> {
    crate::measure::tracepoints::provide_tracefs()?;
    let mut tracepoints = Tracepoints::open(Some(connection)).map_err(|e| e.to_string())?;
    tracepoints
        .watch(caller.thread)
        .map_err(|e| format!("follow the caller: {e}"))?;
    let socket = socket_path(connection);
    let reader = EventReader::connect(&socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let served = std::thread::spawn(move || collect(reader, &told));
    // The daemon begins to collect when it has read what the socket was sent.
    std::thread::sleep(Duration::from_millis(500));
    let spans = caller.run();
    over.store(true, Ordering::Relaxed);
    let served = served.join().map_err(|_| "the reader of events panicked")?;
    tracepoints.stop().map_err(|e| e.to_string())?;
    let mut requests = Vec::new();
    loop {
        let ended = tracepoints
            .take(Duration::ZERO)
            .map_err(|e| e.to_string())?;
        if ended.is_empty() {
            break;
        }
        let own = ended.iter().filter(|request| request.pid == caller.thread);
        requests.extend(own.map(|request| Request {
            unique: request.unique,
            sent_ns: request.sent_ns,
            ended_ns: request.ended_ns,
        }));
    }
    if tracepoints.lost() > 0 {
        return Err(format!(
            "{} events of the kernel were lost",
            tracepoints.lost()
        ));
    }
    Ok(Told {
        spans: spans?,
        requests,
        served: served?,
        steps: tracepoints.take_steps(),
    })
}

/// Every event until all is over and the daemon has told everything.
fn collect(mut reader: EventReader, over: &AtomicBool) -> Result<HashMap<u64, Served>, String> {
    let mut served = HashMap::new();
    let mut quiet = 0;
    loop {
        match reader.next_event().map_err(|e| format!("events: {e}"))? {
            Some(event) => {
                quiet = 0;
                let times = Served {
                    received_ns: event.received,
                    decoded_ns: event.decoded,
                    handled_ns: event.handled,
                };
                served.insert(event.unique, times);
            }
            // A busy machine may hold the daemon up for longer than one wait.
            None if over.load(Ordering::Relaxed) && quiet >= QUIET => break,
            None => quiet += 1,
        }
    }
    if reader.dropped > 0 {
        return Err(format!("the daemon dropped {} events", reader.dropped));
    }
    Ok(served)
}

/// A thread that does operations when it is told to. It may hang: whoever waits for it does so for a
/// limited time.
struct Caller {
    thread: u32,
    begin: Option<Sender<()>>,
    done: Receiver<Result<Spans, String>>,
}

impl Caller {
    fn start(
        root: &Path,
        word: &'static str,
        prepare: Prepare,
        count: u32,
    ) -> Result<Self, String> {
        let root = root.to_owned();
        let (tell_thread, thread) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let (tell, done) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = tell_thread.send(rustix::thread::gettid().as_raw_nonzero().get());
            if begun.recv().is_ok() {
                let spans = operations(&root, word, prepare, count);
                let _ = tell.send(spans);
            }
        });
        let thread = thread
            .recv()
            .map_err(|_| "the thread of the caller ended at once")?;
        Ok(Self {
            thread: thread.unsigned_abs(),
            begin: Some(begin),
            done,
        })
    }

    fn run(&mut self) -> Result<Spans, String> {
        if let Some(begin) = self.begin.take() {
            let _ = begin.send(());
        }
        match self.done.recv_timeout(PATIENCE) {
            Ok(spans) => spans,
            Err(_) => Err(format!("not done within {} s", PATIENCE.as_secs())),
        }
    }
}

fn operations(root: &Path, word: &str, prepare: Prepare, count: u32) -> Result<Spans, String> {
    let failed = |error: io::Error| format!("{}: {error}", root.display());
    let mut run = prepare(root, word, count).map_err(failed)?;
    let mut spans = Vec::with_capacity(count as usize);
    for number in 0..count {
        let begun = monotonic();
        run(number).map_err(failed)?;
        spans.push((begun, monotonic()));
    }
    Ok(spans)
}

/// Nanoseconds of the clock that the tracepoints have too.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use bickford::mount::{MountOptions, Unmount};
    use bickford::ops::{Attr, Attributes, Getattr};
    use bickford::{Blocking, Context, MountedSession, Session, SessionConfig};

    use super::*;

    const COUNT: u32 = 8;
    const DELAY: Duration = Duration::from_millis(50);

    /// A root without names.
    struct Empty;

    impl bickford::filesystem::blocking::FileSystem for Empty {
        fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, bickford::Errno> {
            Ok(Attributes {
                attr: Attr::directory(op.node.0, 0o755),
                valid: Duration::from_secs(3600),
            })
        }

        fn lookup(
            &self,
            _: &Context<'_>,
            _: bickford::ops::Lookup<'_>,
        ) -> Result<bickford::ops::Entry, bickford::Errno> {
            Err(bickford::Errno::NOENT)
        }
    }

    fn mount(point: &Path) -> Option<MountedSession> {
        if !rustix::process::geteuid().is_root()
            || crate::measure::tracepoints::provide_tracefs().is_err()
        {
            crate::terminal::warn("skipped: mounting and tracing need root and tracefs");
            return None;
        }
        if let Err(error) = Tracepoints::open(None) {
            crate::terminal::warn(&format!("left out: {error}"));
            return None;
        }
        let options = MountOptions::new().fsname("bickford-test");
        Some(Session::mount(Blocking(Empty), point, &options, SessionConfig::default()).unwrap())
    }

    /// What the stages of a few operations add up to.
    fn stages(prepare: Prepare) -> Option<StageSum> {
        let directory = tempfile::tempdir().unwrap();
        let session = mount(directory.path())?;
        let connection = session.connection().unwrap();
        let control = session.serve_control().unwrap();
        let caller = Caller::start(directory.path(), "c", prepare, COUNT).unwrap();
        let told = measure(connection, caller);
        if told.is_err() {
            // The caller may hang in it.
            crate::host::mounts::abort(connection).unwrap();
        }
        drop(control);
        session.unmount(Unmount::Lazy).unwrap();
        session.wait();
        Some(add_up("test", "stat", told.unwrap()).unwrap())
    }

    #[test]
    fn every_stage_is_told_and_none_twice() {
        let Some(sum) = stages(|root, word, count| on_names(root, word, count, stat_missing))
        else {
            return;
        };
        assert!(sum.requests_per_operation >= 1.0, "{sum:?}");
        for stage in [
            sum.calling_us,
            sum.queued_us,
            sum.decode_us,
            sum.handler_us,
            sum.reply_us,
        ] {
            assert!(stage > 0.0, "{sum:?}");
        }
        assert!(sum.sum_us <= sum.waited_us * 1.01, "{sum:?}");
    }

    #[test]
    fn a_delay_of_the_callers_own_makes_the_check_fail() {
        let delayed: Prepare = |root, word, count| {
            on_names(root, word, count, |path| {
                std::thread::sleep(DELAY);
                stat_missing(path)
            })
        };
        let Some(sum) = stages(delayed) else {
            return;
        };
        let missing = sum.waited_us - sum.sum_us;
        // The kernel may hold the caller up on its way to sleep, which is told.
        assert!(missing > DELAY.as_secs_f64() * 1e6 / 2.0, "{sum:?}");
        assert!(sum.failure().is_some(), "{sum:?}");
    }
}
