//! Where log lines go: standard error in the foreground, a file, or syslog (which is the journal where
//! systemd runs) for a daemon.

mod filter;
mod reasons;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bickford_layers::files;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

pub(crate) use self::reasons::reasons;

use self::reasons::Reasons;
use crate::cli::Failure;

const SYSLOG: &str = "/dev/log";

/// syslog(3): facility "daemon" in the upper bits of the priority.
const FACILITY_DAEMON: u8 = 3 << 3;

enum Sink {
    Standard,
    File(File),
    Syslog(UnixDatagram),
    /// There is no syslog on this machine.
    Nowhere,
}

struct State {
    sink: Sink,
    /// Whoever started the daemon still waits: warnings are shown there too.
    starting: bool,
}

/// The place where log lines go.
#[derive(Clone)]
pub(crate) struct Log {
    state: Arc<Mutex<State>>,
}

impl Log {
    /// Starts logging what `text` says: to `file`, or to syslog for a daemon, or to standard error.
    pub(crate) fn start(text: &str, file: Option<&Path>, daemon: bool) -> Result<Self, Failure> {
        let refused = |what: String| {
            let allowed = filter::allowed();
            Failure::new(format!("--log {text}: {what}; {allowed}"))
        };
        filter::check(text).map_err(refused)?;
        let filter = EnvFilter::try_new(text).map_err(|error| refused(error.to_string()))?;
        let sink = match file {
            None if daemon => syslog(),
            None => Sink::Standard,
            Some(path) => Sink::File(append(path)?),
        };
        let colours = matches!(sink, Sink::Standard) && rustix::termios::isatty(io::stderr());
        let state = State {
            sink,
            starting: daemon,
        };
        let log = Self {
            state: Arc::new(Mutex::new(state)),
        };
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(colours)
            .with_writer(log.clone())
            .with_filter(filter);
        let subscriber = tracing_subscriber::registry()
            .with(lines)
            .with(Reasons.with_filter(LevelFilter::ERROR));
        tracing::subscriber::set_global_default(subscriber)
            .map_err(|error| Failure::new(format!("start logging: {error}")))?;
        Ok(log)
    }

    /// Nobody waits for the daemon any more.
    pub(crate) fn started(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .starting = false;
    }
}

/// It tells names of files, also those that are encrypted below.
const FILE_MODE: u32 = 0o600;

/// A FIFO is never waited for: neither the start nor requests wait for a log.
fn append(path: &Path) -> Result<File, Failure> {
    files::append(path, FILE_MODE).map_err(|error| {
        let advice = files::advice(&error);
        Failure::new(format!("--log-file {}: {error}{advice}", path.display()))
    })
}

fn syslog() -> Sink {
    let socket = UnixDatagram::unbound().and_then(|socket| {
        socket.connect(SYSLOG)?;
        // A log that is not read must not hold up requests.
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    socket.map_or(Sink::Nowhere, Sink::Syslog)
}

impl<'w> MakeWriter<'w> for Log {
    type Writer = Line;

    fn make_writer(&'w self) -> Line {
        Line {
            log: self.clone(),
            level: Level::INFO,
            text: Vec::new(),
        }
    }

    fn make_writer_for(&'w self, metadata: &tracing::Metadata<'_>) -> Line {
        Line {
            log: self.clone(),
            level: *metadata.level(),
            text: Vec::new(),
        }
    }
}

/// One log line, written when it is complete.
pub(crate) struct Line {
    log: Log,
    level: Level,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut state = self
            .log
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // There is nowhere to report that a log line could not be written.
        if state.starting && self.level <= Level::WARN {
            let _ = io::stderr().write_all(&self.text);
        }
        let _ = match &mut state.sink {
            Sink::Standard => io::stderr().write_all(&self.text),
            Sink::File(file) => file.write_all(&self.text),
            Sink::Syslog(socket) => socket
                .send(&syslog_message(self.level, &self.text))
                .map(drop),
            Sink::Nowhere => Ok(()),
        };
    }
}

/// RFC 3164 without a time stamp, as syslog(3) sends it locally.
fn syslog_message(level: Level, text: &[u8]) -> Vec<u8> {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let head = format!(
        "<{}>bickford[{}]: ",
        FACILITY_DAEMON | severity,
        std::process::id()
    );
    [head.as_bytes(), text.trim_ascii_end()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syslog_lines_carry_priority_and_name() {
        let text = String::from_utf8(syslog_message(Level::WARN, b"busy\n")).unwrap();
        assert!(
            text.starts_with("<28>bickford[") && text.ends_with("]: busy"),
            "{text}"
        );
    }
}
