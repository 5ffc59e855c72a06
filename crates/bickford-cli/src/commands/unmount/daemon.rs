//! Waiting for the daemon of a mount to end.
//!
//! It has SOURCE in use a little longer than the mount is there. Who unmounts mostly goes on with what is
//! below: unmounts that too, or detaches its device.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bickford::trace::control::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The name of this command as a process. Whatever else has a mount need not end with it.
const NAME: &str = "bickford\n";

/// A daemon that takes longer is left behind: it may be stopped, or wait for a disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// A daemon of this command.
pub(super) struct Daemon {
    pid: Pid,
    process: OwnedFd,
}

impl Daemon {
    /// The one that listens at the first of the sockets where anybody does; while the mount is there.
    pub(super) fn behind(sockets: &[Socket]) -> Option<Self> {
        let pid = sockets.iter().find_map(|socket| listener(socket).ok())?;
        // The descriptor first: what has the name then is what it stands for.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name == NAME).then_some(Self { pid, process })
    }

    /// Waits for its end, and says if that does not come.
    pub(super) fn wait(&self) {
        if self.has_ended_within(PATIENCE) {
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

    fn has_ended_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(
                &mut [PollFd::new(&self.process, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(0) => return false,
                Err(Errno::INTR) => {}
                Ok(_) => return true,
                Err(error) => {
                    tracing::debug!("poll of process {}: {error}", self.pid);
                    return true;
                }
            }
        }
    }
}

fn listener(socket: &Socket) -> io::Result<Pid> {
    let stream = UnixStream::connect(socket.address())?;
    Ok(socket_peercred(&stream)?.pid)
}
