//! An instance of tracefs: a buffer and switches of its own, removed at the end.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const EVENTS: [&str; 2] = ["fuse/fuse_request_send", "fuse/fuse_request_end"];

/// Buffer of each CPU in KiB: 16 MiB hold some 400,000 events between two readings.
const BUFFER_KIB: &str = "16384";
const PREFIX: &str = "bickford-";
/// How long an instance that is to be removed may still be in use.
const FREE_WAIT: Duration = Duration::from_secs(1);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where tracefs is mounted.
///
/// # Errors
/// When it is not, or this process may not look there.
pub fn tracefs() -> io::Result<PathBuf> {
    for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        let events = Path::new(path).join("events");
        match fs::metadata(&events) {
            Ok(found) if found.is_dir() => return Ok(path.into()),
            // Whether it is mounted cannot be seen.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(context(&error, &events));
            }
            _ => {}
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "tracefs is not mounted; as root: mount -t tracefs none /sys/kernel/tracing",
    ))
}

pub(super) fn context(error: &io::Error, path: &Path) -> io::Error {
    let hint = if error.kind() == io::ErrorKind::PermissionDenied {
        "; run as root"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
}

#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
}

impl Instance {
    pub(super) fn make(tracefs: &Path) -> io::Result<Self> {
        let instances = tracefs.join("instances");
        remove_leftovers(&instances);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = instances.join(format!("{PREFIX}{}-{count}", std::process::id()));
        fs::create_dir(&path).map_err(|error| context(&error, &path))?;
        Ok(Self { path })
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.path.join(name);
        fs::write(&path, value).map_err(|error| context(&error, &path))
    }

    /// The buffers of all CPUs, for reading without waiting.
    pub(super) fn buffers(&self) -> io::Result<Vec<File>> {
        self.set("buffer_size_kb", BUFFER_KIB)?;
        let directory = self.path.join("per_cpu");
        let cpus = fs::read_dir(&directory).map_err(|error| context(&error, &directory))?;
        cpus.map(|cpu| {
            let path = cpu?.path().join("trace_pipe_raw");
            OpenOptions::new()
                .read(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
                .open(&path)
                .map_err(|error| context(&error, &path))
        })
        .collect()
    }

    pub(super) fn enable(&self, connection: Option<u32>) -> io::Result<()> {
        if let Some(connection) = connection {
            self.set("events/fuse/filter", &format!("connection == {connection}"))?;
        }
        // The end first: the other way round, a request could seem to be open for ever.
        let [send, end] = EVENTS;
        self.enable_all(&[end, send])
    }

    /// All of `events`, one after the other.
    pub(super) fn enable_all(&self, events: &[&str]) -> io::Result<()> {
        // One clock for all CPUs, since a request may end on another than it began on; and the one
        // that daemons have.
        self.set("trace_clock", "mono")?;
        for event in events {
            self.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(())
    }

    /// From now on only events of the threads that `list` tells, and of those that these start.
    pub(super) fn follow_threads(
        &self,
        list: impl Fn() -> io::Result<Vec<String>>,
    ) -> io::Result<()> {
        self.set("options/event-fork", "1")?;
        // Twice: a thread may be started by one that is not followed yet.
        for _ in 0..2 {
            self.set("set_event_pid", &list()?.join(" "))?;
        }
        Ok(())
    }

    /// Also the event `event`, where `filter` holds.
    pub(super) fn enable_where(&self, event: &str, filter: &str) -> io::Result<()> {
        self.set(&format!("events/{event}/filter"), filter)?;
        self.set(&format!("events/{event}/enable"), "1")
    }

    pub(super) fn disable(&self) -> io::Result<()> {
        self.set("events/enable", "0")
    }

    /// Command name of a thread: its own, or the one the kernel saw last where it has ended.
    pub(super) fn name_of(&self, thread: u32) -> String {
        if let Ok(name) = fs::read_to_string(format!("/proc/{thread}/comm")) {
            return name.trim_end().to_owned();
        }
        let root = self.path.ancestors().nth(2).unwrap_or(&self.path);
        let saved = fs::read_to_string(root.join("saved_cmdlines")).unwrap_or_default();
        let of_line = |line: &str| {
            let (pid, name) = line.split_once(' ')?;
            (pid.parse() == Ok(thread)).then(|| name.to_owned())
        };
        saved.lines().find_map(of_line).unwrap_or_default()
    }

    /// Events that found no room in the buffers.
    pub(super) fn overrun(&self) -> u64 {
        let cpus = fs::read_dir(self.path.join("per_cpu"))
            .into_iter()
            .flatten();
        let of_cpu = |path: PathBuf| -> u64 {
            let stats = fs::read_to_string(path.join("stats")).unwrap_or_default();
            let count = |name: &str| {
                let value = stats.lines().find_map(|line| line.strip_prefix(name));
                value.and_then(|value| value.trim().parse::<u64>().ok())
            };
            count("overrun:").unwrap_or(0) + count("dropped events:").unwrap_or(0)
        };
        cpus.flatten().map(|cpu| of_cpu(cpu.path())).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let ended = self.disable().and_then(|()| {
            remove_when_free(&self.path).map_err(|error| context(&error, &self.path))
        });
        if let Err(error) = ended {
            tracing::warn!("end tracing: {error}");
        }
    }
}

/// Removes an instance. A process that another thread is starting has its files open until it executes its
/// program.
fn remove_when_free(path: &Path) -> io::Result<()> {
    let end = Instant::now() + FREE_WAIT;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// Removes instances of processes that were killed. The kernel keeps one that is being read.
fn remove_leftovers(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let alive = |pid: &str| Path::new("/proc").join(pid).exists();
        if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !alive(pid)) {
            // A failure means that somebody in another namespace uses it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}
