//! What ends a test that hangs. The unit tests of the library have it, too.

#![allow(dead_code, unreachable_pub, reason = "shared by several test programs")]

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bickford::mount::{Unmount, unmount};

/// How long anything here may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Where the kernel shows its connections, and lets them be aborted (fusectl).
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Ends this process when it has been there for too long. See [`watch`].
pub struct Watchdog(Option<(Sender<()>, JoinHandle<()>)>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.0.take() {
            drop(done);
            let _ = thread.join();
        }
    }
}

/// Aborts the connection after the deadline, so that whoever hangs in it fails. Until what it returns is
/// dropped.
pub fn watch(mountpoint: PathBuf, connection: Option<u32>) -> Watchdog {
    let (done, over) = channel();
    let thread = std::thread::spawn(move || {
        if over.recv_timeout(DEADLINE * 2) == Err(RecvTimeoutError::Timeout) {
            say(format_args!("HUNG: aborting connection {connection:?}"));
            if let Some(number) = connection {
                abort(number);
            }
            let _ = unmount(&mountpoint, Unmount::Lazy);
            say(format_args!("a test over {} hung", mountpoint.display()));
            std::process::exit(101);
        }
    });
    Watchdog(Some((done, thread)))
}

/// Writes to standard error where the output of tests that pass is captured, too.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Aborts a connection, with fusectl mounted where it was not. What fails is said: the process
/// ends then all the same.
fn abort(connection: u32) {
    show_connections();
    if let Err(error) = bickford::mount::abort(connection) {
        say(format_args!("abort connection {connection}: {error}"));
    }
}

/// Has fusectl mounted where it was not, without which nothing can be aborted.
pub fn show_connections() {
    let found = std::fs::read_dir(CONNECTIONS).is_ok_and(|mut found| found.next().is_some());
    if !found {
        let mounted = Command::new("mount")
            .args(["-t", "fusectl", "none", CONNECTIONS])
            .status();
        println!("mount -t fusectl none {CONNECTIONS}: {mounted:?}");
    }
}
