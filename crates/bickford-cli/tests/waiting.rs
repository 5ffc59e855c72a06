//! What is said while a mount waits for a file system that does not answer.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use common::{Place, Running, bickford, stop, wait_until};
use rustix::process::{Signal, kill_process};

/// How often `said` is in a file.
fn times(file: &Path, said: &str) -> usize {
    fs::read_to_string(file).unwrap().matches(said).count()
}

#[test]
fn a_mount_that_waits_says_once_for_what() {
    let Some(place) = Place::new() else { return };
    let stopped = place.mount_in_foreground(&["--preset", "base"]);
    stop(stopped.pid());
    let (there, none) = (place.source(), place.mountpoint().join("none"));
    let advice = format!("bickford stat {}'", place.mountpoint().display());
    // Each has a name of its own that is looked up: who looks up the same waits for the other.
    let mut all = Vec::new();
    for (name, mode, of_source) in [
        ("foreground", Some("-f"), false),
        ("daemon", None, false),
        ("source", None, true),
        ("foreground-source", Some("-f"), true),
    ] {
        let file = place.dir().join(name);
        let mut command = bickford();
        command.arg("mount").args(mode).stdin(Stdio::null());
        let waits_for = none.with_file_name(name);
        match of_source {
            false => command.args([&there, &waits_for]),
            true => command.args([&waits_for, &there]),
        };
        command.stderr(File::create(&file).unwrap());
        let running = Running::of(command.spawn().unwrap());
        let what = match of_source {
            false => "still waiting for the mount point; ",
            true => "still waiting for SOURCE; ",
        };
        all.push((running, file, what));
    }
    for (_, file, what) in &all {
        wait_until("it is said", || times(file, what) == 1);
        assert_eq!(times(file, &advice), 1, "{file:?}");
    }
    kill_process(stopped.pid(), Signal::CONT).unwrap();
    for (running, file, what) in all {
        assert_eq!(running.output().status.code(), Some(1));
        assert_eq!(times(&file, what), 1);
        assert_eq!(times(&file, "still waiting"), 1);
        assert_eq!(times(&file, "\n"), 2, "{file:?}");
    }
}
