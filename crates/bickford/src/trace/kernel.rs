//! The kernel's tracepoints `fuse_request_send` and `fuse_request_end`: every request of any FUSE
//! mount, whoever serves it.
//!
//! They are read through an instance of tracefs of its own, which is removed afterwards, so that
//! nothing is left enabled and other users of tracing are not disturbed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A request as the kernel saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRequest {
    /// Number of the connection, as in /sys/fs/fuse/connections.
    pub connection: u32,
    /// Number of the request within its connection.
    pub unique: u64,
    /// Number of the opcode.
    pub opcode: u32,
    /// Command name of the caller.
    pub comm: String,
    /// The calling thread.
    pub pid: u32,
    /// Bytes of the request.
    pub bytes_in: u32,
    /// Bytes of the answer; zero over io_uring.
    pub bytes_out: u32,
    /// Zero, or the negative errno of the answer.
    pub error: i32,
    /// When it was queued: microseconds of the monotonic clock.
    pub sent_us: u64,
    /// When it was answered.
    pub ended_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Send {
        connection: u32,
        unique: u64,
        opcode: u32,
        length: u32,
    },
    End {
        connection: u32,
        unique: u64,
        length: u32,
        error: i32,
    },
    Lost(u64),
}

/// Requests that were sent and have not ended, of all connections that are traced; more are not
/// followed.
const OPEN_MAX: usize = 65_536;

/// Reads the tracepoints until it is dropped.
#[derive(Debug)]
pub struct Tracepoints {
    instance: PathBuf,
    pipe: Option<File>,
    buffer: Vec<u8>,
    open: HashMap<(u32, u64), KernelRequest>,
    lost: u64,
}

/// Where tracefs is mounted.
///
/// # Errors
/// When it is not.
pub fn tracefs() -> io::Result<PathBuf> {
    for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        if Path::new(path).join("events").is_dir() {
            return Ok(path.into());
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "tracefs is not mounted; as root: mount -t tracefs none /sys/kernel/tracing",
    ))
}

impl Tracepoints {
    /// Begins to trace one connection, or all.
    ///
    /// # Errors
    /// When tracefs is not mounted, the process may not use it, or the kernel has no such
    /// tracepoints.
    pub fn open(connection: Option<u32>) -> io::Result<Self> {
        let name = format!(
            "bickford-{}-{}",
            std::process::id(),
            super::events::monotonic()
        );
        let instance = tracefs()?.join("instances").join(name);
        fs::create_dir(&instance).map_err(|error| context(&error, &instance))?;
        let mut tracepoints = Self {
            instance,
            pipe: None,
            buffer: Vec::new(),
            open: HashMap::new(),
            lost: 0,
        };
        tracepoints.enable(connection)?;
        Ok(tracepoints)
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.instance.join(name);
        fs::write(&path, value).map_err(|error| context(&error, &path))
    }

    fn enable(&mut self, connection: Option<u32>) -> io::Result<()> {
        self.set("trace_clock", "mono")?;
        self.set("buffer_size_kb", "4096")?;
        if let Some(connection) = connection {
            self.set("events/fuse/filter", &format!("connection == {connection}"))?;
        }
        let path = self.instance.join("trace_pipe");
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path);
        self.pipe = Some(pipe.map_err(|error| context(&error, &path))?);
        for event in ["fuse_request_send", "fuse_request_end"] {
            self.set(&format!("events/fuse/{event}/enable"), "1")?;
        }
        Ok(())
    }

    /// How many lines the kernel dropped because they were not read in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Requests that were sent and have not ended since tracing began.
    pub fn unanswered(&self) -> impl Iterator<Item = &KernelRequest> {
        self.open.values()
    }

    /// Requests that ended since the last call; waits for at most `timeout` when there are none.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub fn take(&mut self, timeout: Duration) -> io::Result<Vec<KernelRequest>> {
        let mut ended = Vec::new();
        let pause = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        loop {
            self.fill()?;
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                ended.extend(self.follow(line.trim_end()));
            }
            if !ended.is_empty() || waited >= timeout {
                return Ok(ended);
            }
            std::thread::sleep(pause);
            waited += pause;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut chunk = [0; 16 << 10];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(length) => self.buffer.extend(chunk.iter().take(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.buffer.len() > 1 << 20 {
                return Ok(());
            }
        }
    }

    fn follow(&mut self, text: &str) -> Option<KernelRequest> {
        let (task, time_us, line) = parse(text)?;
        match line {
            Line::Send {
                connection,
                unique,
                opcode,
                length,
            } => {
                if self.open.len() < OPEN_MAX {
                    let (comm, pid) = task;
                    let request = KernelRequest {
                        connection,
                        unique,
                        opcode,
                        comm,
                        pid,
                        bytes_in: length,
                        bytes_out: 0,
                        error: 0,
                        sent_us: time_us,
                        ended_us: 0,
                    };
                    self.open.insert((connection, unique), request);
                }
                None
            }
            Line::End {
                connection,
                unique,
                length,
                error,
            } => {
                let request = self.open.remove(&(connection, unique))?;
                Some(KernelRequest {
                    bytes_out: length,
                    error,
                    ended_us: time_us,
                    ..request
                })
            }
            Line::Lost(count) => {
                self.lost += count;
                None
            }
        }
    }
}

impl Drop for Tracepoints {
    fn drop(&mut self) {
        let _ = self.set("events/fuse/enable", "0");
        self.pipe = None;
        if let Err(error) = fs::remove_dir(&self.instance) {
            tracing::warn!("remove {}: {error}", self.instance.display());
        }
    }
}

fn context(error: &io::Error, path: &Path) -> io::Error {
    let hint = if error.kind() == io::ErrorKind::PermissionDenied {
        "; run as root"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
}

type Task = (String, u32);

/// A line of trace_pipe: `comm-pid [cpu] flags seconds.micros: event: fields`.
fn parse(text: &str) -> Option<(Task, u64, Line)> {
    if let Some(rest) = text.strip_prefix("CPU:") {
        let count = rest
            .split("[LOST ")
            .nth(1)?
            .split(' ')
            .next()?
            .parse()
            .ok()?;
        return Some(((String::new(), 0), 0, Line::Lost(count)));
    }
    // The command may contain anything, even the names of events: look for the last.
    let (kind, at) = ["fuse_request_send: ", "fuse_request_end: "]
        .into_iter()
        .enumerate()
        .filter_map(|(kind, name)| text.rfind(name).map(|at| (kind, at)))
        .max_by_key(|(_, at)| *at)?;
    let (before, fields) = text.split_at(at);
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |name: &str| {
        let at = fields.iter().position(|word| *word == name)?;
        fields.get(at + 1).copied()
    };
    let (connection, unique) = (
        field("connection")?.parse().ok()?,
        field("req")?.parse().ok()?,
    );
    let length = field("len")?.parse().ok()?;
    let line = if kind == 0 {
        Line::Send {
            connection,
            unique,
            opcode: field("opcode")?.parse().ok()?,
            length,
        }
    } else {
        Line::End {
            connection,
            unique,
            length,
            error: field("error")?.parse().ok()?,
        }
    };
    let before = before.trim_end().strip_suffix(':')?;
    let (before, time) = before.rsplit_once(' ')?;
    let (seconds, micros) = time.split_once('.')?;
    let time_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let task = before.rsplit_once('[')?.0.trim();
    let (comm, pid) = task.rsplit_once('-')?;
    Some(((comm.trim().into(), pid.parse().ok()?), time_us, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let send = "  my-cat [x]-11341   [000] ...1.  2370.678300: fuse_request_send: connection 42 req 4 opcode 1 (FUSE_LOOKUP) len 46 ";
        let expected = Line::Send {
            connection: 42,
            unique: 4,
            opcode: 1,
            length: 46,
        };
        let task = ("my-cat [x]".to_owned(), 11341);
        assert_eq!(parse(send), Some((task, 2_370_678_300, expected)));
        let end = "bickford-1-11337   [000] .....  2370.678682: fuse_request_end: connection 42 req 10 len 16 error -38";
        let expected = Line::End {
            connection: 42,
            unique: 10,
            length: 16,
            error: -38,
        };
        let task = ("bickford-1".to_owned(), 11337);
        assert_eq!(parse(end), Some((task, 2_370_678_682, expected)));
        assert_eq!(parse("CPU:1 [LOST 17 EVENTS]").unwrap().2, Line::Lost(17));
    }

    #[test]
    fn other_lines_are_left_out() {
        for line in [
            "",
            "fuse_request_send: ",
            "x fuse_request_end: connection a req 1",
            "# tracer: nop",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
