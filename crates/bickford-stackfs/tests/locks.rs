//! Record locks that are the daemon's, and handles that others have inherited.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};

use bickford_stackfs::Preset;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use support::{Mount, can_mount};

const LOCK: FlockOperation = FlockOperation::NonBlockingLockExclusive;

fn open(path: &Path) -> File {
    let both = File::options().read(true).write(true).open(path);
    both.unwrap()
}

/// Whether the file is locked below, by the daemon for whoever has it.
fn is_locked(mount: &Mount) -> bool {
    let below = open(&mount.below("f"));
    match rustix::fs::fcntl_lock(&below, LOCK) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error, Errno::AGAIN);
            true
        }
    }
}

/// Ended when the test fails, too.
struct Heir(Child);

impl Heir {
    fn of(file: &File) -> Self {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(file.try_clone().unwrap());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_lock_outlives_a_handle_that_its_owner_has_closed_before() {
    if !can_mount() {
        return;
    }
    for preset in [Preset::Base, Preset::Opt] {
        let mount = Mount::new(preset);
        fs::write(mount.below("f"), "").unwrap();
        let first = open(&mount.path("f"));
        let heir = Heir::of(&first);
        rustix::fs::fcntl_lock(&first, LOCK).unwrap();
        assert!(is_locked(&mount));
        drop(first);
        assert!(!is_locked(&mount), "given up with the close");
        let second = open(&mount.path("f"));
        rustix::fs::fcntl_lock(&second, LOCK).unwrap();
        drop(heir);
        for _ in 0..200 {
            // Behind the RELEASE of the first in the queue of requests.
            assert!(!mount.path("missing").exists());
            assert!(is_locked(&mount));
        }
        drop(second);
        assert!(!is_locked(&mount));
    }
}
