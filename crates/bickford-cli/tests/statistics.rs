//! `bickford stat`, and the statistics that `bickford mount` logs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use common::{Place, assert_refused, assert_silent, bickford, run, stderr, stop, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

fn stat(mountpoint: &Path) -> Value {
    let output = run(bickford().args(["stat", "--json"]).arg(mountpoint));
    assert_silent(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn table(mountpoint: &Path) -> String {
    let output = run(bickford().arg("stat").arg(mountpoint));
    assert_silent(&output);
    String::from_utf8(output.stdout).unwrap()
}

fn lookups(report: &Value) -> u64 {
    let rows = report["session"]["opcodes"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "LOOKUP");
    row.map_or(0, |row| row["count"].as_u64().unwrap())
}

/// LOOKUPs that no cache answers.
fn look_up(place: &Place, count: u32) {
    for number in 0..count {
        fs::metadata(place.mountpoint().join(format!("missing-{number}"))).unwrap_err();
    }
}

#[test]
fn counts_rise_with_requests() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    let before = stat(&place.mountpoint());
    look_up(&place, 20);
    let after = stat(&place.mountpoint());
    assert!(
        lookups(&after) >= lookups(&before) + 20,
        "{before:#} {after:#}"
    );
    assert_eq!(
        after["session"]["pid"],
        running.pid().as_raw_nonzero().get()
    );
    assert_eq!(after["connection"], place.listed().unwrap().minor);

    let output = run(bickford()
        .args(["stat", "--histograms"])
        .arg(place.mountpoint()));
    assert_silent(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("LOOKUP"));
    let count: u64 = row
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(count >= lookups(&after), "{text}");
    assert!(text.contains("requests in flight: 0"), "{text}");
    assert!(text.contains("ns and more: "), "{text}");
}

#[test]
fn a_daemon_in_another_pid_namespace_has_two_numbers() {
    let Some(place) = Place::new() else { return };
    let _running = place.mount_in_pid_namespace();
    let report = stat(&place.mountpoint());
    let here = place.daemon().unwrap().as_raw_nonzero().get();
    assert_eq!(
        (&report["daemon"], &report["session"]["pid"]),
        (&here.into(), &1.into())
    );
    let told = format!("is process {here} here, and 1 in its own PID namespace");
    let text = table(&place.mountpoint());
    assert!(text.contains(&told), "{text}");
}

#[test]
fn a_stopped_daemon_leaves_what_the_kernel_tells() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    stop(running.pid());
    let report = stat(&place.mountpoint());
    assert_eq!(report["connection"], place.listed().unwrap().minor);
    assert_eq!(report["session"], Value::Null);
    let reason = report["session_error"].as_str().unwrap();
    assert!(reason.contains("does not answer"), "{report:#}");
    let text = table(&place.mountpoint());
    assert!(
        text.contains("requests waiting") && text.contains("does not answer"),
        "{text}"
    );
    kill_process(running.pid(), Signal::CONT).unwrap();
    wait_until("it answers again", || {
        stat(&place.mountpoint())["session"].is_object()
    });
}

/// The socket of a mount of root's.
fn socket(place: &Place) -> PathBuf {
    let connection = place.listed().unwrap().minor;
    format!("/run/bickford/{connection}.sock").into()
}

#[test]
fn a_socket_that_a_killed_daemon_left_is_a_note() {
    let Some(place) = Place::new() else { return };
    let _running = place.mount_in_foreground(&[]);
    let path = socket(&place);
    fs::remove_file(&path).unwrap();
    assert!(
        table(&place.mountpoint()).contains("no control socket"),
        "there is none"
    );
    // Without anybody who listens it is as a killed daemon leaves it.
    drop(UnixListener::bind(&path).unwrap());
    let text = table(&place.mountpoint());
    assert!(
        text.contains("requests waiting") && text.contains("nobody answers there"),
        "{text}"
    );
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_mount_is_found_by_any_of_its_names() {
    let Some(place) = Place::new() else { return };
    let odd = place.dir().join("a b\tc\\d");
    fs::create_dir(&odd).unwrap();
    assert_silent(&run(bickford()
        .args(["mount", "-o", "fsname=x"])
        .args([place.source(), odd.clone()])));
    let connection = stat(&odd)["connection"].clone();
    let link = place.dir().join("link");
    symlink(&odd, &link).unwrap();
    for name in [
        link,
        place.dir().join("mnt/../a b\tc\\d"),
        odd.join("../a b\tc\\d/."),
    ] {
        assert_eq!(stat(&name)["connection"], connection, "{}", name.display());
    }
    let output = run(bickford().current_dir(&odd).args(["stat", "--json", "."]));
    assert_silent(&output);
    place.unmount(&odd);
    let output = run(bickford().args(["stat", "/proc/../proc"]));
    assert_refused(&output, 1, &["/proc: the mount there is of type proc"]);
    let output = run(bickford().arg("stat").arg(place.dir().join("none")));
    assert_refused(&output, 1, &["none", "No such file", "findmnt"]);
}

/// What messages say to look with.
#[test]
fn the_command_that_is_named_shows_the_mount() {
    let Some(place) = Place::new() else { return };
    if !common::installed("findmnt") {
        return;
    }
    let _running = place.mount_in_foreground(&[]);
    for command in ["stat", "unmount", "trace"] {
        for name in ["none", "src"] {
            let output = run(bickford().arg(command).arg(place.dir().join(name)));
            let message = stderr(&output);
            let rest = message.split_once("see '").unwrap().1;
            let named = rest.split_once('\'').unwrap().0;
            let shown = run(std::process::Command::new("sh").args(["-c", named]));
            let shown = String::from_utf8_lossy(&shown.stdout);
            let mountpoint = place.mountpoint();
            assert!(shown.contains(mountpoint.to_str().unwrap()), "{message}");
        }
    }
}

#[test]
fn a_mount_that_hangs_is_found_without_being_touched() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    let link = place.dir().join("link");
    symlink(place.mountpoint(), &link).unwrap();
    stop(running.pid());
    for name in [link, place.mountpoint().join("../mnt")] {
        assert!(stat(&name)["session_error"].is_string());
    }
    kill_process(running.pid(), Signal::CONT).unwrap();
}

#[test]
fn statistics_are_logged_on_a_signal_and_at_the_end() {
    let Some(place) = Place::new() else { return };
    let log = place.dir().join("log");
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    let tables = || logged().matches("requests in flight").count();
    let running = place.mount_in_foreground(&["--stats", "--log-file", log.to_str().unwrap()]);
    look_up(&place, 5);
    assert_eq!(tables(), 0, "{}", logged());
    kill_process(running.pid(), Signal::USR1).unwrap();
    wait_until("statistics are logged", || tables() == 1);
    assert!(logged().contains("LOOKUP"), "{}", logged());
    place.unmount(&place.mountpoint());
    let output = running.output();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(tables(), 2, "{}", logged());
}
