//! What the instrumentation costs a request: the recorder by itself, a request over the memory
//! transport with it, and the LOOKUP round trip of a mount it is held against: `cargo bench -p bickford
//! --bench trace`. The first round is discarded. The mounts need root; without it they are left out.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::trace::Recorder;
use bickford::transport::TransportChoice;
use bickford::transport::memory::Kernel;
use bickford::{Blocking, Context, Errno, NodeId, SessionConfig};

struct Names;

impl bickford::filesystem::blocking::FileSystem for Names {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>) -> Result<Entry, Errno> {
        let hour = Duration::from_secs(3600);
        let mut entry = Entry::new(NodeId(2), Attr::file(2, 0o644, 0), hour);
        entry.entry_valid = Duration::ZERO;
        Ok(entry)
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: Attr::directory(op.node.0, 0o755),
            valid: Duration::from_secs(3600),
        })
    }
}

const ROUNDS: usize = 9;

/// Nanoseconds of one of `count` calls.
fn each(count: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn main() {
    let recorder = Recorder::default();
    let mut kernel = Kernel::new(Blocking(Names));
    kernel.init().expect("INIT over the memory transport");
    let mut mounts = Vec::new();
    if support::can_mount() {
        mounts.push(TransportChoice::DevFuse);
        if support::can_use_io_uring() {
            mounts.push(TransportChoice::IoUring);
        }
    }
    let fixtures: Vec<_> = mounts
        .iter()
        .map(|transport| {
            let config = SessionConfig::default().transport(*transport);
            support::Fixture::new(Blocking(Names), config)
        })
        .collect();
    let mut names = vec!["recorder".to_owned(), "memory LOOKUP".to_owned()];
    names.extend(
        mounts
            .iter()
            .map(|transport| format!("{transport:?} LOOKUP")),
    );
    let mut times = vec![Vec::new(); names.len()];
    for round in 0..=ROUNDS {
        let mut now = vec![
            each(1_000_000, || recorder.rehearse(black_box(Opcode::Lookup))),
            each(100_000, || {
                black_box(kernel.call(Opcode::Lookup, 1, b"name\0"));
            }),
        ];
        for fixture in &fixtures {
            let path = fixture.path("name");
            now.push(each(20_000, || {
                black_box(rustix::fs::stat(&path)).ok();
            }));
        }
        if round > 0 {
            times
                .iter_mut()
                .zip(now)
                .for_each(|(all, time)| all.push(time));
        }
    }
    println!(
        "{:>18} {:>10} {:>10} {:>10} {:>18}",
        "", "median_ns", "min_ns", "max_ns", "recorder's share"
    );
    let mut recorded = 0.0;
    for (name, mut all) in names.into_iter().zip(times) {
        all.sort_by(f64::total_cmp);
        let median = all[all.len() / 2];
        if name == "recorder" {
            recorded = median;
        }
        println!(
            "{name:>18} {median:>10.1} {:>10.1} {:>10.1} {:>17.2}%",
            all[0],
            all[all.len() - 1],
            100.0 * recorded / median,
        );
    }
    for fixture in fixtures {
        fixture.finish();
    }
}
