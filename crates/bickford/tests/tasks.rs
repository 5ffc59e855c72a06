//! A mounted file system over paths with asynchronous methods: hundreds of readers of other
//! processes wait at once on two threads, and one of them is killed.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bickford::ops::{Attr, Data};
use bickford::path::future::{Adapter, FileSystem, Task};
use bickford::path::{Options, Subject};
use bickford::{Context, Errno, Result, SessionConfig};
use support::{Fixture, over_each_transport, wait_until};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

const READERS: u64 = 300;
const THREADS: usize = 2;
/// Bytes of each file.
const SIZE: u64 = 10_000;

/// How the reads have gone.
#[derive(Default)]
struct Reads {
    waiting: AtomicUsize,
    answered: AtomicUsize,
    /// Futures that were dropped before they answered.
    dropped: AtomicUsize,
}

/// One read, from when it begins to wait.
struct Waiting<'a> {
    reads: &'a Reads,
    answers: bool,
}

impl<'a> Waiting<'a> {
    fn new(reads: &'a Reads) -> Self {
        reads.waiting.fetch_add(1, Ordering::SeqCst);
        Self {
            reads,
            answers: false,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let ended = if self.answers {
            &self.reads.answered
        } else {
            &self.reads.dropped
        };
        // In this order: who sees an end sees one less waiting.
        self.reads.waiting.fetch_sub(1, Ordering::SeqCst);
        ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// Files with numbers for names, each read of which waits for a permit.
struct Slow {
    permits: Arc<Semaphore>,
    reads: Arc<Reads>,
}

/// Bytes that tell their file and place.
fn content(number: u64) -> Vec<u8> {
    (0..SIZE).map(|at| (at * 7 + number * 31) as u8).collect()
}

fn number(path: &Path) -> Result<u64> {
    let name = path.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.parse().ok());
    number.ok_or(Errno::NOENT)
}

impl FileSystem for Slow {
    async fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        let path = subject.path()?;
        if path.parent().is_none() {
            return Ok(Attr::directory(1, 0o755));
        }
        Ok(Attr::file(0, 0o444, number(path).map(|_| SIZE)?))
    }

    async fn read(&self, _: &Context<'_>, file: Subject<'_>, at: u64, size: u32) -> Result<Data> {
        let number = number(file.path()?)?;
        let mut waiting = Waiting::new(&self.reads);
        let permit = self.permits.acquire().await.map_err(|_| Errno::IO)?;
        permit.forget();
        waiting.answers = true;
        Ok(Data::part(content(number), at, size))
    }
}

/// A process that reads one file whole with one read(2).
fn reader(fixture: &Fixture, number: u64) -> Child {
    Command::new("dd")
        .arg(format!(
            "if={}",
            fixture.path(&number.to_string()).display()
        ))
        .args(["bs=64K", "count=1", "status=none"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn one_of_hundreds_is_killed(config: SessionConfig) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .build()
        .unwrap();
    let (permits, reads) = (Arc::new(Semaphore::new(0)), Arc::<Reads>::default());
    let slow = Slow {
        permits: Arc::clone(&permits),
        reads: Arc::clone(&reads),
    };
    // One read(2) is one request, whose waiting nothing but its own caller can see.
    let options = Options {
        direct_io: true,
        ..Options::default()
    };
    let handle = runtime.handle().clone();
    let adapter = Adapter::new(slow, options, move |task: Task| drop(handle.spawn(task)));
    let fixture = Fixture::new(adapter, config);
    let waiting = || reads.waiting.load(Ordering::SeqCst);

    let mut readers: Vec<(u64, Child)> = (1..=READERS)
        .map(|number| (number, reader(&fixture, number)))
        .collect();
    wait_until("all readers wait", || waiting() == READERS as usize);
    // Somebody who reads nothing waits for none of them.
    let size = std::fs::metadata(fixture.path("1000")).unwrap().len();
    assert_eq!(size, SIZE);

    let (_, mut killed) = readers.swap_remove(READERS as usize / 2);
    killed.kill().unwrap();
    // Its end is the answer to its read: until then the kernel does not let it go.
    wait_until("its read is dropped", || {
        reads.dropped.load(Ordering::SeqCst) == 1
    });
    assert!(!killed.wait().unwrap().success());
    assert_eq!(waiting(), READERS as usize - 1, "and no other");
    assert_eq!(reads.answered.load(Ordering::SeqCst), 0);

    permits.add_permits(READERS as usize - 1);
    for (number, reader) in readers {
        let output = reader.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        let right = output.stdout == content(number);
        assert!(right, "{number}: {} bytes", output.stdout.len());
    }
    assert_eq!(reads.answered.load(Ordering::SeqCst), READERS as usize - 1);
    assert_eq!(reads.dropped.load(Ordering::SeqCst), 1);
    fixture.finish();
}

#[test]
fn one_of_hundreds_of_waiting_readers_is_killed() {
    over_each_transport(one_of_hundreds_is_killed);
}
