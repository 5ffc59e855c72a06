//! Waiting for the daemon of a mount to end.
//!
//! It has SOURCE in use a little longer than the mount is there. Who unmounts mostly goes on with what is
//! below: unmounts that too, or detaches its device.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use bickford_program::elsewhere;
use bickford_program::terminal::escaped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::commands::target::Target;

/// The name of this command as a process. Whatever else has a mount need not end with it.
const NAME: &str = "bickford\n";

/// A daemon that takes longer is left behind: it may be stopped, or wait for a disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// One that takes longer than this may have the mount in another mount namespace to serve.
const PROMPT: Duration = Duration::from_secs(1);

/// A daemon of this command.
pub(super) struct Daemon {
    pid: Pid,
    process: OwnedFd,
}

impl Daemon {
    /// That of a mount which is still there.
    pub(super) fn behind(target: &Target) -> Option<Self> {
        Self::of(target.daemon()?)
    }

    /// That with this number, if it is one.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        // The descriptor first: what has the name then is what it stands for.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name == NAME).then_some(Self { pid, process })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end; whether it has come.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended_within(PATIENCE)
    }

    /// Waits for its end, and says if that does not come.
    pub(super) fn wait(&self, target: &Target) {
        if self.has_ended_within(PROMPT) {
            return;
        }
        if let Some(where_still) = elsewhere::told(&target.elsewhere()) {
            let text = format!(
                "unmounted here, but {where_still}; until then the daemon (process {}) goes on, and keeps the file \
                 system of SOURCE in use",
                self.pid
            );
            let _ = writeln!(io::stderr(), "bickford: {}", escaped(&text));
            return;
        }
        if self.has_ended_within(PATIENCE - PROMPT) {
            return;
        }
        // Not eprintln, which panics when the terminal is gone.
        let _ = writeln!(
            io::stderr(),
            "bickford: unmounted, but the daemon (process {}) has not ended within {} s: until it has, it keeps \
             the file system of SOURCE in use",
            self.pid,
            PATIENCE.as_secs()
        );
    }

    /// Says that it serves another place.
    pub(super) fn goes_on(&self, place: &Path) {
        let text = format!(
            "unmounted; it is mounted at {} still, so that the daemon (process {}) goes on",
            place.display(),
            self.pid
        );
        let _ = writeln!(io::stderr(), "bickford: {}", escaped(&text));
    }

    fn has_ended_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
            match poll(&mut ended, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                polled => return polled.is_ok_and(|ready| ready > 0),
            }
        }
    }
}
