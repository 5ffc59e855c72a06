//! Who uses a mount: a walk over /proc that sends no request to the file system.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use super::mountinfo::MountEntry;
use crate::sys::mount::{parse_mount_id, reusable_id};

/// Most processes a message names.
const NAMED: usize = 8;

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Where a thread is that waits for an answer (`fs/fuse/dev.c`), as proc_pid_wchan(5) has it.
const WAITS: &str = "request_wait_answer";

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
    /// A thread waits for the answer of a request.
    Request,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CurrentDirectory => f.write_str("current directory"),
            Self::RootDirectory => f.write_str("root directory"),
            Self::Descriptor(number) => write!(f, "descriptor {number}"),
            Self::Mapping => f.write_str("mapped file"),
            Self::Request => f.write_str("waits for an answer"),
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
    found(|process| uses(process, entry))
}

/// The processes that use the file system on a device, whose number st_rdev of stat(2) has, wherever it is mounted or
/// was, as far as this process may see them. No request is sent to the file system.
#[must_use]
pub fn device_holders(number: u64) -> Vec<Holder> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    found(|process| {
        let is_there = |file: &OwnedFd| device_of(file) == Some((major, minor));
        let mut uses = uses_by_links(process, is_there);
        let opened = || {
            let files = fs::read_dir(process.join("fd")).ok()?.flatten();
            let its = files.filter(|file| open_link(&file.path()).as_ref().is_some_and(is_there));
            let numbers = its.filter_map(|file| file.file_name().to_str()?.parse().ok());
            numbers.min()
        };
        uses.extend(opened().map(Use::Descriptor));
        if maps_a_file(process, major, minor) {
            uses.push(Use::Mapping);
        }
        uses
    })
}

/// The processes that have any uses.
fn found(uses: impl Fn(&Path) -> Vec<Use>) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = processes
        .flatten()
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let uses = uses(&process.path());
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

/// How many requests of the connection wait for an answer, where fusectl tells.
pub(super) fn requests(entry: &MountEntry) -> u64 {
    waiting_of(&PathBuf::from(format!(
        "{CONNECTIONS}/{}",
        entry.connection()
    )))
}

fn waiting_of(connection: &Path) -> u64 {
    let text = fs::read_to_string(connection.join("waiting"));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// The processes that wait for an answer of the mount. The kernel does not say of which mount: they are known
/// only where no other has requests that wait.
pub(super) fn waiting(entry: &MountEntry) -> Vec<Holder> {
    let connections = fs::read_dir(CONNECTIONS).into_iter().flatten().flatten();
    let others = connections.filter(|other| other.file_name() != *entry.connection().to_string());
    if others
        .map(|other| waiting_of(&other.path()))
        .any(|waits| waits > 0)
    {
        return Vec::new();
    }
    found(|process| match waits_for_an_answer(process) {
        true => vec![Use::Request],
        false => Vec::new(),
    })
}

fn waits_for_an_answer(process: &Path) -> bool {
    let tasks = fs::read_dir(process.join("task"));
    tasks.into_iter().flatten().flatten().any(|task| {
        let place = fs::read_to_string(task.path().join("wchan"));
        place.is_ok_and(|name| name == WAITS)
    })
}

/// Who and what keeps the mount, and what to do, as the end of a sentence.
pub(super) fn describe(
    mountpoint: &Path,
    holders: &[Holder],
    below: &[PathBuf],
    requests: u64,
) -> String {
    let shown = mountpoint.display();
    let mut parts = below
        .iter()
        .map(|path| format!("{} is mounted below it, unmount that first", path.display()))
        .collect::<Vec<_>>();
    parts.extend(holders.iter().take(NAMED).map(Holder::to_string));
    if holders.len() > NAMED {
        parts.push(format!("and {} more", holders.len() - NAMED));
    }
    if requests > 0 && below.is_empty() {
        let some = "requests wait in it for an answer";
        parts.push(format!("{some} ('bickford stat {shown}' shows them)"));
    }
    if parts.is_empty() {
        parts.push(unknown_users(mountpoint));
    }
    let whole = parts.join("; ");
    match (holders, below, requests) {
        ([], [], 1..) => format!("{whole}; --force fails them"),
        ([], [_, ..], _) => format!("{whole}, or unmount with --lazy (gone when nobody uses it)"),
        _ => format!(
            "{whole}; end them, or unmount with --lazy (gone when they are) or --force (their requests fail)"
        ),
    }
}

fn unknown_users(mountpoint: &Path) -> String {
    let shown = mountpoint.display();
    match rustix::process::geteuid().is_root() {
        true => format!(
            "used by the kernel, or by processes that are not seen in /proc here (see 'fuser -vm {shown}')"
        ),
        false => "used by processes that this user may not look at, or by the kernel (see 'fuser -vm' as root)".to_owned(),
    }
}

pub(super) fn name(process: &Path) -> String {
    let bytes = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

fn uses(process: &Path, entry: &MountEntry) -> Vec<Use> {
    let mut uses = uses_by_links(process, |file| reusable_id(file) == Some(entry.id));
    uses.extend(first_descriptor(process, entry.id).map(Use::Descriptor));
    if maps_a_file(process, entry.major, entry.minor) {
        uses.push(Use::Mapping);
    }
    uses
}

/// Directories of a process that are where they are asked for.
fn uses_by_links(process: &Path, is_there: impl Fn(&OwnedFd) -> bool) -> Vec<Use> {
    let directories = [("cwd", Use::CurrentDirectory), ("root", Use::RootDirectory)];
    directories
        .into_iter()
        .filter(|(link, _)| {
            open_link(&process.join(link))
                .as_ref()
                .is_some_and(&is_there)
        })
        .map(|(_, kind)| kind)
        .collect()
}

fn open_link(link: &Path) -> Option<OwnedFd> {
    rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The device of a file, from what the kernel has of it.
fn device_of(file: &OwnedFd) -> Option<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
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

fn maps_a_file(process: &Path, major: u32, minor: u32) -> bool {
    let Ok(maps) = fs::read(process.join("maps")) else {
        return false;
    };
    let device = format!("{major:02x}:{minor:02x}");
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
        let said = |holders: &[Holder], below: &[&str], requests| {
            let below = below.iter().map(PathBuf::from).collect::<Vec<_>>();
            describe(Path::new("/m"), holders, &below, requests)
        };
        assert!(said(&[holder(7)], &[], 0).starts_with("pid 7 (cat): descriptor 3; end them, or"));
        let many = (1..=10).map(holder).collect::<Vec<_>>();
        assert!(said(&many, &[], 0).contains("; and 2 more; end them"));
        let below = said(&[], &["/m/x"], 0);
        assert!(
            below.starts_with("/m/x is mounted below it, unmount that first"),
            "{below}"
        );
        assert!(!below.contains("end them"), "{below}");
        let hangs = said(&[], &[], 3);
        assert!(
            hangs.contains("'bickford stat /m'") && hangs.contains("--force"),
            "{hangs}"
        );
        assert!(said(&[], &[], 0).contains("used by"));
    }
}
