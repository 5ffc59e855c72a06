//! Children that are limited, timed, accounted and never waited for without end.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::measure::cpu;

/// The most of a child's output that is kept.
const OUTPUT_LIMIT: u64 = 32 << 20;

/// A child that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// From start to end, in seconds.
    pub wall_s: f64,
    /// CPU time of the child and all its children, in seconds.
    pub cpu_s: f64,
}

impl Finished {
    /// The output of a child that succeeded.
    ///
    /// # Errors
    /// How it ended and the end of what it said.
    pub fn success(self, what: &str) -> Result<Self, String> {
        if self.status.success() {
            return Ok(self);
        }
        let said = if self.stderr.trim().is_empty() {
            &self.stdout
        } else {
            &self.stderr
        };
        let how = match self.status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with status {}", self.status.code().unwrap_or(-1)),
        };
        Err(format!("{what} {how}: {}", tail(said)))
    }
}

/// The last lines of `text`, on one line.
#[must_use]
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let from = lines.len().saturating_sub(3);
    let last = lines.get(from..).unwrap_or_default().join("; ");
    if last.is_empty() {
        "it said nothing".to_owned()
    } else {
        last
    }
}

/// A command that enters the cgroup whose `cgroup.procs` is `entrance` before it becomes `program`.
#[must_use]
pub fn limited(program: &OsStr, arguments: &[OsString], entrance: Option<&Path>) -> Command {
    let mut command = match entrance {
        None => Command::new(program),
        Some(entrance) => {
            let mut shell = Command::new("/bin/sh");
            shell
                .arg("-c")
                .arg("echo $$ > \"$0\" && exec \"$@\"")
                .arg(entrance)
                .arg(program);
            shell
        }
    };
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Why a child was not waited for to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The user interrupted the run.
    Interrupted,
    /// The deadline passed.
    Deadline,
}

/// The limits of a child.
pub struct Limits<'a> {
    /// When it is ended by force.
    pub deadline: Instant,
    /// Set by a signal: the run is to end.
    pub stop: &'a AtomicBool,
    /// Called before the child is killed, so that a system call it hangs in comes back.
    pub release: &'a dyn Fn(),
}

/// Runs `command` to its end, in a process group of its own.
///
/// # Errors
/// It could not be started, or was cut short: then it has been killed.
pub fn run(mut command: Command, limits: &Limits<'_>) -> Result<Result<Finished, Cut>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("start {name}: {e}"))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let pid = pid_of(&child)?;
    let ended = watch(pid);
    let mut cut = None;
    let wall_s = loop {
        match ended.recv_timeout(Duration::from_millis(50)) {
            Ok(at) => break at.duration_since(begun).as_secs_f64(),
            Err(RecvTimeoutError::Disconnected) => break begun.elapsed().as_secs_f64(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let reason = if limits.stop.load(Ordering::Relaxed) {
            Cut::Interrupted
        } else if Instant::now() > limits.deadline {
            Cut::Deadline
        } else {
            continue;
        };
        if cut.is_none() {
            (limits.release)();
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            cut = Some(reason);
        }
        if Instant::now() > limits.deadline + Duration::from_secs(60) {
            return Err(format!("{name} (process {}) cannot be killed", child.id()));
        }
    };
    let cpu_s = cpu::process(child.id()).map_or(0.0, |c| c.total());
    let status = child.wait().map_err(|e| format!("wait for {name}: {e}"))?;
    if let Some(cut) = cut {
        return Ok(Err(cut));
    }
    let text = |from: mpsc::Receiver<String>| {
        from.recv_timeout(Duration::from_secs(10))
            .unwrap_or_default()
    };
    Ok(Ok(Finished {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
        wall_s,
        cpu_s,
    }))
}

fn pid_of(child: &Child) -> Result<Pid, String> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| "the process has no number".into())
}

/// Tells when `pid` has ended, without reaping it: its accounts can still be read.
fn watch(pid: Pid) -> mpsc::Receiver<Instant> {
    let (tell, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(WaitId::Pid(pid), options)
        {
        }
        let _ = tell.send(Instant::now());
    });
    hear
}

fn collect(from: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (tell, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut bytes);
            let _ = io::copy(&mut from, &mut io::sink());
        }
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    hear
}

/// Processes whose environment holds `name=value`.
#[must_use]
pub fn with_environment(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}");
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = processes
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|b| *b == 0)
                .any(|v| v == wanted.as_bytes())
        })
        .collect()
}

/// Kills the process `pid`, which one of ours started.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Asks the process `pid`, which one of ours started, to end.
pub fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// `text` as one word of the shell.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        limited(OsStr::new("/bin/sh"), &["-c".into(), script.into()], None)
    }

    #[test]
    fn tells_output_status_and_cpu() {
        let stop = AtomicBool::new(false);
        let limits = Limits {
            deadline: Instant::now() + Duration::from_secs(60),
            stop: &stop,
            release: &|| {},
        };
        let done = run(shell("echo out; echo no such thing >&2; exit 3"), &limits)
            .unwrap()
            .unwrap();
        assert_eq!(done.stdout, "out\n");
        let error = done.success("it").unwrap_err();
        assert_eq!(error, "it ended with status 3: no such thing");
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let busy = run(shell(script), &limits).unwrap().unwrap();
        assert!(busy.cpu_s > 0.0 && busy.wall_s > 0.0);
    }

    #[test]
    fn a_deadline_releases_and_kills() {
        let stop = AtomicBool::new(false);
        let released = AtomicBool::new(false);
        let release = || released.store(true, Ordering::Relaxed);
        let limits = Limits {
            deadline: Instant::now(),
            stop: &stop,
            release: &release,
        };
        assert_eq!(
            run(shell("sleep 1000"), &limits).unwrap().unwrap_err(),
            Cut::Deadline
        );
        assert!(released.load(Ordering::Relaxed));
    }

    #[test]
    fn an_interrupt_ends_the_child() {
        let stop = AtomicBool::new(true);
        let limits = Limits {
            deadline: Instant::now() + Duration::from_secs(600),
            stop: &stop,
            release: &|| {},
        };
        assert_eq!(
            run(shell("sleep 1000"), &limits).unwrap().unwrap_err(),
            Cut::Interrupted
        );
    }

    #[test]
    fn finds_processes_by_their_environment() {
        let value = format!("{}-{}", std::process::id(), fastrand::u64(..));
        let mut child = Command::new("sleep")
            .arg("60")
            .env("BICKFORD_TEST", &value)
            .spawn()
            .unwrap();
        // The kernel shows the new environment a moment after exec has succeeded.
        let end = Instant::now() + Duration::from_secs(30);
        let mut found = Vec::new();
        while found.is_empty() && Instant::now() < end {
            found = with_environment("BICKFORD_TEST", &value);
        }
        kill(child.id());
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
        assert!(with_environment("BICKFORD_TEST", &value).is_empty());
    }

    #[test]
    fn words_survive_the_shell() {
        let stop = AtomicBool::new(false);
        let limits = Limits {
            deadline: Instant::now() + Duration::from_secs(60),
            stop: &stop,
            release: &|| {},
        };
        let odd = "a 'b' $c \"d\"";
        let done = run(shell(&format!("printf %s {}", quoted(odd))), &limits)
            .unwrap()
            .unwrap();
        assert_eq!(done.stdout, odd);
    }
}
