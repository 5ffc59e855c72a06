//! Leases that others hold on lower files keep those waiting who open these, and nobody else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford_stackfs::{IoMode, Preset};
use rustix::fs::FlockOperation;
use support::leased::{FOR_READING, FOR_WRITING, Running, perl, waiting};
use support::{Mount, can_mount, each_preset, until};

/// More than there are threads that serve.
const LEASED: usize = 64;
/// Less than what the kernel gives the holder, which is 45 s.
const SOON: Duration = Duration::from_secs(40);

#[test]
fn leases_hold_up_those_alone_who_open_the_files() {
    each_preset(|mount| {
        let names: Vec<_> = (0..LEASED).map(|number| number.to_string()).collect();
        for name in &names {
            fs::write(mount.below(name), name).unwrap();
        }
        fs::write(mount.below("free"), "free").unwrap();
        let holder = Running::holding(FOR_WRITING, names.iter().map(|name| mount.below(name)));
        // One is truncated, the others are read.
        let truncated = Running::new(perl(
            "truncate($ARGV[0], 0) or die $!",
            &[mount.path(&names[0])],
        ));
        let read = |name| Running::new(perl("print <>", &[mount.path(name)]));
        let mut readers: Vec<_> = names[2..].iter().map(read).collect();
        let asked = match mount.stackfs.io_mode() {
            IoMode::Cached => Opcode::Read,
            _ => Opcode::Open,
        };
        // Each sooner than the kernel takes the leases away, after 45 s.
        until("all wait but one", || {
            waiting(mount, asked) == LEASED - 2 && waiting(mount, Opcode::Setattr) == 1
        });
        // The first are read ahead with `--io cached`, which no signal interrupts; the last is not, as too much is.
        let last = read(&names[1]);
        until("all wait", || waiting(mount, asked) == LEASED - 1);
        let begin = Instant::now();
        assert_eq!(fs::read_to_string(mount.path("free")).unwrap(), "free");
        // Whoever is killed waits no longer.
        drop(last);
        until("one has been killed", || {
            waiting(mount, asked) == LEASED - 2
        });
        assert!(begin.elapsed() < SOON);
        drop(holder);
        for (reader, name) in readers.iter_mut().zip(&names[2..]) {
            assert_eq!(reader.output(), *name);
        }
        let size = || fs::metadata(mount.below(&names[0])).unwrap().len();
        until("the file is truncated", || size() == 0);
        drop(truncated);
    });
}

#[test]
fn a_lock_for_reading_does_not_wait_for_leases_for_reading() {
    if !can_mount() {
        return;
    }
    // Served by one thread, and with the locks kept below.
    let mount = Mount::new(Preset::Base);
    fs::write(mount.below("file"), "text").unwrap();
    let holder = Running::holding(FOR_READING, [mount.below("file")]);
    let file = fs::File::open(mount.path("file")).unwrap();
    let begin = Instant::now();
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    assert!(begin.elapsed() < SOON);
    drop(holder);
    let mut options = fs::OpenOptions::new();
    let below = options.write(true).open(mount.below("file")).unwrap();
    let taken = rustix::fs::fcntl_lock(&below, FlockOperation::NonBlockingLockExclusive);
    assert!(taken.is_err(), "the lock is there below");
}
