//! Mounts for tests and benchmarks: a file system in a directory of its own, and a watchdog.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by several test programs, which fail by panicking"
)]

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use bickford::mount::{MountOptions, Unmount, unmount};
use bickford::transport::{Transport, TransportChoice, io_uring_obstacle};
use bickford::{FileSystem, MountedSession, Session, SessionConfig};

mod watchdog;

pub use watchdog::*;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// A mounted file system. Unmounted at the end, by force where need be.
pub struct Fixture {
    pub session: Option<MountedSession>,
    dir: tempfile::TempDir,
    watchdog: Option<Watchdog>,
}

/// Whether file systems can be mounted directly here; says so where not.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        say(format_args!(
            "SKIPPED: open /dev/fuse: {error}; modprobe fuse, or give the container the device"
        ));
    }
    if !root {
        say(format_args!(
            "SKIPPED: mounting needs root; run the tests as root"
        ));
    }
    root && device.is_ok()
}

/// Whether io_uring can be had, switching it on where it is off; says so where not.
pub fn can_use_io_uring() -> bool {
    if io_uring_obstacle().is_some()
        && let Err(error) = std::fs::write(PARAMETER, "Y")
    {
        say(format_args!("SKIPPED: write {PARAMETER}: {error}"));
        return false;
    }
    match io_uring_obstacle() {
        Some(obstacle) => {
            say(format_args!("SKIPPED: io_uring cannot be had: {obstacle}"));
            false
        }
        None => true,
    }
}

impl Fixture {
    /// Mounts `filesystem`, and proves that the transport is the one chosen.
    pub fn new(filesystem: impl FileSystem, config: SessionConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions::new().fsname("bickford-test");
        let session = Session::mount(filesystem, dir.path(), &options, config).unwrap();
        let expected = match config.transport {
            TransportChoice::DevFuse => Some(Transport::DevFuse),
            TransportChoice::IoUring => Some(Transport::IoUring),
            TransportChoice::Auto => None,
        };
        if let Some(expected) = expected {
            assert_eq!(session.transport().transport, expected);
        }
        let watchdog = Some(watch(dir.path().to_owned(), session.connection()));
        Self {
            session: Some(session),
            dir,
            watchdog,
        }
    }

    pub fn session(&self) -> &MountedSession {
        self.session.as_ref().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts, and waits until the session has ended.
    pub fn finish(mut self) {
        let session = self.session.take().unwrap();
        session.unmount(Unmount::Lazy).unwrap();
        session.wait();
        assert!(session.server().in_flight().is_empty());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.watchdog.take());
        if let Some(session) = self.session.take() {
            if std::thread::panicking() {
                for request in session.server().in_flight().list() {
                    println!("in flight: {request:?}");
                }
            }
            while unmount(self.dir.path(), Unmount::Force).is_ok() {}
        }
    }
}

/// Runs `body` over each transport that can be had here.
pub fn over_each_transport(body: impl Fn(SessionConfig)) {
    if !can_mount() {
        return;
    }
    body(SessionConfig::default().transport(TransportChoice::DevFuse));
    if can_use_io_uring() {
        body(SessionConfig::default().transport(TransportChoice::IoUring));
    }
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + DEADLINE;
    while !condition() {
        assert!(
            std::time::Instant::now() < deadline,
            "not within a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
