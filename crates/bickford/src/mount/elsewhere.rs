//! The same file system in other mount namespaces.
//!
//! A mount namespace begins as a copy of another, with its mounts. Unless the copies are told of changes (mount
//! propagation, see mount_namespaces(7)), they stay when the mount they were made of is unmounted.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::busy;
use super::mountinfo::MountEntry;

/// A mount in another mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elsewhere {
    /// A process of that namespace.
    pub pid: u32,
    /// Its name (/proc/PID/comm).
    pub name: String,
    /// Where it is mounted there.
    pub mountpoint: PathBuf,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, name) = (self.pid, &self.name);
        write!(f, "{} for pid {pid} ({name})", self.mountpoint.display())
    }
}

/// Where the file system of a mount is mounted in other mount namespaces than that of the caller, once for each that
/// has a process which the caller may look at.
///
/// The file system must be there: the number of its device may be another's later.
#[must_use]
pub fn elsewhere(entry: &MountEntry) -> Vec<Elsewhere> {
    find(|other| is_same(other, entry))
}

/// The same for the file system on a device, whose number st_rdev of stat(2) has.
#[must_use]
pub fn device_elsewhere(number: u64) -> Vec<Elsewhere> {
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    find(|other| (other.major, other.minor) == number)
}

fn find(is_sought: impl Fn(&MountEntry) -> bool) -> Vec<Elsewhere> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let Some(own) = namespace(Path::new("/proc/self")) else {
        return Vec::new();
    };
    let mut seen = HashSet::from([own]);
    let look = |pid: u32| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        if !seen.insert(namespace(&process)?) {
            return None;
        }
        let mounts = MountEntry::listed_in(&process.join("mountinfo")).ok()?;
        let found = mounts.into_iter().find(|other| is_sought(other))?;
        Some(Elsewhere {
            pid,
            name: busy::name(&process),
            mountpoint: found.mountpoint,
        })
    };
    processes().into_iter().filter_map(look).collect()
}

/// All processes, the oldest of a namespace mostly first.
fn processes() -> Vec<u32> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers = listed
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect::<Vec<_>>();
    numbers.sort_unstable();
    numbers
}

fn is_same(one: &MountEntry, other: &MountEntry) -> bool {
    let key = |entry: &MountEntry| (entry.major, entry.minor);
    let names = |entry: &MountEntry| (entry.fs_type.clone(), entry.source.clone());
    key(one) == key(other) && names(one) == names(other)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_copy_in_another_mount_namespace_is_found() {
        if !rustix::process::geteuid().is_root() {
            return crate::watchdog::say(format_args!(
                "SKIPPED: not root, who alone unshares mounts"
            ));
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "echo; read -r line"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let number = fs::metadata("/proc").unwrap().dev();
        let found = device_elsewhere(number);
        drop(child.stdin.take());
        child.wait().unwrap();
        let it = found.iter().find(|one| one.pid == child.id());
        assert_eq!(it.unwrap().mountpoint, Path::new("/proc"), "{found:?}");
        let after = device_elsewhere(number);
        assert!(after.iter().all(|one| one.pid != child.id()));
    }
}
