//! Record locks that are the daemon's, and handles that others have inherited.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use bickford::layer::{
    Call, Interest, Layer, OperationKind, OperationSet, PostCalls, PreCalls, Step,
};
use bickford::ops::{Release, Setlk};
use bickford_stackfs::Preset;
use rustix::fs::{FlockOperation, IFlags};
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

/// Has RELEASE wait until the second request for a lock has come, and that one be done meanwhile.
#[derive(Default)]
struct Overtaken {
    requests: Mutex<usize>,
    came: Condvar,
}

impl PreCalls for Overtaken {
    fn setlk(&self, _: &Call<'_>, _: &mut Setlk) -> Step<()> {
        *self.requests.lock().unwrap() += 1;
        self.came.notify_all();
        Step::Continue
    }

    fn release(&self, _: &Call<'_>, _: &mut Release) -> Step<()> {
        let requests = self.requests.lock().unwrap();
        let few = |requests: &mut usize| *requests < 2;
        let longest = Duration::from_secs(10);
        drop(
            self.came
                .wait_timeout_while(requests, longest, few)
                .unwrap(),
        );
        std::thread::sleep(Duration::from_millis(20));
        Step::Continue
    }
}

impl PostCalls for Overtaken {}

impl Layer for Overtaken {
    fn name(&self) -> &str {
        "overtaken"
    }

    fn interest(&self) -> Interest {
        Interest {
            pre: OperationSet::of(&[OperationKind::Setlk, OperationKind::Release]),
            ..Interest::default()
        }
    }
}

/// Whether a lock that is not waited for is had when the file of who had it has just been closed.
fn is_had_after_close() -> bool {
    let lower = tempfile::tempdir().unwrap();
    fs::write(lower.path().join("f"), "").unwrap();
    let mount = Mount::below_layer(Overtaken::default(), lower, |builder| {
        builder.settings(Preset::Opt.settings())
    });
    let [first, second] = [(); 2].map(|()| open(&mount.path("f")));
    rustix::fs::flock(&first, LOCK).unwrap();
    drop(first);
    rustix::fs::flock(&second, LOCK).is_ok()
}

/// Close(2) comes back before the daemon has heard of the end of the open file.
#[test]
fn a_lock_can_be_had_when_its_holder_has_closed_the_file() {
    if !can_mount() {
        return;
    }
    // More than once: how long such a lock is waited for is bounded.
    assert!((0..5).any(|_| is_had_after_close()));
}

/// Who asks for what somebody has is refused, whoever has closed a copy of the descriptor.
#[test]
fn a_lock_that_is_held_is_refused() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Preset::Opt);
    fs::write(mount.below("f"), "").unwrap();
    let [first, second] = [(); 2].map(|()| open(&mount.path("f")));
    rustix::fs::flock(&first, LOCK).unwrap();
    for _ in 0..2 {
        assert_eq!(rustix::fs::flock(&second, LOCK), Err(Errno::AGAIN));
        drop(first.try_clone().unwrap());
    }
    drop(first);
    // Close(2) comes back before the lock is given up.
    support::until("the lock is had", || {
        rustix::fs::flock(&second, LOCK).is_ok()
    });
}

/// chattr(1), while it lives.
struct Marked(File);

impl Marked {
    /// None where the file system has no such flags.
    fn new(path: &Path, flags: IFlags) -> Option<Self> {
        let file = File::open(path).unwrap();
        match rustix::fs::ioctl_setflags(&file, flags) {
            Ok(()) => Some(Self(file)),
            Err(error) => {
                support::say(format_args!("left out: no flags of chattr(1): {error}"));
                None
            }
        }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        rustix::fs::ioctl_setflags(&self.0, IFlags::empty()).unwrap();
    }
}

/// Linux lets nobody open them again as the caller has.
#[test]
fn files_that_are_append_only_or_immutable_are_locked() {
    if !can_mount() {
        return;
    }
    let shared = FlockOperation::NonBlockingLockShared;
    for preset in [Preset::Base, Preset::Opt] {
        let mount = Mount::new(preset);
        let path = mount.path("f");
        fs::write(mount.below("f"), "").unwrap();
        let Some(append_only) = Marked::new(&mount.below("f"), IFlags::APPEND) else {
            return;
        };
        let appending = File::options().append(true).read(true).open(&path).unwrap();
        let below = File::options().append(true).open(mount.below("f")).unwrap();
        assert_eq!(rustix::fs::flock(&appending, LOCK), Ok(()));
        assert_eq!(rustix::fs::flock(&below, LOCK), Err(Errno::AGAIN));
        assert_eq!(rustix::fs::fcntl_lock(&appending, LOCK), Ok(()));
        assert_eq!(rustix::fs::fcntl_lock(&below, LOCK), Err(Errno::AGAIN));
        drop((append_only, appending, below));

        let writing = open(&path);
        let Some(immutable) = Marked::new(&mount.below("f"), IFlags::IMMUTABLE) else {
            return;
        };
        assert_eq!(rustix::fs::flock(&writing, LOCK), Ok(()));
        assert_eq!(rustix::fs::fcntl_lock(&writing, shared), Ok(()));
        let refused = rustix::fs::fcntl_lock(&writing, LOCK);
        assert_eq!(refused, Err(Errno::NOLCK));
        drop(immutable);
    }
}

#[test]
fn a_program_that_is_locked_for_reading_can_be_executed() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Preset::Opt);
    fs::copy("/bin/true", mount.below("f")).unwrap();
    let reading = File::open(mount.path("f")).unwrap();
    rustix::fs::fcntl_lock(&reading, FlockOperation::NonBlockingLockShared).unwrap();
    assert!(is_locked(&mount));
    let ran = Command::new(mount.below("f")).status().unwrap();
    assert!(ran.success());
}
