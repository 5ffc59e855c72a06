//! A program that goes into the background by itself, as its parts allow, and does not leave the terminal.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bickford::mount::{MountOptions, Unmount, mount, unmount};
use bickford::path::{Adapter, FileSystem, Options};
use bickford::{Session, SessionConfig};
use bickford_program::background::{Background, detach};
use rustix::process::{geteuid, getpid, getsid};

const DEADLINE: Duration = Duration::from_secs(60);

/// Below the directory that both processes begin in.
const MOUNTPOINT: &str = "mnt";
const LED: &str = "led";

struct Nothing;

impl FileSystem for Nothing {}

fn serve(background: Background) {
    let here = std::env::current_dir().unwrap();
    let mounted = mount(&here.join(MOUNTPOINT), &MountOptions::new()).unwrap();
    background.mounted(&mounted.guard);
    let adapter = Adapter::new(Nothing, Options::default());
    let session = Session::on_mount(adapter, mounted, SessionConfig::default()).unwrap();
    let session = Arc::new(session);
    background.ready(&session).unwrap();
    session.wait();
    let led = getsid(None).unwrap() == getpid();
    std::fs::write(here.join(LED), led.to_string()).unwrap();
}

fn call(place: &Path) {
    let mountpoint = place.join(MOUNTPOINT);
    std::fs::create_dir(&mountpoint).unwrap();
    std::env::set_current_dir(place).unwrap();
    detach().unwrap();
    unmount(&mountpoint, Unmount::Normal).unwrap();
    let until = Instant::now() + DEADLINE;
    loop {
        let led = std::fs::read_to_string(place.join(LED)).unwrap_or_default();
        if !led.is_empty() {
            assert_eq!(led, "true", "it is in the session of its caller");
            return;
        }
        assert!(Instant::now() < until, "it has not ended");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn main() {
    if let Some(background) = Background::take().unwrap() {
        return serve(background);
    }
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        let _ = writeln!(std::io::stderr(), "skipped: needs root and /dev/fuse");
        return;
    }
    call(tempfile::tempdir().unwrap().path());
}
