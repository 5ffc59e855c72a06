//! Standard output that keeps nobody from ending: who was killed instead would leave tracing enabled.

use std::io::{self, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a pipe that can be written takes without waiting (pipe(7)).
const AT_ONCE: usize = rustix::pipe::PIPE_BUF;

/// How often it is looked whether to end.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// How long a reader that takes nothing is waited for when it is time to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Standard output, until `stop` is set and nobody reads it.
pub(super) struct Output<'a> {
    stop: &'a AtomicBool,
    out: StdoutLock<'static>,
    /// Since when it is time to end, and nothing was taken.
    stopped: Option<Instant>,
}

impl<'a> Output<'a> {
    pub(super) fn new(stop: &'a AtomicBool) -> Self {
        Self {
            stop,
            out: io::stdout().lock(),
            stopped: None,
        }
    }

    /// Returns when it can be written.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(&self.out, PollFlags::OUT)];
            match poll(&mut fds, Some(&PAUSE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            if !self.stop.load(Ordering::SeqCst) {
                continue;
            }
            if self.stopped.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(io::Error::other(
                    "nobody reads standard output: the end of what was to be printed is lost",
                ));
            }
        }
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait()?;
        let some = bytes.get(..AT_ONCE).unwrap_or(bytes);
        let written = rustix::io::write(&self.out, some)?;
        self.stopped = None;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
