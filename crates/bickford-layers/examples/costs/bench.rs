//! Requests to a file system without a transport, and their time.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bickford::FileSystem;
use bickford::abi::{InHeader, Opcode};
use bickford::dispatch::Worker;
use bickford::transport::memory::Kernel;
use bickford::transport::{Outgoing, Responder, Ticket};
use zerocopy::IntoBytes;

/// Counts answers, and takes the bytes out of those that are ranges of a file.
#[derive(Default)]
pub(crate) struct Counter {
    pub(crate) answers: AtomicUsize,
    pub(crate) errors: AtomicU64,
}

impl Responder for Counter {
    fn respond(&self, _: Ticket, answer: &Outgoing<'_>) -> io::Result<()> {
        if answer.data.bytes().is_none() {
            std::hint::black_box(answer.data.clone().into_bytes()?);
        }
        let failed = u64::from(answer.error != 0);
        self.errors.fetch_add(failed, Ordering::Relaxed);
        self.answers.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// A file system, and the requests that it is to answer.
pub(crate) struct Bench {
    pub(crate) name: String,
    pub(crate) kernel: Kernel,
    worker: Worker,
    messages: Vec<Vec<u8>>,
    counter: Arc<Counter>,
    responder: Arc<dyn Responder>,
    /// Nanoseconds a request, one for each round.
    pub(crate) times: Vec<f64>,
}

/// What was measured, by name: nanoseconds a request, one for each round.
pub(crate) trait Timed {
    fn name(&self) -> &str;
    fn times(&self) -> &[f64];
}

impl Timed for Bench {
    fn name(&self) -> &str {
        &self.name
    }

    fn times(&self) -> &[f64] {
        &self.times
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

impl Bench {
    /// A session over a file system; requests are added with [`Bench::add`].
    pub(crate) fn new(name: impl Into<String>, file_system: impl FileSystem) -> Outcome<Self> {
        let mut kernel = Kernel::new(file_system);
        let answer = kernel.init().ok_or("no answer to INIT")?;
        if answer.error != 0 {
            return Err(format!("INIT: errno {}", -answer.error).into());
        }
        let counter = Arc::<Counter>::default();
        Ok(Self {
            name: name.into(),
            worker: kernel.server().worker(1),
            kernel,
            messages: Vec::new(),
            responder: counter.clone(),
            counter,
            times: Vec::new(),
        })
    }

    /// One more request for each turn.
    pub(crate) fn add(&mut self, opcode: Opcode, node: u64, body: &[u8]) {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: opcode as u32,
            unique: 2,
            nodeid: node,
            ..InHeader::default()
        };
        self.messages.push([header.as_bytes(), body].concat());
    }

    /// Sends all requests, `turns` times over, and waits for their answers. Numbers differ, and no
    /// more are under way than a session takes.
    pub(crate) fn round(&mut self, turns: usize) -> Outcome {
        let server = Arc::clone(self.kernel.server());
        let before = self.counter.answers.load(Ordering::Acquire);
        let mut sent = 0;
        let began = Instant::now();
        for _ in 0..turns {
            for message in &mut self.messages {
                sent += 1;
                let unique = (2 * sent as u64).to_ne_bytes();
                if let Some(place) = message.get_mut(8..16) {
                    place.copy_from_slice(&unique);
                }
                server.process_bytes(&self.worker, message, &self.responder);
                while before + sent > self.counter.answers.load(Ordering::Acquire) + 256 {
                    std::thread::yield_now();
                }
            }
        }
        while self.counter.answers.load(Ordering::Acquire) < before + sent {
            std::thread::yield_now();
        }
        let took = began.elapsed();
        match self.counter.errors.load(Ordering::Relaxed) {
            0 => self.times.push(took.as_secs_f64() * 1e9 / sent as f64),
            errors => return Err(format!("{}: {errors} requests failed", self.name).into()),
        }
        Ok(())
    }
}

/// Rounds of all, one after the other in each, so that what changes on the machine changes for all.
/// The first warms caches and is not counted.
pub(crate) fn interleave(benches: &mut [Bench], rounds: usize, turns: usize) -> Outcome {
    for round in 0..=rounds {
        for bench in benches.iter_mut() {
            bench.round(turns)?;
            if round == 0 {
                bench.times.clear();
            }
        }
    }
    Ok(())
}
