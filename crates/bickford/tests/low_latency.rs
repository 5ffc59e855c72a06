//! The hold on the CPUs: there while requests come, gone some time after the last one.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::{Blocking, Context, Errno, LowLatency, NodeId, SessionConfig};

use support::{Fixture, over_each_transport, wait_until};

const FOREVER: Duration = Duration::from_secs(3600);

/// Answers "slow" when the gate opens, and all other names at once.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl bickford::filesystem::blocking::FileSystem for Gate {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        if op.name.to_bytes() == b"slow" {
            let closed = self.0.0.lock().unwrap();
            let (open, _) = self
                .0
                .1
                .wait_timeout_while(closed, support::DEADLINE, |open| !*open)
                .unwrap();
            drop(open);
        }
        Ok(Entry::new(
            NodeId(2),
            Attr::file(2, 0o644, 0),
            Duration::ZERO,
        ))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            node => Attr::file(node.0, 0o644, 0),
        };
        Ok(Attributes {
            attr,
            valid: FOREVER,
        })
    }
}

/// A file in place of /dev/cpu_dma_latency.
struct Device {
    path: &'static str,
    _directory: tempfile::TempDir,
}

impl Device {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device");
        fs::write(&path, "").unwrap();
        Self {
            path: Box::leak(path.to_str().unwrap().to_owned().into_boxed_str()),
            _directory: directory,
        }
    }

    fn is_held(&self) -> bool {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        descriptors
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| target == Path::new(self.path))
    }

    fn config(&self, config: SessionConfig, idle: Duration) -> SessionConfig {
        config.low_latency(LowLatency {
            idle,
            device: self.path,
        })
    }
}

#[test]
fn the_device_is_held_while_a_request_is_in_flight_and_not_after_the_session() {
    over_each_transport(|config| {
        let (device, gate) = (Device::new(), Gate::default());
        let fixture = Fixture::new(Blocking(gate.clone()), device.config(config, FOREVER));
        assert!(fixture.session().low_latency().starts_with("on: "));
        let path = fixture.path("slow");
        let caller = std::thread::spawn(move || fs::metadata(path).map(drop));
        wait_until("the request is in flight", || {
            !fixture.session().server().in_flight().is_empty()
        });
        wait_until("the device is held", || device.is_held());
        wait_until("0 was written", || {
            fs::read(device.path).unwrap() == 0_i32.to_ne_bytes()
        });
        gate.open();
        caller.join().unwrap().unwrap();
        assert!(device.is_held(), "it is kept for an hour");
        fixture.finish();
        assert!(!device.is_held(), "the session has ended");
    });
}

#[test]
fn the_device_is_let_go_when_idle_and_held_again() {
    over_each_transport(|config| {
        let (device, gate) = (Device::new(), Gate::default());
        let idle = Duration::from_millis(5);
        let fixture = Fixture::new(Blocking(gate), device.config(config, idle));
        wait_until("it is let go after the start", || !device.is_held());
        for _ in 0..3 {
            wait_until("it is held while requests come", || {
                fs::metadata(fixture.path("quick")).unwrap();
                device.is_held()
            });
            wait_until("it is let go", || !device.is_held());
        }
        fixture.finish();
    });
}

#[test]
fn a_device_that_is_not_there_is_said_and_the_session_begins() {
    over_each_transport(|config| {
        let device = Device::new();
        let missing = LowLatency {
            device: "/nonexistent/cpu_dma_latency",
            ..LowLatency::default()
        };
        let config = device.config(config, FOREVER).low_latency(missing);
        let fixture = Fixture::new(Blocking(Gate::default()), config);
        let said = fixture.session().low_latency().to_owned();
        assert!(
            said.starts_with("off: /nonexistent/cpu_dma_latency cannot be held"),
            "{said}"
        );
        fs::metadata(fixture.path("quick")).unwrap();
        fixture.finish();
    });
}
