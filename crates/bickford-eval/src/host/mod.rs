//! The machine: processes, mounts, devices, memory limits.

pub mod cgroup;
pub mod device;
pub mod mounts;
pub mod process;
pub(crate) mod virtio;
pub(crate) mod work;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::limits::CACHES_STAY_WARM;

/// What a result is worth only together with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn probe() -> Self {
        let uname = rustix::system::uname();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = text("/proc/cpuinfo")
            .lines()
            .find_map(|l| {
                l.strip_prefix("model name")
                    .map(|r| r.trim_start_matches([' ', '\t', ':']).to_owned())
            })
            .unwrap_or_else(|| uname.machine().to_string_lossy().into_owned());
        Self {
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            cpu,
            cpus: cpus(&text("/proc/stat")).unwrap_or_else(usable_cpus),
            memory_bytes: meminfo("MemTotal"),
        }
    }
}

/// The CPUs whose time a `/proc/stat` counts, whether this process may use them or not; `None` where it has none.
fn cpus(stat: &str) -> Option<usize> {
    let numbers = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let count = numbers.filter(|n| n.starts_with(|c: char| c.is_ascii_digit()));
    Some(count.count()).filter(|count| *count > 0)
}

/// The CPUs that this process may keep busy.
pub(crate) fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A line of /proc/meminfo, in bytes; 0 where it is missing.
#[must_use]
pub fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// The kernel's switch for FUSE over io_uring, `Y` or `N`; `None` where it has none.
#[must_use]
pub fn enable_uring() -> Option<String> {
    let read = || fs::read_to_string("/sys/module/fuse/parameters/enable_uring").ok();
    let value = read().or_else(|| {
        // A module that is not loaded yet is loaded by this.
        let _ = fs::File::open("/dev/fuse");
        read()
    })?;
    Some(value.trim().to_owned())
}

/// True for uid 0.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Writes back the file system of `directory` and drops all caches.
///
/// # Errors
/// Why it was not done; without root that is the normal case.
pub fn drop_caches(directory: &Path) -> Result<(), String> {
    let file =
        fs::File::open(directory).map_err(|e| format!("open {}: {e}", directory.display()))?;
    rustix::fs::syncfs(&file).map_err(|e| format!("sync {}: {e}", directory.display()))?;
    fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|e| format!("write /proc/sys/vm/drop_caches: {e} ({CACHES_STAY_WARM})"))
}

/// Runs a tool of the system to its end and returns what it printed. In a process group of its own, which Ctrl-C does
/// not reach: what a tool has half done nobody would undo.
///
/// # Errors
/// The command with its own message.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> Result<String, String> {
    // Those that only root runs may be where another user's PATH, which sudo may keep, does not look.
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    let output = std::process::Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .process_group(0)
        .output()
        .map_err(|e| cannot_run(program, &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{program} {}: {}",
        arguments.join(" "),
        message.trim()
    ))
}

/// Names the Debian package of what is not found.
fn cannot_run(program: &str, error: &std::io::Error) -> String {
    let package = match program {
        "fusermount3" => "fuse3",
        "losetup" | "mount" => "mount or util-linux",
        "mkfs.ext4" => "e2fsprogs",
        other => other,
    };
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("{program} not found; install the package {package}")
        }
        _ => format!("{program}: {error}"),
    }
}

pub(crate) fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("{}: the name is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_root_are_found_and_others_are_told_with_their_package() {
        let path = tool("printenv", &["PATH"]).unwrap();
        assert!(path.ends_with(":/usr/sbin:/sbin"), "{path}");
        let missing = std::io::ErrorKind::NotFound.into();
        let told = "mkfs.ext4 not found; install the package e2fsprogs";
        assert_eq!(cannot_run("mkfs.ext4", &missing), told);
    }

    #[test]
    fn cpus_that_this_process_may_not_use_are_of_the_machine_too() {
        assert_eq!(cpus("cpu  1 2\ncpu0 1 2\ncpu11 1 2\nintr 3\n"), Some(2));
        assert_eq!(cpus(""), None);
        let before = Machine::probe().cpus;
        let mut first = rustix::thread::sched_getaffinity(None).unwrap();
        let one = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| first.is_set(*cpu));
        first.clear();
        first.set(one.unwrap());
        rustix::thread::sched_setaffinity(None, &first).unwrap();
        assert_eq!((Machine::probe().cpus, usable_cpus()), (before, 1));
    }
}
