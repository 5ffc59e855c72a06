//! Runs a workload in WML: what Filebench would do with the same file, as far as the subset goes.
//!
//! Every flow operation counts one, as in Filebench; controls (`finishoncount`, `opslimit`) count
//! nothing. A set's files are taken in a random but repeatable order, each thread going round from a
//! place of its own, so that no file is met twice before all were.

mod block;
mod files;
mod gate;
mod thread;

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

pub(crate) use block::{Block, pattern};
pub(crate) use files::fill;
use files::{Pool, Tree};
use gate::Gate;
use hdrhistogram::Histogram;
use thread::Worker;

use crate::measure::{OpLatency, Work, histogram};
use crate::wml::{FileSet, Op, Thread, Workload};

/// Where operations go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// System calls.
    Posix,
    /// Nowhere: what remains is the engine's own cost.
    Null,
}

/// The seed of the order of files; prepare and run must agree on it.
const SEED: u64 = 17;

const OPS: [&str; 9] = [
    "createfile",
    "openfile",
    "writewholefile",
    "readwholefile",
    "appendfile",
    "closefile",
    "deletefile",
    "statfile",
    "fsync",
];

fn op_index(op: &Op) -> Option<usize> {
    Some(match op {
        Op::CreateFile { .. } => 0,
        Op::OpenFile { .. } => 1,
        Op::WriteWholeFile { .. } => 2,
        Op::ReadWholeFile { .. } => 3,
        Op::Append { .. } => 4,
        Op::CloseFile { .. } => 5,
        Op::DeleteFile { .. } => 6,
        Op::StatFile { .. } => 7,
        Op::Fsync { .. } => 8,
        Op::FinishOnCount { .. } | Op::OpsLimit => return None,
    })
}

/// Makes the files that exist before the run.
///
/// # Errors
/// A file or directory that could not be made, and why.
pub fn prepare(workload: &Workload, root: &Path) -> Result<(), String> {
    for set in &workload.filesets {
        files::prepare(set, root, SEED).map_err(|e| {
            format!(
                "prepare {} files of {} under {}: {e}",
                set.entries,
                set.name,
                root.display()
            )
        })?;
    }
    Ok(())
}

/// Bytes of the buffers of all threads.
pub(crate) fn buffers(workload: &Workload) -> u64 {
    let processes = workload.processes.iter().map(|process| {
        let threads = process.threads.iter();
        let bytes = threads.map(|t| thread::buffer_size(workload, t).saturating_mul(t.instances));
        let bytes = bytes.fold(0, u64::saturating_add);
        bytes.saturating_mul(process.instances)
    });
    processes.fold(0, u64::saturating_add)
}

/// What the threads of a run share.
struct Shared<'a> {
    workload: &'a Workload,
    root: &'a str,
    backend: Backend,
    trees: Vec<Tree>,
    pools: Vec<Pool>,
    operations: AtomicU64,
    stop: AtomicBool,
    error: Mutex<Option<String>>,
}

impl<'a> Shared<'a> {
    fn new(workload: &'a Workload, root: &'a str, backend: Backend) -> Self {
        let sets = workload.filesets.iter();
        Self {
            workload,
            root,
            backend,
            trees: sets.clone().map(Tree::new).collect(),
            pools: sets.map(|s| Pool::new(s, SEED)).collect(),
            operations: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    fn fail(&self, error: String) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What one thread did: latencies by operation, made when the first is done.
#[derive(Default)]
struct Tally {
    histograms: [Option<Histogram<u32>>; OPS.len()],
    bytes: u64,
    /// Threads that found no file for their first operation.
    idle: u64,
}

impl Tally {
    fn is_empty(&self) -> bool {
        self.histograms.iter().all(Option::is_none)
    }

    fn record(&mut self, kind: usize, nanoseconds: u64) -> Result<(), String> {
        let Some(slot) = self.histograms.get_mut(kind) else {
            return Ok(());
        };
        let recorder = match slot {
            Some(histogram) => histogram,
            None => slot.insert(histogram()?),
        };
        recorder.saturating_record(nanoseconds.max(1));
        Ok(())
    }

    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.idle += other.idle;
        for (mine, theirs) in self.histograms.iter_mut().zip(other.histograms) {
            match (mine.as_mut(), theirs) {
                // Same bounds on both sides, so that nothing can be out of range.
                (Some(mine), Some(theirs)) => drop(mine.add(&theirs)),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }
}

/// Runs the workload on the files under `root` and waits for its end.
///
/// # Errors
/// The first operation that failed: which, on what, and why.
pub fn run(workload: &Workload, root: &Path, backend: Backend) -> Result<Work, String> {
    let root = root.to_str().ok_or("the directory's name is not UTF-8")?;
    let shared = Shared::new(workload, root, backend);
    let count = usize::try_from(workload.threads()).map_err(|e| e.to_string())?;
    let gate = Gate::default();
    let total = Mutex::new(Tally::default());
    // The thread that goes first tells: this one may be let go long after the others.
    let begun: Mutex<Option<Instant>> = Mutex::new(None);
    let (running, over) = mpsc::channel::<Infallible>();
    std::thread::scope(|scope| {
        let started = (0..).zip(instances(workload)).try_for_each(|(number, thread)| {
            let (shared, gate, total, begun) = (&shared, &gate, &total, &begun);
            let running = running.clone();
            let work = move || {
                let worker = Worker::new(shared, thread, number);
                if !gate.pass() {
                    return;
                }
                let now = Instant::now();
                let mut first = begun.lock().unwrap_or_else(PoisonError::into_inner);
                *first = Some(first.map_or(now, |earlier| earlier.min(now)));
                drop(first);
                match thread::run(worker, thread) {
                    Ok(t) => total.lock().unwrap_or_else(PoisonError::into_inner).add(t),
                    Err(error) => shared.fail(error),
                }
                drop(running);
            };
            let spawned = Builder::new().spawn_scoped(scope, work);
            spawned.map(drop).map_err(|e| {
                format!(
                    "thread {} of {count} cannot be started: {e}; raise the limit of processes (ulimit -u, pids.max) or of memory, or define fewer instances",
                    number + 1
                )
            })
        });
        drop(running);
        match started {
            Ok(()) => {
                gate.open(count);
                stop_in_time(&shared, &over);
            }
            Err(error) => {
                shared.fail(error);
                gate.close();
            }
        }
    });
    let begun = begun.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed_s = begun.map_or(0.0, |first| first.elapsed().as_secs_f64());
    if let Some(error) = shared
        .error
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        return Err(error);
    }
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    if total.is_empty() {
        return Err(nothing_done(workload));
    }
    Ok(summary(&total, elapsed_s))
}

/// Every thread of `workload`, as often as it has instances.
fn instances(workload: &Workload) -> impl Iterator<Item = &Thread> {
    let processes = workload.processes.iter();
    let processes = processes.flat_map(|p| (0..p.instances).map(move |_| p));
    let threads = processes.flat_map(|p| &p.threads);
    threads.flat_map(|t| (0..t.instances).map(move |_| t))
}

/// Why no thread of `workload` found anything to do.
fn nothing_done(workload: &Workload) -> String {
    let one = |s: &FileSet| format!("of {} {} of {}", s.name, s.existing(), s.entries);
    let sets: Vec<String> = workload.filesets.iter().map(one).collect();
    format!(
        "no operation was done: no thread found a file to begin with ({} files exist before the run; `prealloc` in the definition of a set says how many)",
        sets.join(", ")
    )
}

/// Stops the threads when the workload's time is over; `over` hangs up with the last of them.
fn stop_in_time(shared: &Shared<'_>, over: &Receiver<Infallible>) {
    if let Some(limit) = shared.workload.seconds.map(Duration::from_secs)
        && over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
    {
        shared.stop.store(true, Ordering::Relaxed);
    }
}

fn summary(total: &Tally, elapsed_s: f64) -> Work {
    let done = OPS.iter().zip(&total.histograms);
    let latencies: Vec<OpLatency> = done
        .filter_map(|(op, h)| Some(OpLatency::of(op, h.as_ref()?)))
        .collect();
    let names = ["createfile", "openfile", "deletefile", "statfile"];
    let of_files = latencies.iter().filter(|l| names.contains(&l.op.as_str()));
    Work {
        operations: latencies.iter().map(|l| l.count).sum(),
        bytes: total.bytes,
        files: of_files.map(|l| l.count).sum(),
        elapsed_s,
        latencies,
        idle_threads: total.idle,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn small(name: &str) -> Workload {
        let (_, text) = crate::rows::WORKLOADS
            .iter()
            .find(|(n, _)| *n == name)
            .unwrap();
        let mut workload = crate::wml::parse(text, &BTreeMap::new()).unwrap();
        workload.scale(1e-6);
        workload
    }

    #[test]
    fn every_shipped_workload_runs() {
        for (name, _) in crate::rows::WORKLOADS {
            let root = tempfile::tempdir().unwrap();
            let workload = small(name);
            prepare(&workload, root.path()).unwrap();
            let work = run(&workload, root.path(), Backend::Posix)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(
                work.operations > 0 && work.files > 0 && work.elapsed_s > 0.0,
                "{name}: {work:?}"
            );
        }
    }

    #[test]
    fn creating_counts_three_operations_a_file_as_filebench_does() {
        let root = tempfile::tempdir().unwrap();
        let workload = small("files-cr-32th");
        prepare(&workload, root.path()).unwrap();
        let work = run(&workload, root.path(), Backend::Posix).unwrap();
        let entries = workload.filesets[0].entries;
        assert_eq!((work.files, work.operations), (entries, 3 * entries));
        assert_eq!(work.bytes, entries * 4096);
    }

    #[test]
    fn deleting_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let workload = small("files-del-32th");
        prepare(&workload, root.path()).unwrap();
        let work = run(&workload, root.path(), Backend::Posix).unwrap();
        assert_eq!(work.operations, workload.filesets[0].entries);
        let left = std::fs::read_dir(root.path().join("files")).unwrap();
        assert_eq!(
            left.filter(|e| e.as_ref().unwrap().file_type().unwrap().is_file())
                .count(),
            0
        );
    }

    #[test]
    fn what_is_appended_is_written_in_full() {
        let root = tempfile::tempdir().unwrap();
        let size = (64 << 20) + 1;
        let text = format!(
            "define file name=log,path=/x,size=0,prealloc\ndefine process name=p {{ thread name=t {{\n\
             flowop appendfile name=a,filesetname=log,iosize={size},fd=1\n\
             flowop finishoncount name=f,value=1\n}} }}\n"
        );
        let workload = crate::wml::parse(&text, &BTreeMap::new()).unwrap();
        prepare(&workload, root.path()).unwrap();
        let work = run(&workload, root.path(), Backend::Posix).unwrap();
        let file = root.path().join("log/f0000000");
        assert_eq!(work.bytes, size);
        assert_eq!(std::fs::metadata(file).unwrap().len(), size);
    }

    #[test]
    fn an_operation_that_is_repeated_ends_with_its_workload() {
        let iters = 1_u64 << 32;
        let text = format!(
            "set mode quit firstdone\ndefine file name=log,path=/x,size=0,prealloc\n\
             define process name=p {{\nthread name=t {{ flowop statfile name=s,filesetname=log\n\
             flowop finishoncount name=f,value=1 }}\n\
             thread name=u {{ flowop statfile name=s,filesetname=log,iters={iters} }}\n}}\n"
        );
        let workload = crate::wml::parse(&text, &BTreeMap::new()).unwrap();
        let work = run(&workload, Path::new("/nonexistent"), Backend::Null).unwrap();
        assert!(work.operations < iters, "{}", work.operations);
    }

    #[test]
    fn work_that_finds_no_file_is_an_error_and_threads_that_do_are_counted() {
        let of = |threads: &str| {
            let text = format!(
                "define fileset name=set1,path=/x,entries=200\n\
                 define fileset name=set2,path=/x,entries=9,prealloc=50\n\
                 define process name=p {{ {threads} }}\n"
            );
            let workload = crate::wml::parse(&text, &BTreeMap::new()).unwrap();
            run(&workload, Path::new("/nonexistent"), Backend::Null)
        };
        // It would have to create one first.
        let nothing = "thread name=t { flowop deletefile name=d,filesetname=set1\n\
                       flowop createfile name=c,filesetname=set1,fd=1\n\
                       flowop finishoncount name=f,value=9 }";
        let error = of(nothing).unwrap_err();
        assert!(
            error.contains("of set1 0 of 200, of set2 4 of 9") && error.contains("`prealloc`"),
            "{error}"
        );
        let stat = "thread name=u { flowop statfile name=s,filesetname=set2\n\
                    flowop finishoncount name=f,value=20 }";
        let work = of(&format!("{nothing} {stat}")).unwrap();
        assert_eq!((work.operations, work.idle_threads), (20, 1));
        // Files that end later are no reason.
        let delete = "thread name=u { flowop deletefile name=s,filesetname=set2 }";
        let work = of(delete).unwrap();
        assert_eq!((work.operations, work.idle_threads), (4, 0));
    }

    #[test]
    fn what_is_not_open_cannot_be_closed() {
        let text = "define process name=p { thread name=t { flowop closefile name=c,fd=3\n\
                    flowop finishoncount name=f,value=9 } }";
        let workload = crate::wml::parse(text, &BTreeMap::new()).unwrap();
        let error = run(&workload, Path::new("/nonexistent"), Backend::Null).unwrap_err();
        assert!(
            error.starts_with("closefile") && error.contains("descriptor 3 is not open"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_file_is_named_in_the_error() {
        let root = tempfile::tempdir().unwrap();
        let workload = small("files-rd-1th");
        let error = run(&workload, root.path(), Backend::Posix).unwrap_err();
        assert!(
            error.contains("openfile") && error.contains("/files/"),
            "{error}"
        );
    }

    #[test]
    fn the_null_backend_does_the_same_operations() {
        let root = tempfile::tempdir().unwrap();
        let workload = small("file-server");
        prepare(&workload, root.path()).unwrap();
        let counts = |work: Work| -> u64 { work.operations };
        let real = counts(run(&workload, root.path(), Backend::Posix).unwrap());
        let null = counts(run(&workload, Path::new("/nonexistent"), Backend::Null).unwrap());
        // Each of the 50 threads may do one more operation after the count is reached.
        assert!(real.abs_diff(null) <= 50, "{real} {null}");
    }
}
