//! Leases that others hold on lower files keep those waiting who open these, and nobody else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford_stackfs::IoMode;
use support::{Mount, each_preset};

/// More than there are threads that serve.
const LEASED: usize = 64;

/// Takes leases for writing (`F_SETLEASE`) on its arguments and keeps them while its input is open.
const HOLD: &str = r#"
    $SIG{IO} = "IGNORE";
    for $path (@ARGV) {
        open($files{$path}, "+<", $path) or die "$path: $!";
        fcntl($files{$path}, 1024, 1) or die "lease of $path: $!";
    }
    $| = 1;
    print "held\n";
    <STDIN>;
"#;

fn perl(script: &str, paths: &[PathBuf]) -> Command {
    let mut command = Command::new("perl");
    command.args(["-e", script]).args(paths);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that is ended with the test.
struct Running(Child);

impl Running {
    fn new(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn output(&mut self) -> String {
        let mut line = String::new();
        let mut output = BufReader::new(self.0.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn waiting(mount: &Mount, opcode: Opcode) -> usize {
    let in_flight = mount.session.server().in_flight().list();
    in_flight
        .iter()
        .filter(|request| request.opcode == opcode)
        .count()
}

#[test]
fn leases_hold_up_those_alone_who_open_the_files() {
    each_preset(|mount| {
        let names: Vec<_> = (0..LEASED).map(|number| number.to_string()).collect();
        for name in &names {
            fs::write(mount.below(name), name).unwrap();
        }
        fs::write(mount.below("free"), "free").unwrap();
        let below: Vec<_> = names.iter().map(|name| mount.below(name)).collect();
        let mut holder = Running::new(perl(HOLD, &below));
        assert_eq!(holder.output(), "held\n");
        // One is truncated, the others are read.
        let truncated = Running::new(perl(
            "truncate($ARGV[0], 0) or die $!",
            &[mount.path(&names[0])],
        ));
        let mut readers: Vec<_> = names[1..]
            .iter()
            .map(|name| Running::new(perl("print <>", &[mount.path(name)])))
            .collect();
        let asked = match mount.stackfs.io_mode() {
            IoMode::Cached => Opcode::Read,
            _ => Opcode::Open,
        };
        // Far less than what the kernel gives the holder, which is 45 s.
        let soon = Duration::from_secs(15);
        within(soon, "all wait", || {
            waiting(mount, asked) == LEASED - 1 && waiting(mount, Opcode::Setattr) == 1
        });
        let begin = Instant::now();
        assert_eq!(fs::read_to_string(mount.path("free")).unwrap(), "free");
        // Whoever is killed waits no longer.
        drop(readers.pop());
        within(soon, "one has been killed", || {
            waiting(mount, asked) == LEASED - 2
        });
        assert!(begin.elapsed() < soon);
        drop(holder);
        for (reader, name) in readers.iter_mut().zip(&names[1..]) {
            assert_eq!(reader.output(), *name);
        }
        let size = || fs::metadata(mount.below(&names[0])).unwrap().len();
        within(soon, "the file is truncated", || size() == 0);
        drop(truncated);
    });
}
