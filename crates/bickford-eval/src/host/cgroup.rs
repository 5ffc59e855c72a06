//! A memory limit for the workload and the daemon together, by cgroup v1 or v2.

mod unified;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::terminal::warn;

/// Programs need memory besides the page cache: no limit is set below this, and what a workload is
/// known to hold comes on top.
pub const LEAST: u64 = 64 << 20;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A cgroup with a memory limit; removed when dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    directory: PathBuf,
    v2: bool,
    /// The limit in bytes.
    pub bytes: u64,
    /// What is to be told: which limits of the caller's own the group does not have.
    pub told: Option<String>,
}

/// Where the memory controller is mounted, and whether it is v2.
fn controller() -> Result<(PathBuf, bool), String> {
    let table = fs::read("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
    in_table(&table)
}

/// The memory controller in a table of mounts, others of which may have names that are not UTF-8.
fn in_table(table: &[u8]) -> Result<(PathBuf, bool), String> {
    let table = String::from_utf8_lossy(table);
    let mut unified = None;
    for line in table.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(point), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if kind == "cgroup" && options.split(',').any(|o| o == "memory") {
            return Ok((PathBuf::from(point), false));
        }
        if kind == "cgroup2" {
            unified = Some(PathBuf::from(point));
        }
    }
    let root = unified.ok_or("no cgroup file system is mounted")?;
    Ok((root, true))
}

impl MemoryLimit {
    /// Makes a cgroup limited to `bytes`, or [`LEAST`] if that is more, and `buffers` bytes that the
    /// workload itself holds.
    ///
    /// # Errors
    /// Why there is no limit here: no root, no memory controller, no permission.
    pub fn new(bytes: u64, buffers: u64) -> Result<Self, String> {
        let (root, v2) = controller()?;
        let bytes = bytes.max(LEAST).saturating_add(buffers);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bickford-eval-{}-{number}", std::process::id());
        let (directory, told) = if v2 {
            unified::make(&root, unified::own(&root).as_deref(), &name)?
        } else {
            let directory = root.join(name);
            fs::create_dir(&directory)
                .map_err(|e| format!("make cgroup {}: {e}", directory.display()))?;
            (directory, None)
        };
        let limit = Self {
            directory,
            v2,
            bytes,
            told,
        };
        let file = limit.directory.join(if v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        });
        fs::write(&file, bytes.to_string())
            .map_err(|e| format!("write {}: {e}", file.display()))?;
        Ok(limit)
    }

    /// A limit as any other, to see whether there can be one.
    ///
    /// # Errors
    /// As [`MemoryLimit::new`].
    pub fn probe() -> Result<Self, String> {
        Self::new(1 << 30, 0)
    }

    /// The file that takes the number of a process to be limited.
    #[must_use]
    pub fn entrance(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// Bytes of page cache charged to the group now.
    #[must_use]
    pub fn page_cache(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let name = if self.v2 { "file " } else { "total_cache " };
        text.lines()
            .find_map(|l| l.strip_prefix(name)?.trim().parse().ok())
            .unwrap_or(0)
    }

    /// How often the kernel killed a process of the group for want of memory.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let file = if self.v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        text.lines()
            .find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok())
            .unwrap_or(0)
    }
}

/// How long a process that just ended may hold the group.
const REMOVE_TIME: Duration = Duration::from_secs(2);

/// Removes a cgroup once nobody is in it.
fn remove(directory: &Path, time: Duration) -> Result<(), String> {
    let end = Instant::now() + time;
    loop {
        match fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > end => {
                return Err(format!(
                    "remove the cgroup {}: {error}; rmdir it when the processes in its cgroup.procs have ended",
                    directory.display()
                ));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory, REMOVE_TIME) {
            warn(&error);
        }
    }
}

/// Where the machine begins to write back dirty pages, in place of its own setting until dropped.
///
/// A v1 cgroup has no limit for dirty pages: filled with them, its processes sleep in reclaim for seconds
/// while the device idles. On a machine with only that much memory write-back would begin at a tenth of
/// it; a quarter of the limit comes close and leaves the point where writers are stopped as it is.
#[derive(Debug)]
pub struct Writeback {
    /// Locked, so that two runs at once do not take each other's setting for the machine's own.
    _lock: fs::File,
    bytes: String,
    ratio: String,
}

const BACKGROUND_BYTES: &str = "/proc/sys/vm/dirty_background_bytes";
const BACKGROUND_RATIO: &str = "/proc/sys/vm/dirty_background_ratio";

impl Writeback {
    /// For a v1 cgroup with `limit`; `None` where it is not needed, not allowed, or another run has
    /// it already.
    #[must_use]
    pub fn early(limit: &MemoryLimit) -> Option<Self> {
        if limit.v2 {
            return None;
        }
        let read = |path: &str| fs::read_to_string(path).ok().map(|t| t.trim().to_owned());
        let lock = fs::File::open(BACKGROUND_BYTES).ok()?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok()?;
        let before = Self {
            _lock: lock,
            bytes: read(BACKGROUND_BYTES)?,
            ratio: read(BACKGROUND_RATIO)?,
        };
        fs::write(BACKGROUND_BYTES, (limit.bytes / 4).to_string()).ok()?;
        Some(before)
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        // Writing one of the two sets the other to 0.
        let (path, value) = if self.bytes == "0" {
            (BACKGROUND_RATIO, &self.ratio)
        } else {
            (BACKGROUND_BYTES, &self.bytes)
        };
        if let Err(error) = fs::write(path, value) {
            warn(&format!("write {value} back to {path}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_that_is_not_utf8_does_not_hide_the_controller() {
        let table = b"none /mnt/\xff tmpfs rw 0 0\nnone /cg/memory cgroup rw,memory 0 0\n";
        assert_eq!(in_table(table), Ok(("/cg/memory".into(), false)));
    }

    #[test]
    fn a_group_that_stays_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("group");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("held"), "").unwrap();
        let said = remove(&group, Duration::ZERO).unwrap_err();
        assert!(said.contains(&*group.to_string_lossy()), "{said}");
        fs::remove_file(group.join("held")).unwrap();
        assert_eq!(remove(&group, Duration::ZERO), Ok(()));
        assert_eq!(remove(&group, Duration::ZERO), Ok(()), "it is gone");
    }
}
