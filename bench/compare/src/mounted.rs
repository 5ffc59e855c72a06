//! A configuration while it is mounted.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bickford_eval::host::mounts;
use bickford_eval::host::process::tail;
use rustix::process::{Pid, Signal};

use crate::configurations::{Configuration, Side};
use crate::sys::in_own_session;

/// How long a program may take to mount, and to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// The exit status of an adapter whose library does not have what it was asked for.
const NOT_OFFERED: i32 = 3;

/// Why a configuration is not mounted.
pub(crate) enum Refusal {
    /// Its library does not have the mode: it is left out from now on.
    NotOffered(String),
    /// It failed.
    Failed(String),
}

/// Kills a program and what it started: a shell may not have replaced itself by its command.
fn kill_group(leader: &mut Child) {
    let group = i32::try_from(leader.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let _ = leader.wait();
}

/// A mounted configuration; unmounted when dropped.
pub(crate) struct Mounted {
    point: PathBuf,
    daemon: Option<Child>,
    pub(crate) connection: Option<u32>,
}

/// A log with a line of what comes next.
fn heading(log: &Path, what: &str) -> io::Result<File> {
    let mut file = File::options().append(true).create(true).open(log)?;
    writeln!(file, "== {what}")?;
    Ok(file)
}

impl Mounted {
    /// Mounts `source` at `point`; what the program says goes to the end of `log`, below `what`. The native
    /// file system needs nothing.
    pub(crate) fn new(
        configuration: &Configuration,
        source: &Path,
        point: &Path,
        log: &Path,
        what: &str,
    ) -> Result<Self, Refusal> {
        let mut mounted = Self {
            point: point.to_owned(),
            daemon: None,
            connection: None,
        };
        let failed = |what: String| Refusal::Failed(format!("{}: {what}", configuration.name));
        let Some(mut command) = configuration.mount(source, point).map_err(failed)? else {
            return Ok(mounted);
        };
        let said = heading(log, what).map_err(|e| failed(format!("{}: {e}", log.display())))?;
        let before = said.metadata().map_or(0, |it| it.len());
        let copy = said.try_clone().map_err(|e| failed(e.to_string()))?;
        command.stdin(Stdio::null()).stdout(copy).stderr(said);
        in_own_session(&mut command);
        let child = command.spawn().map_err(|e| {
            let program = command.get_program().to_string_lossy();
            failed(format!("start {program}: {e}"))
        })?;
        let daemon = mounted.daemon.insert(child);
        let end = Instant::now() + PATIENCE;
        loop {
            // Asked before the mount table: a command that mounts and ends has mounted by then.
            let ended = daemon.try_wait().ok().flatten();
            if let Some(mount) = mounts::at(point) {
                mounted.connection = mounts::connection(&mount);
                return Ok(mounted);
            }
            if let Some(status) = ended {
                let bytes = fs::read(log).unwrap_or_default();
                let since = bytes.get(usize::try_from(before).unwrap_or(0)..);
                let said = tail(&String::from_utf8_lossy(since.unwrap_or_default()));
                return Err(match status.code() {
                    Some(NOT_OFFERED) if configuration.side != Side::Guest => {
                        Refusal::NotOffered(said)
                    }
                    _ => failed(format!("ended with {status} before it was mounted: {said}")),
                });
            }
            if Instant::now() > end {
                kill_group(daemon);
                return Err(failed(format!(
                    "not mounted after {} s",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether the program that serves the mount is still the one that was started.
    ///
    /// # Errors
    /// It has ended: its CPU time is not known, and perhaps nobody answers.
    pub(crate) fn served(&mut self) -> Result<(), String> {
        // A mount that is no FUSE mount (`mount --bind`) has no daemon.
        let Some(daemon) = self.daemon.as_mut().filter(|_| self.connection.is_some()) else {
            return Ok(());
        };
        match daemon.try_wait() {
            Ok(Some(status)) => Err(format!(
                "its command ended with {status} while it was mounted; it must stay in the foreground \
                 (often -f) and live"
            )),
            _ => Ok(()),
        }
    }

    /// The daemon and the processes it started.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.daemon.iter().map(Child::id).collect();
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            next += 1;
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
                continue;
            };
            for task in tasks.flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                found.extend(
                    children
                        .split_whitespace()
                        .filter_map(|word| word.parse::<u32>().ok()),
                );
            }
        }
        found
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(());
        };
        let unmounted = mounts::unmount(&self.point, PATIENCE);
        let end = Instant::now() + PATIENCE;
        while let Ok(None) = daemon.try_wait() {
            if Instant::now() > end {
                kill_group(&mut daemon);
                return Err(format!(
                    "process {} did not end after the unmount",
                    daemon.id()
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        match unmounted? {
            Some(forced) => Err(format!("it had to be unmounted by force: {forced}")),
            None => Ok(()),
        }
    }

    /// Unmounts and waits for the daemon.
    pub(crate) fn unmount(mut self) -> Result<(), String> {
        self.end()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("compare: unmount {}: {error}", self.point.display());
        }
    }
}
