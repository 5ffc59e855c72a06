//! What handlers of 10 ms do to others: latency of quick LOOKUPs over each transport, without and
//! beside slow ones, and over io_uring also with a file system that says it is prompt.
//! `cargo bench -p bickford --bench slow_handler`

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::transport::TransportChoice;
use bickford::{Blocking, Context, Errno, NodeId, SessionConfig};

const SLOW: Duration = Duration::from_millis(10);
const RUN: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3600);

struct Names {
    prompt: bool,
}

impl bickford::filesystem::blocking::FileSystem for Names {
    fn is_prompt(&self) -> bool {
        self.prompt
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let name = op.name.to_bytes();
        let number = u64::from(name.last().copied().unwrap_or_default());
        if name.first() == Some(&b's') {
            thread::sleep(SLOW);
        }
        let mut entry = Entry::new(NodeId(2 + number), Attr::file(2 + number, 0o644, 0), HOUR);
        entry.entry_valid = Duration::ZERO;
        Ok(entry)
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: Attr::directory(op.node.0, 0o755),
            valid: HOUR,
        })
    }
}

/// Latencies in nanoseconds of `quick` clients beside `slow` ones, sorted.
fn measure(fixture: &support::Fixture, quick: u8, slow: u8) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    let mut all = thread::scope(|scope| {
        for client in 0..slow {
            let path = fixture.path(&format!("s{}", char::from(b'A' + client)));
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = rustix::fs::stat(&path);
                }
            });
        }
        let clients: Vec<_> = (0..quick)
            .map(|client| {
                let path = fixture.path(&format!("q{}", char::from(b'a' + client)));
                scope.spawn(move || {
                    let mut times = Vec::new();
                    let start = Instant::now();
                    while start.elapsed() < RUN {
                        let begin = Instant::now();
                        let _ = rustix::fs::stat(&path);
                        times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
                        thread::sleep(Duration::from_micros(100));
                    }
                    times
                })
            })
            .collect();
        let times: Vec<_> = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap_or_default())
            .collect();
        stop.store(true, Ordering::Relaxed);
        times
    });
    all.sort_unstable();
    all
}

fn main() {
    if !support::can_mount() {
        return;
    }
    let mut transports = vec![(TransportChoice::DevFuse, false)];
    if support::can_use_io_uring() {
        transports.extend([false, true].map(|prompt| (TransportChoice::IoUring, prompt)));
    }
    println!("latency of quick requests in us");
    println!(
        "transport        quick slow  requests       p50       p99     p99.9       max  threads"
    );
    for (transport, prompt) in transports {
        let config = SessionConfig::default().transport(transport);
        let fixture = support::Fixture::new(Blocking(Names { prompt }), config);
        // The first run is discarded.
        measure(&fixture, 2, 2);
        for (quick, slow) in [(2, 0), (2, 1), (2, 2), (2, 4), (8, 8)] {
            let times = measure(&fixture, quick, slow);
            let at = |part: f64| {
                let index = (times.len() as f64 * part) as usize;
                times.get(index.min(times.len() - 1)).copied().unwrap_or(0) as f64 / 1000.0
            };
            println!(
                "{:<15} {quick:>6} {slow:>4} {:>9} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>8}",
                format!("{transport:?}{}", if prompt { " prompt" } else { "" }),
                times.len(),
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0),
                fixture.session().worker_count(),
            );
        }
        fixture.finish();
    }
}
