//! How much of the write-back cache of a mount may be dirty where memory is limited by a cgroup.
//!
//! Pages of a FUSE mount become clean only by requests that the daemon answers, and for that it needs
//! memory itself. The kernel limits them by the memory of the whole machine (1% of what may be dirty
//! there). In a cgroup that is smaller than that they may fill it: the daemon then sleeps in reclaim
//! (`reclaim_throttle`, 0.1 s at a time) and waits for pages that wait for it. `max_bytes` of the
//! mount's backing device (since Linux 6.2) keeps them to a share. Writing it needs root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::backing_device;
use crate::mount::MountEntry;

/// Dirty pages are kept to this part of a limit.
const PART: u64 = 8;
/// What the kernel allows by itself is about this part of the memory of the machine: 1% of the fifth that may be
/// dirty. An older kernel does not tell it.
const OF_THE_MACHINE: u64 = 500;

/// The share of a mount whose daemon this process would be: how many bytes of its write-back cache may
/// be dirty, an eighth of the least memory limit among the cgroups of this process. `None` where no limit
/// is below the memory of the machine.
#[must_use]
pub fn write_back_share() -> Option<u64> {
    Some(memory_limit().filter(|limit| *limit < machine())? / PART)
}

/// Bytes of memory of the whole machine.
fn machine() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(u64::from(system.mem_unit))
}

/// Keeps dirty pages of `connection` to their part of the memory limit of this process, if there is
/// one, and tells how many bytes that is. Nothing here looks at the mount itself, which nobody
/// serves yet.
pub(super) fn apply(connection: u32) -> Option<u64> {
    let part = write_back_share()?;
    let file = backing_device::directory(connection) + "/max_bytes";
    let in_force: u64 = match fs::read_to_string(&file) {
        Ok(text) => text.trim().parse().ok()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => machine() / OF_THE_MACHINE,
        Err(_) => return None,
    };
    if in_force <= part {
        return None;
    }
    match fs::write(&file, part.to_string()) {
        Ok(()) => Some(part),
        Err(error) => {
            tracing::warn!(
                "write {part} to {file} (Linux 6.2 or later): {error}; unwritten data may fill the memory limit of this \
                 cgroup ({} bytes), and writing is slow then: mount as root, without write-back, or \
                 with a higher limit",
                part * PART
            );
            None
        }
    }
}

/// The least limit of memory, in bytes, among the cgroups that this process is in.
fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = MountEntry::all().ok()?;
    groups
        .lines()
        .filter_map(|line| Group::parse(line)?.limit(&mounts))
        .min()
}

/// A cgroup as /proc/self/cgroup names it, see cgroups(7).
#[derive(Debug, PartialEq, Eq)]
struct Group<'a> {
    unified: bool,
    path: &'a str,
}

impl<'a> Group<'a> {
    /// The group of a line, if it may limit memory.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let hierarchy = fields.next()?;
        let controllers = fields.next()?;
        let path = fields.next()?;
        let unified = hierarchy == "0" && controllers.is_empty();
        let limits = unified || controllers.split(',').any(|name| name == "memory");
        limits.then_some(Self { unified, path })
    }

    fn limit(&self, mounts: &[MountEntry]) -> Option<u64> {
        let mount = mounts.iter().rfind(|mount| self.is_of(mount))?;
        let inner = inner(self.path, &mount.root)?;
        if self.unified {
            limit_of_unified(&mount.mountpoint, inner)
        } else {
            limit_of_v1(&mount.mountpoint.join(inner))
        }
    }

    fn is_of(&self, mount: &MountEntry) -> bool {
        if self.unified {
            mount.fs_type == "cgroup2"
        } else {
            let has_memory = || mount.super_options.split(',').any(|name| name == "memory");
            mount.fs_type == "cgroup" && has_memory()
        }
    }
}

/// The way from the root of a mount to a group: containers mount their own group, but may see its
/// path from the root of all.
fn inner<'a>(path: &'a str, root: &Path) -> Option<&'a Path> {
    let path = Path::new(path);
    let inner = path.strip_prefix(root).or_else(|_| path.strip_prefix("/"));
    inner.ok()
}

/// Of the first version the group itself tells the least limit of all above.
fn limit_of_v1(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("memory.stat")).ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix("hierarchical_memory_limit ")?
            .parse()
            .ok()
    })
}

/// Of the second each group tells its own, `max` where there is none; reclaim begins at `high`.
fn limit_of_unified(mountpoint: &Path, inner: &Path) -> Option<u64> {
    let groups = inner.ancestors().map(|group| mountpoint.join(group));
    let files = groups.flat_map(|group| ["memory.max", "memory.high"].map(|name| group.join(name)));
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse().ok();
    files.filter_map(number).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(unified: bool, path: &str) -> Option<Group<'_>> {
        Some(Group { unified, path })
    }

    #[test]
    fn groups_that_may_limit_memory() {
        assert_eq!(
            Group::parse("0::/user.slice/a:b"),
            group(true, "/user.slice/a:b")
        );
        assert_eq!(Group::parse("7:memory:/x"), group(false, "/x"));
        assert_eq!(Group::parse("4:cpu,memory:/"), group(false, "/"));
        for other in ["3:cpu:/x", "2:memory", "", "1:name=memory:/x"] {
            assert_eq!(Group::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_way_from_the_root_of_a_mount() {
        let inner = |path, root| inner(path, Path::new(root)).unwrap().to_str();
        assert_eq!(inner("/docker/x", "/docker/x"), Some(""));
        assert_eq!(inner("/docker/x/y", "/docker/x"), Some("y"));
        assert_eq!(inner("/a/b", "/"), Some("a/b"));
        assert_eq!(inner("/", "/docker/x"), Some(""));
    }

    #[test]
    fn the_least_limit_of_all_above() {
        let root = tempfile::tempdir().unwrap();
        let inner = Path::new("a/b");
        fs::create_dir_all(root.path().join(inner)).unwrap();
        assert_eq!(limit_of_unified(root.path(), inner), None);
        fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(limit_of_unified(root.path(), inner), Some(1 << 20));
        fs::write(root.path().join("a/b/memory.high"), "4096\n").unwrap();
        assert_eq!(limit_of_unified(root.path(), inner), Some(4096));
        assert_eq!(limit_of_v1(&root.path().join(inner)), None);
        let stat = "cache 1\nhierarchical_memory_limit 8192\nhierarchical_memsw_limit 1\n";
        fs::write(root.path().join("a/memory.stat"), stat).unwrap();
        assert_eq!(limit_of_v1(&root.path().join("a")), Some(8192));
    }
}
