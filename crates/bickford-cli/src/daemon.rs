//! Going into the background, with a truthful exit status of the process that was called.
//!
//! The program runs itself again in a new session, with a pipe as standard input, instead of forking:
//! no thread and no lock of the first process can be lost. The second process writes one report into
//! the pipe when the mount answers, or why it does not; the first ends with it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};

use bickford::mount::Unmount;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::cli::Failure;

/// Set for the process in the background.
const MARK: &str = "BICKFORD_BACKGROUND";

/// Begins the report of a session that has begun, the mount point follows; any other report is the reason
/// why it has not.
const READY: &[u8] = b"ready\0";

/// Most that is read of a report.
const MAX_REPORT_LEN: u64 = 64 * 1024;

/// The background process's side of the pipe.
pub(crate) struct Background {
    report: File,
}

/// Runs this program again in the background and waits for its report.
pub(crate) fn detach() -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!(
            "go into the background: {error}; use -f to stay in the foreground"
        ))
    };
    let (read_end, write_end) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_else(|| "bickford".into()));
    command.args(arguments).env(MARK, "1").stdin(write_end);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the write end of the pipe: without this the end of the report never comes.
    drop(command);
    let mut report = Vec::new();
    let read = File::from(read_end)
        .take(MAX_REPORT_LEN)
        .read_to_end(&mut report);
    read.map_err(failed)?;
    if let Some(mountpoint) = report.strip_prefix(READY) {
        return answers(Path::new(OsStr::from_bytes(mountpoint)));
    }
    let status = child.wait().map_err(failed)?;
    let report = String::from_utf8_lossy(&report);
    Err(match (report.trim_end(), status.signal()) {
        ("", Some(signal)) => Failure::new(format!(
            "the background process was ended by signal {signal} before the mount answered"
        )),
        ("", None) => Failure::new(format!(
            "the background process ended before the mount answered ({status})"
        )),
        (reason, _) => Failure::new(reason),
    })
}

/// Asks the new mount for its root and its statistics, as any user of it would.
///
/// This is not for the process that serves it: killed while it waits for its own answer, it could not end.
fn answers(mountpoint: &Path) -> Result<ExitCode, Failure> {
    if mountpoint.as_os_str().is_empty() {
        // Mounted by whoever passed the descriptor.
        return Ok(ExitCode::SUCCESS);
    }
    let asked = rustix::fs::stat(mountpoint).and_then(|_| rustix::fs::statfs(mountpoint));
    if let Err(errno) = asked {
        let shown = mountpoint.display();
        let error = io::Error::from(errno);
        let left = match bickford::mount::unmount(mountpoint, Unmount::Lazy) {
            Ok(()) => String::new(),
            Err(error) => format!("; {error}"),
        };
        return Err(Failure::new(format!(
            "mount {shown}: mounted, but it does not answer: {error}{left}"
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets a program be run by the background process without being taken for it.
pub(crate) fn unmarked(command: &mut Command) -> &mut Command {
    command.env_remove(MARK)
}

impl Background {
    /// The report of this process, if it is the one in the background. It leads its own session then, and
    /// standard input is empty.
    pub(crate) fn take() -> Result<Option<Self>, Failure> {
        if std::env::var_os(MARK).is_none() {
            return Ok(None);
        }
        let taken = || -> io::Result<Self> {
            let report = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            rustix::stdio::dup2_stdin(null()?)?;
            // Refused for a process group leader, which a spawned process is not.
            rustix::process::setsid()?;
            // It was started as /proc/self/exe, which would be its name otherwise.
            rustix::thread::set_name(c"bickford")?;
            Ok(Self { report })
        };
        let failed = |error| {
            Failure::new(format!(
                "go into the background: {error}; use -f to stay in the foreground"
            ))
        };
        taken().map(Some).map_err(failed)
    }

    /// Leaves directory and terminal, and lets the waiting process end with success if `mountpoint`, where
    /// there is one, answers. An error means that nobody waits any more.
    pub(crate) fn ready(mut self, mountpoint: Option<&Path>) -> io::Result<()> {
        std::env::set_current_dir(Path::new("/"))?;
        let null = null()?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        let path = mountpoint.map_or(&b""[..], |path| path.as_os_str().as_bytes());
        self.report.write_all(&[READY, path].concat())
    }

    /// Lets the waiting process end with this failure.
    pub(crate) fn failed(mut self, failure: &Failure) {
        // Where nobody waits there is nobody to tell.
        let _ = self.report.write_all(failure.to_string().as_bytes());
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        "/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}
