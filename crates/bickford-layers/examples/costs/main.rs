//! What layers cost: each against the bare file system, in paired rounds over the memory transport.
//!
//! `cargo run --release -p bickford-layers --example costs [ROUNDS]` prints for each stack of
//! layers the median and the spread (first to third quartile) of nanoseconds a request, and the
//! median ratio to the bare file system of the same round. Requests are LOOKUP and READ of 4 KiB,
//! half and half; what the transport costs is in every figure. `crypt` is measured apart, with READ
//! and WRITE of whole blocks against the same file in memory without it.

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bickford::abi::{CreateIn, Opcode, ReadIn, WriteIn};
use bickford::layer::{Interest, Layer, Layered, OperationSet, PostCalls, PreCalls};
use bickford::ops::{
    Attr, Attributes, Create, Created, Data, Entry, Getattr, Lookup, Opened, Read, Write, Written,
};
use bickford::transport::memory::Kernel;
use bickford::{Context, Errno, FileHandle, FileSystem, NodeId, Reply};
use bickford_crypt::Crypt;
use bickford_layers::{LayerSpec, build};
use zerocopy::IntoBytes;

/// Requests of one batch.
const BATCH: u32 = 2000;
static BLOCK: [u8; 4096] = [0; 4096];

struct Bare;

impl FileSystem for Bare {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>, reply: Reply<Entry>) {
        let attr = Attr::file(2, 0o644, 4096);
        reply.ok(Entry::new(NodeId(2), attr, Duration::from_secs(1)));
    }

    fn read(&self, _: &Context<'_>, _: Read, reply: Reply<Data>) {
        reply.ok(BLOCK.as_slice().into());
    }
}

/// Does nothing, before and after the operations of its interest.
struct Empty(Interest);

impl PreCalls for Empty {}
impl PostCalls for Empty {}

impl Layer for Empty {
    fn name(&self) -> &str {
        "empty"
    }

    fn interest(&self) -> Interest {
        self.0
    }
}

fn empty(count: usize, interest: Interest) -> Box<dyn FileSystem> {
    let bare: Box<dyn FileSystem> = Box::new(Bare);
    (0..count).fold(bare, |below, _| {
        Box::new(Layered::new(Empty(interest), below))
    })
}

fn included(spec: &str) -> Result<Box<dyn FileSystem>, bickford_layers::LayerError> {
    let specs: [LayerSpec; 1] = [spec.parse()?];
    build(&specs, Box::new(Bare)).map(|(file_system, _)| file_system)
}

/// A file system and what it is called.
type Stack = (String, Box<dyn FileSystem>);

/// The stacks that are measured, the bare file system first.
fn stacks() -> Result<Vec<Stack>, bickford_layers::LayerError> {
    let none = Interest::default();
    let pre = Interest {
        pre: OperationSet::ALL,
        ..none
    };
    let both = Interest {
        post: OperationSet::ALL,
        ..pre
    };
    let mut stacks = vec![("bare".to_owned(), empty(0, none))];
    for count in [1, 10] {
        stacks.push((format!("{count} without interest"), empty(count, none)));
        stacks.push((format!("{count} empty pre-calls"), empty(count, pre)));
        stacks.push((format!("{count} empty pre+post"), empty(count, both)));
    }
    for spec in [
        "log:file=/dev/null",
        "log:file=/dev/null,format=json",
        "readonly",
        "stats",
        "fault:op=all,errno=EIO,probability=0",
        "fault:op=write,errno=EIO",
        "delay:write=1ms",
        "delay:all=0ms",
        "throttle:read=1000G",
    ] {
        stacks.push((spec.to_owned(), included(spec)?));
    }
    Ok(stacks)
}

/// A file in memory, whatever its name.
#[derive(Default)]
struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attr(&self) -> Attr {
        Attr::file(2, 0o644, self.bytes().len() as u64)
    }
}

impl FileSystem for Memory {
    fn create(&self, _: &Context<'_>, _: Create<'_>, reply: Reply<Created>) {
        reply.ok(Created {
            entry: Entry::new(NodeId(2), self.attr(), Duration::from_secs(1)),
            opened: Opened::new(FileHandle(0)),
        });
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: self.attr(),
            valid: Duration::ZERO,
        });
    }

    fn read(&self, _: &Context<'_>, op: Read, reply: Reply<Data>) {
        let bytes = self.bytes();
        let from = usize::try_from(op.offset).unwrap_or(usize::MAX);
        let rest = bytes.get(from..).unwrap_or_default();
        let data = rest.get(..op.size as usize).unwrap_or(rest).to_vec();
        drop(bytes);
        reply.ok(data.into());
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        let Ok(data) = op.data.bytes() else {
            return reply.error(Errno::IO);
        };
        let from = usize::try_from(op.offset).unwrap_or(usize::MAX);
        {
            let mut bytes = self.bytes();
            let end = from.saturating_add(data.len());
            if end > 1 << 24 {
                return reply.error(Errno::FBIG);
            }
            let length = bytes.len().max(end);
            bytes.resize(length, 0);
            if let Some(room) = bytes.get_mut(from..end) {
                room.copy_from_slice(&data);
            }
        }
        reply.ok(Written(u32::try_from(data.len()).unwrap_or(u32::MAX)));
    }
}

/// Nanoseconds of a WRITE and a READ of `size` bytes, at the front of a file of 1 MiB.
struct Blocks {
    name: &'static str,
    kernel: Kernel,
    writes: Vec<f64>,
    reads: Vec<f64>,
}

impl Blocks {
    fn new(name: &'static str, file_system: Box<dyn FileSystem>) -> Self {
        let mut kernel = Kernel::new(file_system);
        kernel.init();
        kernel.call(
            Opcode::Create,
            1,
            &[CreateIn::default().as_bytes(), b"f\0"].concat(),
        );
        let mut blocks = Self {
            name,
            kernel,
            writes: Vec::new(),
            reads: Vec::new(),
        };
        blocks.time(Opcode::Write, 1 << 20, 1);
        blocks
    }

    fn time(&mut self, opcode: Opcode, size: u32, times: u32) -> f64 {
        let body = if opcode == Opcode::Write {
            let input = WriteIn {
                size,
                ..WriteIn::default()
            };
            [input.as_bytes(), &vec![0; size as usize]].concat()
        } else {
            let input = ReadIn {
                size,
                ..ReadIn::default()
            };
            input.as_bytes().to_vec()
        };
        let began = Instant::now();
        for _ in 0..times {
            self.kernel.send(opcode, 2, &body);
        }
        let took = began.elapsed();
        self.kernel.drain();
        took.as_secs_f64() * 1e9 / f64::from(times)
    }
}

fn measure_crypt(rounds: usize) {
    for (size, times) in [(4096, 500), (128 << 10, 50), (1 << 20, 8)] {
        let crypt = Crypt::with_master(Box::new(Memory::default()), &[1; 32]);
        let mut pair = [
            Blocks::new("memory", Box::new(Memory::default())),
            Blocks::new("crypt", Box::new(crypt)),
        ];
        for _ in 0..rounds {
            for blocks in &mut pair {
                let write = blocks.time(Opcode::Write, size, times);
                blocks.writes.push(write);
                let read = blocks.time(Opcode::Read, size, times);
                blocks.reads.push(read);
            }
        }
        println!("\nREAD and WRITE of {size} bytes");
        let [bare, _] = &pair;
        for blocks in &pair {
            print_row(
                &format!("{} write", blocks.name),
                &blocks.writes,
                &bare.writes,
            );
            print_row(&format!("{} read", blocks.name), &blocks.reads, &bare.reads);
        }
    }
}

fn print_row(name: &str, times: &[f64], bare: &[f64]) {
    let ratios: Vec<_> = times
        .iter()
        .zip(bare)
        .map(|(time, bare)| time / bare)
        .collect();
    println!(
        "{name:<40}{:>9.0}{:>9.0}{:>9.0}{:>8.3}",
        quantile(times, 0.5),
        quantile(times, 0.25),
        quantile(times, 0.75),
        quantile(&ratios, 0.5)
    );
}

/// Nanoseconds a request.
fn batch(kernel: &mut Kernel, read: &[u8]) -> f64 {
    let began = Instant::now();
    for _ in 0..BATCH / 2 {
        kernel.send(Opcode::Lookup, 1, b"name\0");
        kernel.send(Opcode::Read, 2, read);
    }
    let took = began.elapsed();
    kernel.drain();
    took.as_secs_f64() * 1e9 / f64::from(BATCH)
}

/// The value below which this part of the values lies.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1)) as f64 * part;
    sorted.get(at.round() as usize).copied().unwrap_or(f64::NAN)
}

fn measure(rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let input = ReadIn {
        size: 4096,
        ..ReadIn::default()
    };
    let mut measured = Vec::new();
    for (name, file_system) in stacks()? {
        let mut kernel = Kernel::new(file_system);
        kernel.init().ok_or("no answer to INIT")?;
        // The first batch warms caches and allocators.
        batch(&mut kernel, input.as_bytes());
        measured.push((name, kernel, Vec::new()));
    }
    for _ in 0..rounds {
        for (_, kernel, times) in &mut measured {
            times.push(batch(kernel, input.as_bytes()));
        }
    }
    let bare = measured
        .first()
        .map_or(Vec::new(), |(_, _, times)| times.clone());
    println!("{rounds} rounds of {BATCH} requests each, ns a request");
    println!(
        "{:<40}{:>9}{:>9}{:>9}{:>8}",
        "", "median", "q1", "q3", "ratio"
    );
    for (name, _, times) in &measured {
        print_row(name, times, &bare);
    }
    measure_crypt(rounds);
    Ok(())
}

fn main() -> ExitCode {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|rounds| rounds.parse().ok());
    match measure(rounds.unwrap_or(51).max(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
