//! A deadline for whatever may hang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::diagnosis;
use crate::machine::{fuse_mounts_below, mount_at};

/// Time for the callers to come back with an error once their connection is aborted.
const GRACE: Duration = Duration::from_secs(30);

/// What a watchdog takes down on its deadline.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) mountpoint: PathBuf,
    pub(crate) connection: u32,
    pub(crate) daemon: u32,
    pub(crate) log: PathBuf,
}

/// Fails the test when it is not dropped before its deadline.
///
/// On the deadline it prints what was in flight, aborts the connection and unmounts, so that the
/// callers come back with errors. When even that does not end the test, it ends the process.
#[derive(Debug)]
pub struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    passed: Arc<AtomicBool>,
    watched: Arc<Mutex<Option<Watched>>>,
    directory: Arc<Mutex<Option<PathBuf>>>,
    name: String,
}

impl Watchdog {
    /// Starts to watch.
    #[must_use]
    pub fn start(name: &str, deadline: Duration) -> Self {
        let (end, ended) = mpsc::channel();
        let watched = Arc::new(Mutex::new(None));
        let directory = Arc::new(Mutex::new(None));
        let passed = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let watched = Arc::clone(&watched);
            let directory: Arc<Mutex<Option<PathBuf>>> = Arc::clone(&directory);
            let passed = Arc::clone(&passed);
            let name = name.to_owned();
            move || {
                if ended.recv_timeout(deadline) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                passed.store(true, Ordering::SeqCst);
                eprintln!("watchdog: {name} did not end within {deadline:?}");
                let watched = lock(&watched).clone();
                eprintln!("{}", diagnosis::stacks(std::process::id()));
                if let Some(watched) = watched {
                    take_down(&watched);
                }
                abort_below(&directory);
                if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
                    eprintln!("watchdog: {name} did not end after the abort either");
                    // Not even this ends who waits for an answer to a request that was read.
                    abort_below(&directory);
                    std::process::exit(101);
                }
            }
        });
        Self {
            end: Some(end),
            thread: Some(thread),
            passed,
            watched,
            directory,
            name: name.to_owned(),
        }
    }

    /// Has the connections of all FUSE mounts at or below `directory` aborted on the deadline, too: of those that
    /// are made by other means than [`Mount`](crate::Mount).
    #[must_use]
    pub fn over(self, directory: &Path) -> Self {
        *lock(&self.directory) = Some(directory.to_owned());
        self
    }

    pub(crate) fn watch(&self, watched: Watched) {
        *lock(&self.watched) = Some(watched.clone());
        if self.passed() {
            // The deadline passed while it came up, when there was nothing to take down yet.
            take_down(&watched);
        }
    }

    /// Whether the deadline has passed.
    fn passed(&self) -> bool {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It only prints and unmounts; should that panic, the deadline has passed all the same.
            let _ = thread.join();
        }
        assert!(
            !self.passed() || std::thread::panicking(),
            "{} did not end before its deadline; see above",
            self.name
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_down(watched: &Watched) {
    eprint!("{}", diagnosis::waiting(watched.connection));
    eprintln!("the daemon:\n{}", diagnosis::stacks(watched.daemon));
    eprintln!("its log:\n{}", diagnosis::tail(&watched.log));
    abort(watched.connection);
    unmount_lazily(&watched.mountpoint);
}

fn abort_below(directory: &Mutex<Option<PathBuf>>) {
    let Some(directory) = lock(directory).clone() else {
        return;
    };
    for mount in fuse_mounts_below(&directory) {
        eprint!("{}", diagnosis::waiting(mount.minor));
        abort(mount.minor);
    }
}

/// Aborts a connection: every request on it ends with an error.
pub(crate) fn abort(connection: u32) {
    let file = diagnosis::connection_directory(connection).join("abort");
    if let Err(error) = std::fs::write(&file, "1") {
        eprintln!("{}: {error}", file.display());
    }
}

/// Takes a mount out of the tree at once, whoever uses it.
pub(crate) fn unmount_lazily(mountpoint: &Path) {
    let output = Command::new("umount").arg("-l").arg(mountpoint).output();
    match output {
        Ok(output) if output.status.success() => {}
        // The daemon was faster.
        Ok(_) if mount_at(mountpoint).is_none() => {}
        Ok(output) => eprint!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("umount -l {}: {error}", mountpoint.display()),
    }
}

/// Waits until `condition` holds; false when it does not within the deadline.
pub fn wait_for(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_time_is_left_alone() {
        drop(Watchdog::start("quick", Duration::from_secs(60)));
    }

    #[test]
    #[should_panic(expected = "slow did not end before its deadline")]
    fn what_does_not_end_in_time_fails() {
        let watchdog = Watchdog::start("slow", Duration::ZERO);
        assert!(wait_for(Duration::from_secs(60), || watchdog.passed()));
        drop(watchdog);
    }

    #[test]
    fn waiting_ends_with_the_condition_or_the_deadline() {
        let mut left = 3;
        assert!(wait_for(Duration::from_secs(60), || {
            left -= 1;
            left == 0
        }));
        assert!(!wait_for(Duration::ZERO, || false));
    }
}
