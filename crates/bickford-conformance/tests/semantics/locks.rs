//! Several processes and one file: its locks.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use bickford_conformance::{LockKind, locked_by, record_lock, run, wait_for};
use rustix::fs::FlockOperation;

use super::{Check, Seen, saw};

/// How long what was given up may still be on its way.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const CHECKS: &[Check] = &[
    ("whole-locks", whole_locks),
    ("whole-locks-of-readers", whole_locks_of_readers),
    ("record-locks", record_locks),
    ("record-locks-of-several", record_locks_of_several),
    (
        "record-locks-and-inherited-handles",
        record_locks_and_inherited_handles,
    ),
    ("record-locks-in-deadlock", record_locks_in_deadlock),
    (
        "record-locks-in-deadlock-later",
        record_locks_in_deadlock_later,
    ),
];

/// What another process gets that tries to lock without waiting.
fn other_process(kind: &str, path: &Path) -> String {
    let worker = env!("CARGO_BIN_EXE_conformance-worker");
    run(Command::new(worker).args(["try-lock", kind]).arg(path)).output
}

/// A new file, open for reading and writing.
fn new_file(top: &Path) -> (PathBuf, File) {
    let path = top.join("file");
    fs::write(&path, "").expect("create");
    let file = open(&path);
    (path, file)
}

fn open(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path);
    file.expect("open")
}

type Lock = fn(&File, FlockOperation) -> rustix::io::Result<()>;

/// What another process gets while this one has a lock of `kind` and changes it.
fn one_after_the_other(top: &Path, kind: &str, lock: Lock) -> Seen {
    let mut seen = Seen::new();
    let (path, file) = new_file(top);
    let shared = format!("{kind}-shared");
    saw!(seen, other_process(kind, &path));
    saw!(seen, lock(&file, FlockOperation::LockExclusive));
    saw!(seen, other_process(kind, &path));
    saw!(seen, other_process(&shared, &path));
    saw!(seen, lock(&file, FlockOperation::LockShared));
    saw!(seen, other_process(&shared, &path));
    saw!(seen, other_process(kind, &path));
    saw!(seen, lock(&file, FlockOperation::Unlock));
    saw!(seen, other_process(kind, &path));
    saw!(seen, lock(&file, FlockOperation::LockExclusive));
    drop(file);
    saw!(seen, freed(kind, &path));
    seen
}

fn whole_locks(top: &Path) -> Seen {
    one_after_the_other(top, "flock", |file, how| rustix::fs::flock(file, how))
}

/// Such a lock belongs to one open, not to all that may share what is below it.
fn whole_locks_of_readers(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "").expect("create");
    let [first, second, third] = [(); 3].map(|()| File::open(&path).expect("open"));
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    let shared = FlockOperation::NonBlockingLockShared;
    saw!(seen, rustix::fs::flock(&first, exclusive));
    saw!(seen, rustix::fs::flock(&second, exclusive));
    saw!(seen, rustix::fs::flock(&third, shared));
    saw!(seen, rustix::fs::flock(&first, shared));
    saw!(seen, rustix::fs::flock(&second, shared));
    saw!(seen, rustix::fs::flock(&third, exclusive));
    saw!(seen, rustix::fs::flock(&first, FlockOperation::Unlock));
    drop(second);
    let gone = wait_for(PATIENCE, || rustix::fs::flock(&third, exclusive).is_ok());
    saw!(seen, gone);
    seen
}

fn record_locks(top: &Path) -> Seen {
    one_after_the_other(top, "record", |file, how| rustix::fs::fcntl_lock(file, how))
}

/// A process that holds a lock until it is told to go on, which is after each line it has written.
struct Holding {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holding {
    /// Takes a lock of `kind`; `rest` is the range, and perhaps a byte more.
    fn start(kind: &str, path: &Path, rest: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-worker"));
        command.args(["hold-lock", kind]).arg(path).args(rest);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::of(command)
    }

    /// Waits until the process that is started so holds its lock.
    fn of(mut command: Command) -> Self {
        let mut process = command.spawn().expect("worker");
        let output = process.stdout.take().expect("output");
        let lines = BufReader::new(output).lines();
        let mut holding = Self { process, lines };
        assert_eq!(holding.line(), "held");
        holding
    }

    fn line(&mut self) -> String {
        let line = self.lines.next().expect("a line");
        line.expect("text")
    }

    fn go_on(&mut self) {
        let mut input = self.process.stdin.as_ref().expect("input");
        input.write_all(b"\n").expect("write");
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Who holds a lock is told, whoever else holds others.
fn record_locks_of_several(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let (path, file) = new_file(top);
    let holding = [
        ("read", ["0", "10"]),
        ("read", ["5", "15"]),
        ("write", ["30", "10"]),
        ("read", ["50", "0"]),
    ];
    let mut holding = holding.map(|(kind, range)| Holding::start(kind, &path, &range));
    let mut ask = |from: &[Holding]| {
        for (start, length) in [
            (0, 0),
            (2, 1),
            (7, 1),
            (15, 1),
            (25, 1),
            (32, 1),
            (35, 20),
            (99, 1),
        ] {
            let process = locked_by(&file, start, length).expect("F_GETLK");
            let holder = process.map(|id| {
                let found = from
                    .iter()
                    .position(|one| one.process.id().cast_signed() == id);
                found.ok_or(id)
            });
            saw!(seen, (start, length, holder));
        }
    };
    ask(&holding);
    let [first, ..] = &mut holding;
    first.go_on();
    first.process.wait().expect("wait");
    let is_free = || locked_by(&file, 2, 1).expect("F_GETLK").is_none();
    assert!(wait_for(PATIENCE, is_free));
    ask(&holding);
    seen
}

/// A process closes a file that another has inherited, and locks it through another handle: that the other
/// process closes the first changes nothing.
fn record_locks_and_inherited_handles(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let (path, first) = new_file(top);
    let other = top.join("other");
    fs::write(&other, "").expect("create");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-worker"));
    command.args(["hold-lock", "write"]).arg(&other);
    command.args(["0", "1"]).stdin(Stdio::piped());
    command.stdout(Stdio::piped());
    command.stderr(first.try_clone().expect("duplicate"));
    let mut holding = Holding::of(command);
    let lock =
        |file: &File| record_lock(file, LockKind::Write, 0, 1).map_err(|error| error.to_string());
    saw!(seen, lock(&first), other_process("record", &path));
    drop(first);
    saw!(seen, other_process("record", &path));
    let second = open(&path);
    saw!(seen, lock(&second));
    holding.go_on();
    holding.process.wait().expect("wait");
    for _ in 0..20 {
        saw!(seen, other_process("record", &path));
    }
    drop(second);
    saw!(seen, freed("record", &path));
    seen
}

/// Two processes that wait for each other: one is refused, and the other gets its lock then.
fn record_locks_in_deadlock(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let (path, file) = new_file(top);
    for _ in 0..5 {
        let mut other = Holding::start("write", &path, &["0", "1", "1", "1"]);
        record_lock(&file, LockKind::Write, 1, 1).expect("lock");
        other.go_on();
        let here = record_lock(&file, LockKind::Write, 0, 1).map_err(|error| error.to_string());
        if here.is_err() {
            record_lock(&file, LockKind::Unlock, 1, 1).expect("unlock");
        }
        let there = other.line();
        // Whoever began to wait last.
        let mut outcomes = [here.err().unwrap_or("held".into()), there];
        outcomes.sort();
        saw!(seen, outcomes);
        record_lock(&file, LockKind::Unlock, 0, 0).expect("unlock");
    }
    seen
}

/// One waits for a lock behind which there is another, and only once the first is given up do two wait for
/// each other.
fn record_locks_in_deadlock_later(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let (path, file) = new_file(top);
    for _ in 0..5 {
        let mut first = Holding::start("write", &path, &["0", "1"]);
        record_lock(&file, LockKind::Write, 1, 1).expect("lock");
        let mut other = Holding::start("write", &path, &["2", "1", "0", "2"]);
        other.go_on();
        let releasing = std::thread::spawn(move || {
            // Until both wait, or else it is the plain case.
            std::thread::sleep(Duration::from_millis(100));
            first.go_on();
            first.process.wait().expect("wait");
        });
        let here = record_lock(&file, LockKind::Write, 2, 1).map_err(|error| error.to_string());
        if here.is_err() {
            record_lock(&file, LockKind::Unlock, 1, 1).expect("unlock");
        }
        let mut outcomes = [here.err().unwrap_or("held".into()), other.line()];
        outcomes.sort();
        saw!(seen, outcomes);
        releasing.join().expect("release");
        drop(other);
        record_lock(&file, LockKind::Unlock, 0, 0).expect("unlock");
    }
    seen
}

/// Whether another process gets a lock whose holder has closed the file. The close of a mount's file
/// may be on its way still.
fn freed(kind: &str, path: &Path) -> bool {
    wait_for(PATIENCE, || other_process(kind, path) == "locked\n")
}
