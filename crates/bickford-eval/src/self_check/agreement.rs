//! fio, PostMark and the engine on the same work; and what the engine takes for itself.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Agreement, Check, EngineCost, Findings};
use crate::engine::{self, Backend};
use crate::fio::{self, Access, FioSpec};
use crate::host::process::{self, Limits};
use crate::postmark::{self, TRANSACTIONS_MIN};
use crate::rows::WORKLOADS;
use crate::stats::median;
use crate::wml::{self, Workload};

/// Size of the file that is written and read.
pub(super) const BYTES: u64 = 256 << 20;
/// Files that PostMark makes, of 1 to 64 KiB, all sizes alike often.
const FILES: u64 = 5_000;
const MEAN_SIZE: u64 = (1024 + 65_536) / 2;
/// The shipped workloads at this part of their size, for the time of an operation.
const SCALE: f64 = 0.003;
/// How long one program may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program and what it does to the fresh device, as throughput.
type Do<'a> = Box<dyn Fn() -> Result<f64, String> + 'a>;

/// Two programs for the same work.
struct Pair<'a> {
    work: &'static str,
    unit: &'static str,
    other: &'static str,
    theirs: Do<'a>,
    ours: Do<'a>,
}

pub(super) fn check(check: &Check<'_>, findings: &mut Findings) {
    for pair in pairs(check) {
        let (work, other) = (pair.work, pair.other);
        match compare(check, &pair) {
            Ok([theirs, ours]) => match Agreement::of(work, pair.unit, other, &theirs, &ours) {
                Some(agreement) => findings.agreement.push(agreement),
                None => findings
                    .problems
                    .push(format!("{other} and engine, {work}: no round was counted")),
            },
            Err(error) => findings
                .problems
                .push(format!("{other} and engine, {work}: {error}")),
        }
    }
    for (name, text) in WORKLOADS {
        match own_cost(check, text) {
            Ok((own_ns, native_ns)) => findings.engine.push(EngineCost {
                workload: name.to_owned(),
                own_ns,
                native_ns,
            }),
            Err(error) => findings.problems.push(format!("engine, {name}: {error}")),
        }
    }
}

/// A workload on one file of [`BYTES`].
fn one_file(prealloc: &str, ops: &str) -> String {
    format!(
        "set $dir=/x\ndefine fileset name=data,path=$dir,entries=1,size={BYTES},dirwidth=1{prealloc}\n\
         define process name=p {{ thread name=t {{ {ops} }} }}\n"
    )
}

fn pairs<'a>(check: &'a Check<'a>) -> [Pair<'a>; 3] {
    let write = one_file(
        "",
        "flowop createfile name=a,filesetname=data,fd=1\n\
         flowop writewholefile name=b,fd=1,iosize=128k\n\
         flowop fsync name=c,fd=1\nflowop closefile name=d,fd=1\n",
    );
    let read = one_file(
        ",prealloc",
        "flowop openfile name=a,filesetname=data,fd=1\n\
         flowop readwholefile name=b,fd=1,iosize=128k\n\
         flowop closefile name=c,fd=1\nflowop finishoncount name=e,value=3\n",
    );
    let spec = |access| FioSpec {
        access,
        threads: 1,
        files: 1,
        io_kib: 128,
        bytes: BYTES,
    };
    [
        Pair {
            work: "write 256 MiB in 128 KiB blocks, then fsync",
            unit: "MB/s",
            other: "fio",
            theirs: Box::new(move || with_fio(check, &spec(Access::SeqWrite))),
            ours: Box::new(move || with_engine(check, &write)),
        },
        Pair {
            work: "read 256 MiB in 128 KiB blocks, cold",
            unit: "MB/s",
            other: "fio",
            theirs: Box::new(move || with_fio(check, &spec(Access::SeqRead))),
            ours: Box::new(move || with_engine(check, &read)),
        },
        Pair {
            work: "create, write and remove 5,000 files of 32.5 KiB on average",
            unit: "files/s",
            other: "PostMark",
            theirs: Box::new(move || with_postmark(check)),
            ours: Box::new(move || files_with_engine(check)),
        },
    ]
}

/// Both in turn; the first round is not counted.
fn compare(check: &Check<'_>, pair: &Pair<'_>) -> Result<[Vec<f64>; 2], String> {
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=check.rounds {
        // Each goes first in every other round.
        for turn in 0..2 {
            let (index, one) = if (turn + round) % 2 == 0 {
                (0, &pair.theirs)
            } else {
                (1, &pair.ours)
            };
            if check.stopped() {
                return Err("interrupted".into());
            }
            let rate = one()?;
            if round > 0 {
                rates[index].push(rate);
            }
        }
    }
    Ok(rates)
}

/// The directory under test, with the files that `make` makes and nothing in the caches.
fn fresh<'a>(
    check: &Check<'a>,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<&'a Path, String> {
    check.device.remake()?;
    make(check.device.data())?;
    check.device.remount()?;
    check.device.drop_caches()?;
    Ok(check.device.data())
}

fn megabytes(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}

fn program(
    check: &Check<'_>,
    name: &str,
    arguments: &[std::ffi::OsString],
) -> Result<process::Finished, String> {
    let limits = Limits {
        deadline: Instant::now() + PATIENCE,
        stop: check.stop,
        release: &|| {},
    };
    let mut command = process::limited(OsStr::new(name), arguments, None);
    command.current_dir(check.work);
    match process::run(command, &limits)
        .map_err(|e| format!("{e}; install the package `{name}`"))?
    {
        Ok(finished) => finished.success(name),
        Err(cut) => Err(format!("{name} was ended: {cut:?}")),
    }
}

fn with_fio(check: &Check<'_>, spec: &FioSpec) -> Result<f64, String> {
    let directory = fresh(check, |directory| {
        if !spec.needs_files() {
            return Ok(());
        }
        let paths = spec.paths(directory);
        paths.iter().try_for_each(|path| {
            crate::worker::fill(path, spec.file_bytes())
                .map_err(|e| format!("{}: {e}", path.display()))
        })
    })?;
    let finished = program(check, "fio", &spec.arguments(directory))?;
    let work = fio::answer(spec, &finished.stdout)?;
    Ok(megabytes(work.bytes, work.elapsed_s))
}

fn scaled(text: &str, factor: f64) -> Result<Workload, String> {
    wml::scaled(text, factor).map_err(|e| e.to_string())
}

fn with_engine(check: &Check<'_>, text: &str) -> Result<f64, String> {
    let workload = scaled(text, 1.0)?;
    let directory = fresh(check, |directory| engine::prepare(&workload, directory))?;
    let work = engine::run(&workload, directory, Backend::Posix)?;
    Ok(megabytes(BYTES, work.elapsed_s))
}

/// PostMark with the few transactions that it does not do without.
fn with_postmark(check: &Check<'_>) -> Result<f64, String> {
    let directory = fresh(check, |_| Ok(()))?;
    let script = check.work.join("postmark");
    let more = "set write 4096\nset buffering false\n";
    postmark::write_script(&script, directory, FILES, TRANSACTIONS_MIN, more)?;
    let finished = program(check, "postmark", &[script.into_os_string()])?;
    if let Some(complaint) = postmark::complaint(&finished) {
        return Err(complaint);
    }
    Ok(FILES as f64 / finished.wall_s.max(1e-9))
}

/// What PostMark does but for its transactions: all files are made, then all are removed.
fn files_with_engine(check: &Check<'_>) -> Result<f64, String> {
    let set = |prealloc: &str, ops: &str| {
        let text = format!(
            "set $dir=/x\ndefine fileset name=files,path=$dir,entries={FILES},size={MEAN_SIZE},dirwidth={FILES}{prealloc}\n\
             define process name=p {{ thread name=t {{ {ops} }} }}\n"
        );
        scaled(&text, 1.0)
    };
    let create = "flowop createfile name=a,filesetname=files,fd=1\n\
         flowop writewholefile name=b,fd=1,iosize=4k\nflowop closefile name=c,fd=1\n";
    let create = set("", create)?;
    let remove = set(",prealloc", "flowop deletefile name=a,filesetname=files\n")?;
    let directory = fresh(check, |directory| engine::prepare(&create, directory))?;
    let made = engine::run(&create, directory, Backend::Posix)?;
    let removed = engine::run(&remove, directory, Backend::Posix)?;
    Ok(FILES as f64 / (made.elapsed_s + removed.elapsed_s).max(1e-9))
}

/// Nanoseconds of an operation without a file system, and natively.
fn own_cost(check: &Check<'_>, text: &str) -> Result<(f64, f64), String> {
    let (small, large) = (scaled(text, SCALE)?, scaled(text, 0.05)?);
    let (mut own, mut native) = (Vec::new(), Vec::new());
    for round in 0..=check.rounds {
        if check.stopped() {
            return Err("interrupted".into());
        }
        let without = engine::run(&large, Path::new("/nonexistent"), Backend::Null)?;
        let directory = fresh(check, |directory| engine::prepare(&small, directory))?;
        let with = engine::run(&small, directory, Backend::Posix)?;
        if round > 0 {
            own.extend(without.operation_ns());
            native.extend(with.operation_ns());
        }
    }
    median(&own)
        .zip(median(&native))
        .ok_or_else(|| "no round was counted".into())
}
