//! What the path API adds to a request, without a transport: GETATTR answered by a file system over
//! inodes, and by one over paths at several depths; and with many threads at once, each on a path
//! of its own below one directory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bickford::abi::{EntryOut, GetattrIn, InHeader, Opcode};
use bickford::filesystem::blocking;
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::path::{self, Adapter, Options, Subject};
use bickford::transport::memory::Kernel;
use bickford::transport::{Outgoing, Responder, Ticket};
use bickford::{Blocking, Context, Errno, FileSystem, NodeId};
use criterion::{Criterion, criterion_group, criterion_main};
use zerocopy::IntoBytes;

struct Nowhere;

impl Responder for Nowhere {
    fn respond(&self, _: Ticket, answer: &Outgoing<'_>) -> std::io::Result<()> {
        assert_eq!(answer.error, 0, "the request failed");
        Ok(())
    }
}

/// Every name is a directory.
struct Everything;

impl path::FileSystem for Everything {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        Ok(Attr::directory(path_length(subject.path()?), 0o755))
    }
}

fn path_length(path: &Path) -> u64 {
    path.as_os_str().len() as u64
}

impl blocking::FileSystem for Everything {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let node = NodeId(op.parent.0 + 1);
        Ok(Entry::new(node, Attr::directory(1, 0o755), Duration::ZERO))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let attr = Attr::directory(op.node.0, 0o755);
        Ok(Attributes {
            attr,
            valid: Duration::ZERO,
        })
    }
}

struct Bench {
    kernel: Kernel,
    responder: Arc<dyn Responder>,
}

impl Bench {
    fn new(filesystem: impl FileSystem) -> Self {
        let mut kernel = Kernel::new(filesystem);
        assert!(
            kernel.init().is_some_and(|answer| answer.error == 0),
            "INIT failed"
        );
        Self {
            kernel,
            responder: Arc::new(Nowhere),
        }
    }

    /// The node at the end of a path of these names.
    fn node(&mut self, names: &[String]) -> u64 {
        names.iter().fold(1, |node, name| {
            let name = [name.as_bytes(), b"\0"].concat();
            let answer = self.kernel.call(Opcode::Lookup, node, &name);
            answer
                .and_then(|answer| answer.read::<EntryOut>())
                .map_or(0, |entry| entry.nodeid)
        })
    }

    fn message(node: u64) -> Vec<u8> {
        let body = GetattrIn::default();
        let header = InHeader {
            len: (size_of::<InHeader>() + size_of::<GetattrIn>()) as u32,
            opcode: Opcode::Getattr as u32,
            unique: 2,
            nodeid: node,
            ..InHeader::default()
        };
        [header.as_bytes(), body.as_bytes()].concat()
    }

    /// Requests a second of `threads` threads together, in half a second.
    fn rate(&self, nodes: &[u64]) -> f64 {
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (number, node) in nodes.iter().enumerate() {
                let (stop, count) = (&stop, &count);
                scope.spawn(move || {
                    let server = self.kernel.server();
                    let (worker, message) = (server.worker(number + 1), Self::message(*node));
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        server.process_bytes(&worker, &message, &self.responder);
                        done += 1;
                    }
                    count.fetch_add(done, Ordering::Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
    }
}

fn names(depth: usize, last: usize) -> Vec<String> {
    let mut names: Vec<_> = (1..depth)
        .map(|level| format!("directory-{level}"))
        .collect();
    names.push(format!("last-{last}"));
    names
}

fn one_request(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("getattr");
    let mut run = |name: String, mut bench: Bench, depth: usize| {
        let message = Bench::message(bench.node(&names(depth, 0)));
        let server = Arc::clone(bench.kernel.server());
        let worker = server.worker(1);
        group.bench_function(name, |bencher| {
            bencher.iter(|| server.process_bytes(&worker, &message, &bench.responder));
        });
    };
    run("inodes".into(), Bench::new(Blocking(Everything)), 1);
    for depth in [1, 4, 16] {
        let adapter = Adapter::new(Everything, Options::default());
        run(format!("paths, depth {depth}"), Bench::new(adapter), depth);
    }
    group.finish();
}

/// Printed, not compared by criterion: rates of all threads together.
fn many_threads(_: &mut Criterion) {
    let mut inodes = Bench::new(Blocking(Everything));
    let mut paths = Bench::new(Adapter::new(Everything, Options::default()));
    for threads in [1, 2, 8, 32] {
        let nodes = |bench: &mut Bench| {
            (0..threads)
                .map(|last| bench.node(&names(4, last)))
                .collect::<Vec<_>>()
        };
        let (low, high) = (nodes(&mut inodes), nodes(&mut paths));
        let (low, high) = (inodes.rate(&low), paths.rate(&high));
        println!("{threads} threads: inodes {low:.0}/s, paths at depth 4 {high:.0}/s");
    }
}

criterion_group!(benches, one_request, many_threads);
criterion_main!(benches);
