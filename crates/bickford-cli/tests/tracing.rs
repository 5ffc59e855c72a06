//! `bickford trace`, from the requests of a mount to what is printed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bickford::trace::kernel::tracefs;
use common::{Place, Running, bickford, stderr, wait_until};
use rustix::process::{Signal, kill_process};

/// A place whose requests can be traced.
fn place() -> Option<Place> {
    let place = Place::new()?;
    if tracefs().is_err() {
        let mount = ["-t", "tracefs", "none", "/sys/kernel/tracing"];
        let _ = Command::new("mount").args(mount).status();
    }
    let connections = "/sys/fs/fuse/connections";
    if fs::read_dir(connections).unwrap().next().is_none() {
        let mount = ["-t", "fusectl", "none", connections];
        let _ = Command::new("mount").args(mount).status();
    }
    let can = tracefs().is_ok_and(|root| root.join("events/fuse/fuse_request_send").exists());
    if !can {
        eprintln!("left out: needs tracefs and tracepoints of FUSE");
    }
    can.then_some(place)
}

/// A command that traces the place.
struct Trace {
    running: Running,
    output: PathBuf,
    log: PathBuf,
}

impl Trace {
    /// Returns when it traces.
    fn start(place: &Place, arguments: &[&str]) -> Self {
        Self::start_as(bickford(), place, arguments)
    }

    fn start_as(mut command: Command, place: &Place, arguments: &[&str]) -> Self {
        let name = format!("trace-{}", arguments.join("-"));
        let output = place.dir().join(&name);
        let log = place.dir().join(name + ".log");
        let child = command
            .arg("trace")
            .args(arguments)
            .arg(place.mountpoint())
            .stdout(fs::File::create(&output).unwrap())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let trace = Self {
            running: Running::of(child),
            output,
            log,
        };
        wait_until("requests are traced", || trace.is_enabled());
        trace
    }

    fn instances(&self) -> Vec<PathBuf> {
        let mine = format!("bickford-{}-", self.running.pid().as_raw_nonzero());
        let instances = fs::read_dir(tracefs().unwrap().join("instances")).unwrap();
        instances
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine))
            .map(|entry| entry.path())
            .collect()
    }

    /// Of both tracepoints the one of sending is enabled last.
    fn is_enabled(&self) -> bool {
        self.instances().iter().any(|instance| {
            let enable = instance.join("events/fuse/fuse_request_send/enable");
            fs::read_to_string(enable).is_ok_and(|text| text.starts_with('1'))
        })
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// Ends it as the user does; what it has printed.
    fn end(self) -> String {
        kill_process(self.running.pid(), Signal::INT).unwrap();
        let output = self.running.output();
        let log = fs::read_to_string(&self.log).unwrap();
        assert!(output.status.success(), "{log}{}", stderr(&output));
        fs::read_to_string(&self.output).unwrap()
    }
}

#[test]
fn no_signal_leaves_tracing_enabled() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    for signal in [Signal::HUP, Signal::QUIT, Signal::TERM, Signal::INT] {
        let trace = Trace::start(&place, &[]);
        let instances = trace.instances();
        assert_eq!(instances.len(), 1);
        kill_process(trace.running.pid(), signal).unwrap();
        let output = trace.running.output();
        assert!(output.status.success(), "{signal:?}: {output:?}");
        assert!(!instances[0].exists(), "{signal:?}: {instances:?} is left");
    }
}

#[test]
fn a_hangup_is_ignored_where_it_was() {
    let Some(place) = place() else { return };
    if !common::installed("nohup") {
        return;
    }
    let _running = place.mount_in_foreground(&[]);
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_bickford"));
    let trace = Trace::start_as(command, &place, &["--opcode", "MKDIR"]);
    kill_process(trace.running.pid(), Signal::HUP).unwrap();
    for count in 1..=2 {
        fs::create_dir(place.mountpoint().join(format!("new-{count}"))).unwrap();
        wait_until("it goes on", || {
            trace.text().matches("MKDIR").count() == count
        });
    }
    trace.end();
}

