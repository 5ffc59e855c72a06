//! The binding for Python (`bindings/python`), with the library as it is built here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail so")]

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The tests give up each hanging mount after a minute.
const DEADLINE: Duration = Duration::from_secs(600);

fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn has_python() -> bool {
    let recent = "import sys; sys.exit(sys.version_info < (3, 9))";
    let found = Command::new("python3").args(["-c", recent]).status();
    let found = found.is_ok_and(|status| status.success());
    let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !found {
        say(format_args!("skipped: needs Python 3.9 or later (python3)"));
    } else if !may {
        say(format_args!("skipped: needs root and /dev/fuse"));
    }
    found && may
}

#[test]
fn the_tests_of_the_binding_pass() {
    if !has_python() {
        return;
    }
    let binding = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    // Before Python 3.12 none to be found is no failure.
    assert!(binding.join("tests/test_mounts.py").exists());
    let library = std::env::current_exe().unwrap();
    let mut child = Command::new("python3")
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(binding.join("tests"))
        .env("PYTHONPATH", &binding)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(
            "BICKFORD_LIBRARY",
            library.with_file_name("libbickford_ffi.so"),
        )
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "the tests in Python: {status}");
            return;
        }
        if Instant::now() > until {
            let group = Pid::from_child(&child);
            let _ = kill_process_group(group, Signal::KILL);
            panic!("the tests in Python did not end within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
