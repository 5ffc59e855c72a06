//! What interfaces and layers cost: each against the bare file system, in paired rounds, without a
//! transport.
//!
//! ```sh
//! cargo run --release -p bickford-layers --example costs -- \
//!     benchsuite/runs/$(date +%F)-$(hostname) [ROUNDS] [PART OF A NAME]
//! ```
//!
//! Prints, and writes into the directory (`-` for none), for each stack the median, the least and the
//! third quartile of nanoseconds a request, the median ratio to the bare file system of the same round, and the
//! median difference. There are tables for one file system over each interface, and under empty
//! and included layers, with LOOKUP and READ half and half; StackFS over a directory, alone and under
//! the layers and beside a directory passed through over paths, with LOOKUP, GETATTR and READ of
//! 4 KiB of a file in the page cache; `crypt`, by
//! sizes; and paths against inodes under 1, 8 and 32 clients, each on 64 names of its own, without
//! and with renames (`clients` as the part of a name measures these alone). What is sent to a kernel
//! and back comes on top of all: several microseconds each.

mod bench;
mod blocks;
mod clients;
mod mirror;
mod report;
mod subjects;

use std::path::Path;
use std::process::ExitCode;

use bickford::abi::{EntryOut, GetattrIn, Opcode, OpenIn, OpenOut, ReadIn};
use bickford::filesystem::future::{Spawned, Task};
use bickford::layer::{Interest, OperationSet};
use bickford::path::{self, Adapter, Options};
use bickford::{Blocking, FileSystem};
use bickford_stackfs::{Preset, StackFs};
use tokio::runtime::Runtime;
use zerocopy::IntoBytes;

use bench::{Bench, Outcome, interleave};
use mirror::Mirror;
use report::Report;
use subjects::{Bare, empty, included};

/// Turns of one round: 2000 requests or so.
const TURNS: usize = 1000;

const INCLUDED: [&str; 9] = [
    "log:file=/dev/null",
    "log:file=/dev/null,format=json",
    "readonly",
    "stats",
    "fault:op=all,errno=EIO,probability=0",
    "fault:op=write,errno=EIO",
    "delay:write=1ms",
    "delay:all=0ms",
    "throttle:read=1000G",
];

fn read_of(handle: u64) -> ReadIn {
    ReadIn {
        fh: handle,
        size: 4096,
        ..ReadIn::default()
    }
}

/// A stack, and how it is made over what is below.
type Stack = (
    String,
    Box<dyn Fn(Box<dyn FileSystem>) -> Outcome<Box<dyn FileSystem>>>,
);

/// Nothing, empty layers, and those that are included.
fn stacks(wanted: &str) -> Vec<Stack> {
    let none = Interest::default();
    let pre = Interest {
        pre: OperationSet::ALL,
        ..none
    };
    let both = Interest {
        post: OperationSet::ALL,
        ..pre
    };
    let mut stacks: Vec<Stack> = vec![("bare".into(), Box::new(Ok))];
    for count in [1, 10] {
        for (what, interest) in [
            ("without interest", none),
            ("empty pre-calls", pre),
            ("empty pre+post", both),
        ] {
            let make = move |below| Ok(empty(count, interest, below));
            stacks.push((format!("{count} {what}"), Box::new(make)));
        }
    }
    for spec in INCLUDED {
        let make = move |below| Ok(included(spec, below)?);
        stacks.push((spec.into(), Box::new(make)));
    }
    stacks.retain(|(name, _)| name == "bare" || name.contains(wanted));
    stacks
}

/// The file that the kernel of a bench finds and opens: its node and handle.
fn opened(bench: &mut Bench) -> Outcome<(u64, u64)> {
    let found = bench.kernel.call(Opcode::Lookup, 1, b"name\0");
    let found: EntryOut = found.and_then(|answer| answer.read()).ok_or("no entry")?;
    let open = OpenIn::default();
    let opened = bench
        .kernel
        .call(Opcode::Open, found.nodeid, open.as_bytes());
    // Who does not implement it has no handle either.
    let opened: Option<OpenOut> = opened.and_then(|answer| answer.read());
    Ok((found.nodeid, opened.map_or(0, |opened| opened.fh)))
}

/// LOOKUP and READ.
fn simple(name: &str, file_system: impl FileSystem) -> Outcome<Bench> {
    let mut bench = Bench::new(name, file_system)?;
    let (node, handle) = opened(&mut bench)?;
    bench.add(Opcode::Lookup, 1, b"name\0");
    bench.add(Opcode::Read, node, read_of(handle).as_bytes());
    Ok(bench)
}

fn two_threads() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
}

fn spawner(runtime: &Runtime) -> impl Fn(Task) + Send + Sync + 'static {
    let handle = runtime.handle().clone();
    move |task: Task| drop(handle.spawn(task))
}

/// One file system over every interface, and under layers.
fn machinery(report: &mut Report, rounds: usize, wanted: &str) -> Outcome {
    let runtime = two_threads()?;
    let spawner = || spawner(&runtime);
    let options = Options::default();
    let mut benches = Vec::new();
    for (name, make) in stacks(wanted) {
        benches.push(simple(&name, make(Box::new(Bare))?)?);
    }
    benches.extend([
        simple("blocking", Blocking(Bare))?,
        simple("async, 2 threads", Spawned::new(Bare, spawner()))?,
        simple("path API", Adapter::new(Bare, options))?,
        simple(
            "path API, async, 2 threads",
            path::future::Adapter::new(Bare, options, spawner()),
        )?,
    ]);
    benches.retain(|bench| bench.name == "bare" || bench.name.contains(wanted));
    interleave(&mut benches, rounds, TURNS)?;
    report
        .add("LOOKUP and READ of a constant", &benches)
        .map(drop)
}

/// LOOKUP, GETATTR and READ of a file.
fn with_attributes(name: &str, file_system: impl FileSystem) -> Outcome<Bench> {
    let mut bench = Bench::new(name, file_system)?;
    let (node, handle) = opened(&mut bench)?;
    bench.add(Opcode::Lookup, 1, b"name\0");
    bench.add(Opcode::Getattr, node, GetattrIn::default().as_bytes());
    bench.add(Opcode::Read, node, read_of(handle).as_bytes());
    Ok(bench)
}

/// StackFS, alone, under layers, and beside what does the same over paths.
fn stackfs(report: &mut Report, rounds: usize, wanted: &str) -> Outcome {
    let runtime = two_threads()?;
    let lower = tempfile::tempdir()?;
    std::fs::write(lower.path().join("name"), [7; 8192])?;
    let mut benches = Vec::new();
    for (name, make) in stacks(wanted) {
        let below = StackFs::builder(lower.path()).preset(Preset::Opt).build()?;
        benches.push(with_attributes(&name, make(Box::new(below))?)?);
    }
    let options = Options::default();
    let mirror = || Mirror::new(lower.path());
    let over_paths = Adapter::new(mirror()?, options);
    let tasks = path::future::Adapter::new(mirror()?, options, spawner(&runtime));
    benches.extend([
        with_attributes("path API", over_paths)?,
        with_attributes("path API, async, 2 threads", tasks)?,
    ]);
    benches.retain(|bench| bench.name == "bare" || bench.name.contains(wanted));
    interleave(&mut benches, rounds, TURNS / 2)?;
    report
        .add("LOOKUP, GETATTR and READ over StackFS", &benches)
        .map(drop)
}

/// Everything whose name has a part, and the clients when no part is asked for.
fn all(report: &mut Report, rounds: usize, wanted: &str) -> Outcome {
    machinery(report, rounds, wanted)?;
    stackfs(report, rounds, wanted)?;
    if "crypt".contains(wanted) {
        blocks::measure(report, rounds)?;
    }
    if wanted.is_empty() {
        clients::measure(report, rounds)?;
    }
    Ok(())
}

fn measure() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, rounds, wanted] = [0, 1, 2].map(|at| arguments.get(at).map(String::as_str));
    let rounds = rounds.map_or(Ok(51), str::parse)?;
    let wanted = wanted.unwrap_or("");
    let mut report = Report::default();
    if wanted == "clients" {
        clients::measure(&mut report, rounds)?;
    } else {
        all(&mut report, rounds, wanted)?;
    }
    match directory {
        None | Some("-") => Ok(()),
        Some(directory) => report.write(Path::new(directory)),
    }
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("costs: {error}");
            ExitCode::FAILURE
        }
    }
}
