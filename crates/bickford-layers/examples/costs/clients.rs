//! The path API against the inode API, under many clients at once: a lock that they all take would
//! show as a ratio that grows with their number, and as waiting.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bickford::abi::{EntryOut, GetattrIn, InHeader, Opcode, RenameIn};
use bickford::filesystem::blocking;
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup, Rename};
use bickford::path::{self, Adapter, Options, Subject};
use bickford::transport::Responder;
use bickford::transport::memory::Kernel;
use bickford::{Blocking, Context, Errno, FileSystem, NodeId};
use rustix::fs::RenameFlags;
use zerocopy::IntoBytes;

use crate::bench::{Counter, Outcome, Timed};
use crate::report::Report;

const CLIENTS: [(usize, &str); 3] = [(1, "1 client"), (8, "8 clients"), (32, "32 clients")];

/// Directories, which the clients share out among themselves. There are as many for one client as
/// for all, so that what fits into the processor's caches does not depend on their number.
const DIRECTORIES: usize = 32;

/// Names in each directory.
const NAMES: usize = 64;

/// Turns of a client in one round; each is a LOOKUP and a GETATTR of every one of its names.
const TURNS: usize = 64;

/// Every name is a directory, and may be renamed.
struct Everything;

impl blocking::FileSystem for Everything {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let node = NodeId(op.parent.0 + 1);
        Ok(Entry::new(node, Attr::directory(1, 0o755), Duration::ZERO))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: Attr::directory(op.node.0, 0o755),
            valid: Duration::ZERO,
        })
    }

    fn rename(&self, _: &Context<'_>, _: Rename<'_>) -> Result<(), Errno> {
        Ok(())
    }
}

impl path::FileSystem for Everything {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        let length = subject.path()?.as_os_str().len();
        Ok(Attr::directory(length as u64, 0o755))
    }

    fn rename(&self, _: &Context<'_>, _: &Path, _: &Path, _: RenameFlags) -> Result<(), Errno> {
        Ok(())
    }
}

/// A file system, and what each client asks it.
struct Crowd {
    name: &'static str,
    kernel: Kernel,
    clients: Vec<Vec<Vec<u8>>>,
    times: Vec<f64>,
    requests: u64,
    waits: u64,
}

impl Timed for Crowd {
    fn name(&self) -> &str {
        self.name
    }

    fn times(&self) -> &[f64] {
        &self.times
    }
}

fn message(opcode: Opcode, node: u64, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: opcode as u32,
        nodeid: node,
        ..InHeader::default()
    };
    [header.as_bytes(), body].concat()
}

/// How often this thread has waited, which it does for locks alone.
fn waits() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let count = count.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| std::io::Error::other("/proc/thread-self/status counts no switches"))
}

impl Crowd {
    fn new(
        name: &'static str,
        file_system: impl FileSystem,
        clients: usize,
        renames: bool,
    ) -> Outcome<Self> {
        let mut kernel = Kernel::new(file_system);
        kernel
            .init()
            .filter(|answer| answer.error == 0)
            .ok_or("no session")?;
        let mut crowd = Self {
            name,
            kernel,
            clients: Vec::new(),
            times: Vec::new(),
            requests: 0,
            waits: 0,
        };
        let mut directories = Vec::new();
        for number in 0..DIRECTORIES {
            directories.push(crowd.directory(number, renames)?);
        }
        let share = DIRECTORIES.div_ceil(clients);
        crowd.clients = directories.chunks(share).map(<[_]>::concat).collect();
        Ok(crowd)
    }

    fn look_up(&mut self, parent: u64, name: &str) -> Outcome<u64> {
        let name = [name.as_bytes(), b"\0"].concat();
        let found = self.kernel.call(Opcode::Lookup, parent, &name);
        let found: EntryOut = found.and_then(|answer| answer.read()).ok_or("no entry")?;
        Ok(found.nodeid)
    }

    /// One turn of a client in one of its directories: all names, and then, there and back, a
    /// rename beside them.
    fn directory(&mut self, number: usize, renames: bool) -> Outcome<Vec<Vec<u8>>> {
        let directory = self.look_up(1, &format!("directory-{number}"))?;
        let mut messages = Vec::new();
        for number in 0..NAMES {
            let name = format!("name-{number}");
            let node = self.look_up(directory, &name)?;
            let name = [name.as_bytes(), b"\0"].concat();
            messages.push(message(Opcode::Lookup, directory, &name));
            let getattr = GetattrIn::default();
            messages.push(message(Opcode::Getattr, node, getattr.as_bytes()));
        }
        if renames {
            self.look_up(directory, "one")?;
            let renaming = RenameIn { newdir: directory };
            for names in [b"one\0two\0", b"two\0one\0"] {
                let body = [renaming.as_bytes(), names].concat();
                messages.push(message(Opcode::Rename, directory, &body));
            }
        }
        Ok(messages)
    }

    /// All clients at once, each with one request under way.
    fn round(&mut self) -> Outcome {
        let server = Arc::clone(self.kernel.server());
        let clients = self.clients.len();
        let barrier = Barrier::new(clients);
        let run = &|number: usize,
                    messages: &mut [Vec<u8>]|
         -> std::io::Result<(Instant, Instant, u64)> {
            let worker = server.worker(number + 1);
            let counter = Arc::<Counter>::default();
            let responder: Arc<dyn Responder> = counter.clone();
            barrier.wait();
            let (before, began) = (waits(), Instant::now());
            let mut sent = 0;
            for _ in 0..TURNS {
                for message in messages.iter_mut() {
                    sent += 1;
                    let unique = (2 * (((number as u64) << 32) + sent as u64)).to_ne_bytes();
                    if let Some(place) = message.get_mut(8..16) {
                        place.copy_from_slice(&unique);
                    }
                    server.process_bytes(&worker, message, &responder);
                    while counter.answers.load(Ordering::Acquire) < sent {
                        std::thread::yield_now();
                    }
                }
            }
            let (ended, waited) = (Instant::now(), waits()? - before?);
            match counter.errors.load(Ordering::Relaxed) {
                0 => Ok((began, ended, waited)),
                errors => Err(std::io::Error::other(format!("{errors} requests failed"))),
            }
        };
        let mut spans = Vec::new();
        std::thread::scope(|scope| -> Outcome {
            let clients = self.clients.iter_mut().enumerate();
            let threads: Vec<_> = clients
                .map(|(number, messages)| scope.spawn(move || run(number, messages)))
                .collect();
            for thread in threads {
                spans.push(thread.join().map_err(|_| "a client panicked")??);
            }
            Ok(())
        })?;
        // From the first that begins to the last that ends, as they themselves see it.
        let began = spans.iter().map(|(began, ..)| *began).min();
        let ended = spans.iter().map(|(_, ended, _)| *ended).max();
        let took = ended.zip(began).ok_or("no clients")?;
        let took = took.0 - took.1;
        let requests: usize = self.clients.iter().map(|client| client.len() * TURNS).sum();
        self.times.push(took.as_secs_f64() * 1e9 / requests as f64);
        self.requests += requests as u64;
        self.waits += spans.iter().map(|(.., waited)| waited).sum::<u64>();
        Ok(())
    }

    fn forget_round(&mut self) {
        self.times.clear();
        (self.requests, self.waits) = (0, 0);
    }

    fn waits_of_a_million(&self) -> f64 {
        self.waits as f64 * 1e6 / self.requests as f64
    }
}

/// For each number of clients, without and with renames, both interfaces in interleaved rounds; at
/// the end the ratios, of which a lock that all share would make a growing row.
pub(crate) fn measure(report: &mut Report, rounds: usize) -> Outcome {
    let mut summary =
        String::from("\nPath API to inodes, and waits for locks of a million requests\n");
    for renames in [false, true] {
        let what = if renames {
            "LOOKUP, GETATTR, RENAME"
        } else {
            "LOOKUP, GETATTR"
        };
        for (clients, many) in CLIENTS {
            let paths = Adapter::new(Everything, Options::default());
            let mut pair = [
                Crowd::new("inodes", Blocking(Everything), clients, renames)?,
                Crowd::new("path API", paths, clients, renames)?,
            ];
            for round in 0..=rounds {
                for crowd in &mut pair {
                    crowd.round()?;
                    if round == 0 {
                        crowd.forget_round();
                    }
                }
            }
            let row = format!("{what}, {many}");
            let ratio = report.add(&row, &pair)?;
            let [low, high] = pair.each_ref().map(Crowd::waits_of_a_million);
            let waits = format!("waits {low:>6.1} and {high:>6.1}");
            writeln!(summary, "{row:<40} ratio {ratio:>6.3}   {waits}")?;
        }
    }
    report.say(&summary);
    Ok(())
}
