//! Where log lines go: standard error in the foreground, a file, or syslog (which is the journal where
//! systemd runs) for a daemon.

mod filter;
pub mod reasons;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bickford_layers::files;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

use self::reasons::Reasons;
use crate::failure::Failure;
use crate::terminal;

const SYSLOG: &str = "/dev/log";

/// syslog(3): facility "daemon" in the upper bits of the priority.
const FACILITY_DAEMON: u8 = 3 << 3;

enum Sink {
    Standard,
    File(File),
    Syslog(Syslog),
}

/// The system's log, by its socket, which is another one after syslog has been started again.
struct Syslog {
    path: &'static Path,
    socket: Option<UnixDatagram>,
    tried: Instant,
}

/// How long to leave a log alone that cannot be reached.
const SYSLOG_RETRY: Duration = Duration::from_secs(1);

impl Syslog {
    fn new(path: &'static Path) -> Self {
        Self {
            path,
            socket: connect(path).ok(),
            tried: Instant::now(),
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut result = match &self.socket {
            Some(socket) => socket.send(message).map(drop),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        // Who does not read loses lines, and holds up nobody.
        let is_gone = |error: &io::Error| error.kind() != io::ErrorKind::WouldBlock;
        if result.as_ref().is_err_and(is_gone) && self.may_try() {
            self.socket = None;
            self.tried = Instant::now();
            let socket = self.socket.insert(connect(self.path)?);
            result = socket.send(message).map(drop);
        }
        result
    }

    /// Whether to connect once more: at once where the log was reached until now.
    fn may_try(&self) -> bool {
        self.socket.is_some() || self.tried.elapsed() > SYSLOG_RETRY
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A log that is not read must not hold up requests.
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    Ok(socket)
}

struct State {
    sink: Sink,
    daemon: bool,
    /// Whoever started the daemon still waits: warnings are shown there too.
    starting: bool,
    /// Errors since the beginning, for standard error unless the reason why there is no mount tells them.
    held: Vec<Vec<u8>>,
}

impl State {
    fn write(&mut self, level: Level, text: &[u8]) -> io::Result<()> {
        let shown = self.daemon || matches!(self.sink, Sink::Standard);
        let holds = self.starting && shown && level == Level::ERROR;
        if holds && self.held.len() < reasons::KEPT {
            self.held.push(text.to_owned());
            if !self.daemon {
                return Ok(());
            }
        } else if self.starting && self.daemon && level <= Level::WARN {
            let _ = io::stderr().write_all(text);
        }
        match &mut self.sink {
            Sink::Standard => io::stderr().write_all(text),
            Sink::File(file) => file.write_all(text),
            Sink::Syslog(syslog) => syslog.send(&syslog_message(level, text)),
        }
    }

    fn show_held(&mut self) {
        self.starting = false;
        for text in self.held.drain(..) {
            let _ = io::stderr().write_all(&text);
        }
    }
}

/// The place where log lines go.
#[derive(Clone)]
pub struct Log {
    state: Arc<Mutex<State>>,
}

impl Log {
    /// Starts logging what `text` says: to `file`, or to syslog for a daemon, or to standard error. `modules` are the
    /// crates besides Bickford's whose modules can be named.
    ///
    /// # Errors
    /// The text says nothing, the file cannot be opened, or this process logs already.
    pub fn start(
        text: &str,
        modules: &[&str],
        file: Option<&Path>,
        daemon: bool,
    ) -> Result<Self, Failure> {
        let refused = |what: String| {
            let allowed = filter::allowed(modules);
            Failure::new(format!("--log {text}: {what}; {allowed}"))
        };
        filter::check(text, modules).map_err(refused)?;
        let filter = EnvFilter::try_new(text).map_err(|error| refused(error.to_string()))?;
        let sink = match file {
            None if daemon => Sink::Syslog(Syslog::new(Path::new(SYSLOG))),
            None => Sink::Standard,
            Some(path) => Sink::File(append(path)?),
        };
        let colours = matches!(sink, Sink::Standard) && rustix::termios::isatty(io::stderr());
        let state = State {
            sink,
            daemon,
            starting: true,
            held: Vec::new(),
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
            .map_err(|error| {
                Failure::new(format!(
                    "start logging: {error}: leave out the program's own subscriber of tracing (in C bickford_log), its \
                     lines come with these"
                ))
            })?;
        Ok(log)
    }

    /// Nobody waits for the daemon any more.
    pub fn started(&self) {
        self.state().show_held();
    }

    /// The mount did not begin.
    pub fn failed(&self) {
        let mut state = self.state();
        if reasons::are_told() {
            state.held.clear();
        }
        state.show_held();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
pub struct Line {
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
        // There is nowhere to report that a log line could not be written.
        let _ = self.log.state().write(self.level, &self.text);
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
        "<{}>{}[{}]: ",
        FACILITY_DAEMON | severity,
        terminal::name(),
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
            text.starts_with("<28>bickford_program-") && text.ends_with("]: busy"),
            "{text}"
        );
    }

    #[test]
    fn a_log_that_is_started_again_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path: &'static Path = Box::leak(dir.path().join("log").into_boxed_path());
        let mut syslog = Syslog::new(path);
        assert!(syslog.send(b"nobody is there").is_err());
        for round in 0..2 {
            let reader = UnixDatagram::bind(path).unwrap();
            syslog.tried -= SYSLOG_RETRY * 2;
            syslog.send(b"a line").unwrap();
            let mut line = [0; 16];
            let length = reader.recv(&mut line).unwrap();
            assert_eq!(&line[..length], b"a line", "{round}");
            drop(reader);
            std::fs::remove_file(path).unwrap();
        }
        assert!(syslog.send(b"nobody is there any more").is_err());
        syslog.tried = Instant::now();
        assert!(!syslog.may_try(), "not at once again");
    }
}
