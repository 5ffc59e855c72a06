//! A configuration while it is mounted.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford_eval::host::mounts;
use bickford_eval::host::process::{self, tail};

use crate::configurations::Configuration;

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

/// A mounted configuration; unmounted when dropped.
pub(crate) struct Mounted {
    point: PathBuf,
    daemon: Option<Child>,
    pub(crate) connection: Option<u32>,
}

impl Mounted {
    /// Mounts `source` at `point`; what the program says goes to `log`. The native file system needs
    /// nothing.
    pub(crate) fn new(
        configuration: &Configuration,
        source: &Path,
        point: &Path,
        log: &Path,
    ) -> Result<Self, Refusal> {
        let mut mounted = Self {
            point: point.to_owned(),
            daemon: None,
            connection: None,
        };
        let Some((program, arguments)) = configuration.command.split_first() else {
            return Ok(mounted);
        };
        let failed = |what: String| Refusal::Failed(format!("{}: {what}", configuration.name));
        let said = File::create(log).map_err(|e| failed(format!("{}: {e}", log.display())))?;
        let copy = said.try_clone().map_err(|e| failed(e.to_string()))?;
        let child = Command::new(program)
            .args(arguments)
            .args([source, point])
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(said)
            // Ctrl-C ends the run, which then unmounts.
            .process_group(0)
            .spawn()
            .map_err(|e| failed(format!("start {program}: {e}")))?;
        let daemon = mounted.daemon.insert(child);
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(mount) = mounts::at(point) {
                mounted.connection = mount.connection();
                return Ok(mounted);
            }
            if let Ok(Some(status)) = daemon.try_wait() {
                let said = tail(&fs::read_to_string(log).unwrap_or_default());
                return Err(match status.code() {
                    Some(NOT_OFFERED) => Refusal::NotOffered(said),
                    _ => failed(format!("ended with {status} before it was mounted: {said}")),
                });
            }
            if Instant::now() > end {
                return Err(failed(format!(
                    "not mounted after {} s",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
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
                process::kill(daemon.id());
                let _ = daemon.wait();
                return Err(format!(
                    "process {} did not end after the unmount",
                    daemon.id()
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        unmounted
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
