//! Which mounts are left when one of the two processes of a mount in the background ends too early: none.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};

use common::{
    Place, Running, assert_refused, assert_silent, bickford, run, stderr, stop, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

/// Keeps who waits for the mount waiting, which asks for its statistics.
const SLOW: &str = "delay:statfs=100s";

/// Where the process that waits is in its own call, and the daemon in the background serves the mount.
fn waiting(place: &Place) -> (Child, Pid) {
    // Whoever runs the tests in the background of a shell may have them ignore SIGINT.
    waiting_with_signals(place, "--default-signal")
}

/// The same with an option of env(1) about signals.
fn waiting_with_signals(place: &Place, signals: &str) -> (Child, Pid) {
    let mut command = Command::new("env");
    command.args([signals, env!("CARGO_BIN_EXE_bickford")]);
    command.args(["mount", "--log", "off", "--layer", SLOW]);
    command.args([place.source(), place.mountpoint()]);
    let front = command.stderr(Stdio::piped()).spawn().unwrap();
    let own = Pid::from_child(&front);
    let mut daemon = None;
    wait_until("the mount is asked for its statistics", || {
        daemon = in_the_background(own);
        daemon.is_some_and(serves) && is_asking(own)
    });
    (front, daemon.unwrap())
}

fn in_the_background(front: Pid) -> Option<Pid> {
    let front = front.as_raw_nonzero();
    let path = format!("/proc/{front}/task/{front}/children");
    let children = fs::read_to_string(path).ok()?;
    let first = children.split_whitespace().next()?;
    Pid::from_raw(first.parse().ok()?)
}

/// A daemon leaves the directory of whoever started it just before it says that it is ready.
fn serves(daemon: Pid) -> bool {
    let cwd = fs::read_link(format!("/proc/{}/cwd", daemon.as_raw_nonzero()));
    cwd.is_ok_and(|path| path.as_os_str() == "/")
}

fn is_asking(front: Pid) -> bool {
    let wchan = fs::read_to_string(format!("/proc/{}/wchan", front.as_raw_nonzero()));
    wchan.is_ok_and(|name| name.contains("request_wait") || name.contains("fuse"))
}

fn is_gone(process: Pid) -> bool {
    !std::path::Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists()
}

#[test]
fn a_daemon_whose_front_is_ended_takes_its_mount_away() {
    let Some(place) = Place::new() else { return };
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::KILL] {
        let (mut front, daemon) = waiting(&place);
        kill_process(Pid::from_child(&front), signal).unwrap();
        assert!(!front.wait().unwrap().success(), "{signal:?}");
        wait_until("the daemon ends", || is_gone(daemon));
        assert_eq!(place.listed(), None, "{signal:?}");
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_is_waited_for_leaves_no_mount() {
    let Some(place) = Place::new() else { return };
    for signals in ["--default-signal", "--ignore-signal=CHLD"] {
        let (front, daemon) = waiting_with_signals(&place, signals);
        kill_process(daemon, Signal::KILL).unwrap();
        let output = Running::of(front).output();
        assert_refused(&output, 1, &["mnt", "does not answer", "taken away"]);
        assert_eq!(place.listed(), None);
    }
}

#[test]
fn a_start_that_fails_for_want_of_memory_leaves_no_mount() {
    let Some(place) = Place::new() else { return };
    let script = "ulimit -v $1; shift; exec \"$@\"";
    for kib in (18_000..60_000).step_by(2_000) {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", &kib.to_string()]);
        command.args([env!("CARGO_BIN_EXE_bickford"), "mount", "--preset", "opt"]);
        let output = run(command.args([place.source(), place.mountpoint()]));
        let left = place.listed().is_some();
        assert_eq!(left, output.status.success(), "{kib} KiB: {output:?}");
        let said = stderr(&output);
        let told = !said.contains("did not begin") || said.contains("ulimit -v");
        assert!(told, "{kib} KiB: {said}");
        if left {
            assert_silent(&run(bickford()
                .args(["unmount", "-z"])
                .arg(place.mountpoint())));
        }
    }
}

#[test]
fn a_mount_that_answers_with_errors_is_kept() {
    let Some(place) = Place::new() else { return };
    for operations in ["all", "metadata", "getattr", "statfs"] {
        let layer = format!("fault:op={operations},errno=EIO");
        assert_silent(&place.mount(&["--layer", &layer]));
        place.unmount(&place.mountpoint());
    }
}

#[test]
fn a_mount_whose_connection_has_ended_is_taken_away() {
    let Some(place) = Place::new() else { return };
    let output = place.mount(&["--layer", "fault:op=all,errno=ENOTCONN"]);
    assert_refused(&output, 1, &["does not answer", "taken away"]);
    assert!(!stderr(&output).contains("mounted, but"), "{output:?}");
    assert_eq!(place.listed(), None);
}

#[test]
fn a_mode_that_a_layer_turns_off_is_refused_because_of_it() {
    let Some(place) = Place::new() else { return };
    let modes = [("cached", "io=plain"), ("passthrough", "io=auto")];
    for (io, instead) in modes {
        if io == "passthrough" && !common::passes_through() {
            common::say(format_args!("left out: Linux passes through from 6.9 on"));
            continue;
        }
        let output = place.mount(&["--io", io, "--layer", "throttle:ops=1000000"]);
        assert_refused(&output, 1, &["a layer needs", instead]);
        assert!(!stderr(&output).contains("Linux"), "{output:?}");
    }
}

#[test]
fn a_start_that_hangs_ends_with_who_waits_for_it() {
    let Some(place) = Place::new() else { return };
    let served = place.mount_in_foreground(&["--preset", "base"]);
    stop(served.pid());
    let mut command = bickford();
    command.args(["mount", "--preset", "base"]);
    command.arg(place.source()).arg(place.mountpoint());
    let mut front = command.stderr(Stdio::piped()).spawn().unwrap();
    let own = Pid::from_child(&front);
    let mut daemon = None;
    wait_until("the daemon hangs", || {
        daemon = in_the_background(own);
        daemon.is_some_and(is_asking)
    });
    kill_process(own, Signal::TERM).unwrap();
    front.wait().unwrap();
    wait_until("the daemon ends", || is_gone(daemon.unwrap()));
    kill_process(served.pid(), Signal::CONT).unwrap();
    assert!(place.listed().is_some());
}

#[test]
fn a_log_that_nobody_reads_is_refused() {
    let Some(place) = Place::new() else { return };
    let fifo = place.dir().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
    let output = place.mount(&["--log-file", fifo.to_str().unwrap()]);
    assert_refused(&output, 1, &["--log-file", "fifo", "nobody reads"]);
    assert_eq!(place.listed(), None);
}
