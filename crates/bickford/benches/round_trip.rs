//! Time of one uncached LOOKUP over each transport, in pairs: `cargo bench -p bickford --bench
//! round_trip`. The first round is discarded.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::transport::TransportChoice;
use bickford::{Blocking, Context, Errno, NodeId, SessionConfig};

struct Names;

impl bickford::filesystem::blocking::FileSystem for Names {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let number = op.name.to_bytes().get(1).copied().unwrap_or(b'0');
        let node = 2 + u64::from(number);
        let mut entry = Entry::new(
            NodeId(node),
            Attr::file(node, 0o644, 0),
            Duration::from_secs(3600),
        );
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

const ROUNDS: usize = 7;
const OPERATIONS: usize = 40_000;

/// Nanoseconds of one operation as `clients` threads see it together.
fn measure(fixture: &support::Fixture, clients: usize) -> f64 {
    let barrier = Barrier::new(clients + 1);
    let each = OPERATIONS / clients;
    thread::scope(|scope| {
        for client in 0..clients {
            let path = fixture.path(&format!("f{}", char::from(b'A' + client as u8)));
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..each {
                    let _ = rustix::fs::stat(&path);
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        start.elapsed().as_nanos() as f64 / (each * clients) as f64
    })
}

fn main() {
    if !support::can_mount() {
        return;
    }
    let mut transports = vec![TransportChoice::DevFuse];
    if support::can_use_io_uring() {
        transports.push(TransportChoice::IoUring);
    }
    let fixtures: Vec<_> = transports
        .iter()
        .map(|transport| {
            let config = SessionConfig::default().transport(*transport);
            (*transport, support::Fixture::new(Blocking(Names), config))
        })
        .collect();
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10}",
        "clients", "transport", "median_ns", "min_ns", "max_ns"
    );
    for clients in [1, 2, 8, 32] {
        let mut results = vec![Vec::new(); fixtures.len()];
        for round in 0..=ROUNDS {
            for (row, (_, fixture)) in results.iter_mut().zip(&fixtures) {
                let time = measure(fixture, clients);
                if round > 0 {
                    row.push(time);
                }
            }
        }
        for (row, (transport, fixture)) in results.iter_mut().zip(&fixtures) {
            row.sort_by(f64::total_cmp);
            println!(
                "{clients:>8} {:>10} {:>10.0} {:>10.0} {:>10.0}   threads {}",
                format!("{transport:?}"),
                row[row.len() / 2],
                row[0],
                row[row.len() - 1],
                fixture.session().worker_count(),
            );
        }
    }
    for (_, fixture) in fixtures {
        fixture.finish();
    }
}
