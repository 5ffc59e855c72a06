//! Who uses a mount: a walk over /proc that sends no request to the file system.

use std::fmt;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::mountinfo::MountEntry;
use crate::sys::mount::parse_mount_id;

/// Most processes a message names.
const NAMED: usize = 8;

/// How a process uses a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// As current directory.
    CurrentDirectory,
    /// As root directory.
    RootDirectory,
    /// Through an open descriptor.
    Descriptor(u32),
    /// A file of it is mapped.
    Mapping,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CurrentDirectory => f.write_str("current directory"),
            Self::RootDirectory => f.write_str("root directory"),
            Self::Descriptor(number) => write!(f, "descriptor {number}"),
            Self::Mapping => f.write_str("mapped file"),
        }
    }
}

/// A process that uses a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// Its name (/proc/PID/comm).
    pub name: String,
    /// The ways it was first seen to use the mount, one of each kind.
    pub uses: Vec<Use>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({})", self.pid, self.name)?;
        for (index, kind) in self.uses.iter().enumerate() {
            write!(f, "{}{kind}", if index == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

/// The processes that use the mount, as far as this process may see them.
pub(super) fn holders(entry: &MountEntry) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = processes
        .flatten()
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let uses = uses(&process.path(), entry);
            (!uses.is_empty()).then(|| Holder {
                pid,
                name: name(&process.path()),
                uses,
            })
        })
        .collect::<Vec<_>>();
    found.sort_by_key(|holder| holder.pid);
    found
}

/// The holders and the mounts below, as part of a sentence.
pub(super) fn describe(holders: &[Holder], below: &[PathBuf]) -> String {
    let mut parts = below
        .iter()
        .map(|path| format!("{} is mounted below it", path.display()))
        .collect::<Vec<_>>();
    parts.extend(holders.iter().take(NAMED).map(Holder::to_string));
    if holders.len() > NAMED {
        parts.push(format!("and {} more", holders.len() - NAMED));
    }
    if parts.is_empty() {
        "used by processes that this user may not look at, or by the kernel (see 'fuser -vm' as root)".to_owned()
    } else {
        parts.join("; ")
    }
}

fn name(process: &Path) -> String {
    let bytes = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

fn uses(process: &Path, entry: &MountEntry) -> Vec<Use> {
    let directories = [("cwd", Use::CurrentDirectory), ("root", Use::RootDirectory)];
    let mut uses = directories
        .into_iter()
        .filter(|(link, _)| link_mount_id(&process.join(link)) == Some(entry.id))
        .map(|(_, kind)| kind)
        .collect::<Vec<_>>();
    uses.extend(first_descriptor(process, entry.id).map(Use::Descriptor));
    if maps_a_file(process, entry) {
        uses.push(Use::Mapping);
    }
    uses
}

fn link_mount_id(link: &Path) -> Option<u64> {
    let file = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let info = fs::read(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    parse_mount_id(&info)
}

fn first_descriptor(process: &Path, mount_id: u64) -> Option<u32> {
    let infos = fs::read_dir(process.join("fdinfo")).ok()?;
    let numbers = infos.flatten().filter_map(|info| {
        let number = info.file_name().to_str()?.parse().ok()?;
        let text = fs::read(info.path()).ok()?;
        (parse_mount_id(&text)? == mount_id).then_some(number)
    });
    numbers.min()
}

fn maps_a_file(process: &Path, entry: &MountEntry) -> bool {
    let Ok(maps) = fs::read(process.join("maps")) else {
        return false;
    };
    let device = format!("{:02x}:{:02x}", entry.major, entry.minor);
    // address permissions offset device inode path
    maps.split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(3))
        .any(|field| field == device.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_the_mount_of_its_root() {
        let entry = MountEntry::at(Path::new("/")).unwrap().unwrap();
        let found = holders(&entry);
        let this = found
            .iter()
            .find(|holder| holder.pid == std::process::id())
            .unwrap();
        assert!(this.uses.contains(&Use::RootDirectory), "{this}");
        assert!(
            this.to_string()
                .starts_with(&format!("pid {} (", std::process::id())),
            "{this}"
        );
    }

    #[test]
    fn descriptions_are_bounded_and_never_empty() {
        let holder = |pid| Holder {
            pid,
            name: "cat".to_owned(),
            uses: vec![Use::Descriptor(3)],
        };
        assert_eq!(describe(&[holder(7)], &[]), "pid 7 (cat): descriptor 3");
        let many = (1..=10).map(holder).collect::<Vec<_>>();
        assert!(describe(&many, &[]).ends_with("; and 2 more"));
        assert!(describe(&[], &[PathBuf::from("/m/x")]).contains("/m/x is mounted below it"));
        assert!(describe(&[], &[]).contains("may not look at"));
    }
}
