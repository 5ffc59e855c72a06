//! Unmounting, also of mounts whose server is gone.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

use super::busy::{self, Holder};
use super::fusermount;
use super::mountinfo::MountEntry;
use crate::sys::mount::{MountIds, mount_ids, open_mount};

/// How long a busy mount that nobody seems to use is tried, and how long between.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmount {
    /// Only when nobody uses it.
    #[default]
    Normal,
    /// Detached now, gone when the last user is.
    Lazy,
    /// The connection is aborted: every request in flight ends with ECONNABORTED; then as lazy.
    Force,
}

/// Why a mount is still there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// The list of mounts cannot be read.
    #[error("unmount {}: /proc/self/mountinfo cannot be read: {source}", .mountpoint.display())]
    List {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Nothing is mounted there.
    #[error("unmount {}: nothing is mounted there; see 'findmnt -l | grep fuse' for what is", .mountpoint.display())]
    NotMounted {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// Another kind of file system is mounted there.
    #[error("unmount {0}: the mount there is of type {fs_type}, not FUSE; use umount {0}", .mountpoint.display())]
    NotFuse {
        /// The mount point.
        mountpoint: PathBuf,
        /// Its type.
        fs_type: String,
    },
    /// Something else is mounted on top, or above it.
    #[error("unmount {}: covered by another mount of type {fs_type}; unmount that first: umount {}", .mountpoint.display(), .by.display())]
    Covered {
        /// The mount point.
        mountpoint: PathBuf,
        /// Where the other one is mounted: there, or above.
        by: PathBuf,
        /// The type of the mount on top.
        fs_type: String,
    },
    /// The mount on top is not the one that was meant.
    #[error("unmount {}: another mount is there than the one that was meant", .mountpoint.display())]
    Another {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// Somebody uses it.
    #[error("unmount {}: busy: {}", .mountpoint.display(), busy::describe(.mountpoint, .holders, .below, *.requests))]
    Busy {
        /// The mount point.
        mountpoint: PathBuf,
        /// The processes that were seen to use it.
        holders: Vec<Holder>,
        /// Mounts below it.
        below: Vec<PathBuf>,
        /// Requests that wait for an answer, where fusectl tells.
        requests: u64,
    },
    /// Not ours, and no helper.
    #[error("unmount {}: CAP_SYS_ADMIN is missing and fusermount3 was not found; install the fuse3 package or run as root", .mountpoint.display())]
    FusermountMissing {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// Another user mounted it.
    #[error("unmount {}: mounted by {owner}: ask them, or run as root", .mountpoint.display())]
    NotYours {
        /// The mount point.
        mountpoint: PathBuf,
        /// Number and, where /etc/passwd has it, name of the user.
        owner: String,
    },
    /// fusermount3 refused.
    #[error("unmount {}: fusermount3: {message}", .mountpoint.display())]
    Fusermount {
        /// The mount point.
        mountpoint: PathBuf,
        /// What it wrote.
        message: String,
    },
    /// The connection could not be aborted.
    #[error("abort connection {connection} of {}: {source}; run as root or as the user who mounted, with /sys/fs/fuse/connections mounted (mount -t fusectl none /sys/fs/fuse/connections)", .mountpoint.display())]
    Abort {
        /// The mount point.
        mountpoint: PathBuf,
        /// The number of the connection.
        connection: u32,
        /// The reason.
        source: io::Error,
    },
    /// The system call failed.
    #[error("unmount {}: {source}", .mountpoint.display())]
    Kernel {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Unmounts the FUSE mount on top of `mountpoint`. No request is sent to the file system, so it works on
/// mounts that hang and on mounts whose server is gone.
pub fn unmount(mountpoint: &Path, mode: Unmount) -> Result<(), UnmountError> {
    unmount_only(mountpoint, None, mode)
}

/// The same, and where `identity` ([`MountGuard::identity`](super::MountGuard::identity)) is given only
/// if it is that of the mount on top.
pub fn unmount_only(
    mountpoint: &Path,
    identity: Option<u64>,
    mode: Unmount,
) -> Result<(), UnmountError> {
    let path = resolve(mountpoint);
    let listed = MountEntry::at(&path).map_err(|source| UnmountError::List {
        mountpoint: path.clone(),
        source,
    })?;
    match listed {
        None => Err(UnmountError::NotMounted { mountpoint: path }),
        Some(entry) if !entry.is_fuse() => Err(UnmountError::NotFuse {
            mountpoint: path,
            fs_type: entry.fs_type,
        }),
        Some(entry) => {
            let own = Own::listed_as(entry);
            if identity.is_some() && own.identity != identity {
                return Err(UnmountError::Another { mountpoint: path });
            }
            unmount_entry(&own, mode)
        }
    }
}

/// Aborts a connection: every request in flight ends with ECONNABORTED, every later one with ENOTCONN.
pub fn abort(connection: u32) -> io::Result<()> {
    io::Write::write_all(&mut open_abort(connection)?, b"1")
}

/// What aborts a connection when it is written to.
pub(crate) fn open_abort(connection: u32) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .write(true)
        .open(format!("/sys/fs/fuse/connections/{connection}/abort"))
}

/// realpath(3) sends nothing to the file system mounted at the last component; where it fails, on the
/// way through a dead mount, the path is taken as it was given.
pub(super) fn resolve(mountpoint: &Path) -> PathBuf {
    fs::canonicalize(mountpoint)
        .or_else(|_| std::path::absolute(mountpoint))
        .map(|path| path.components().collect())
        .unwrap_or_else(|_| mountpoint.to_owned())
}

/// One mount, and what tells it from a later one at the same place.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) entry: MountEntry,
    /// `None` where the mount point cannot be opened, or another mount covers it.
    pub(super) identity: Option<u64>,
}

impl Own {
    /// A mount that is listed.
    pub(super) fn listed_as(entry: MountEntry) -> Self {
        let ids = ids_at(&entry.mountpoint).filter(|ids| ids.listed == entry.id);
        let identity = ids.map(|ids| ids.identity);
        Self { entry, identity }
    }

    /// A mount of which the kernel has told the ids.
    pub(super) fn known_as(entry: MountEntry, ids: MountIds) -> Self {
        let identity = Some(ids.identity);
        Self { entry, identity }
    }

    /// Its line among these. If it is on top of its place, it is not a later one that looks the same; elsewhere
    /// than it was mounted, where it or a directory above it was moved, the kernel has to tell that it is the one.
    fn among<'a>(&self, all: &'a [MountEntry]) -> Option<&'a MountEntry> {
        let entry = all
            .iter()
            .find(|listed| listed.has_numbers_of(&self.entry))?;
        let top = MountEntry::top_of(all, &entry.mountpoint);
        let on_top = top.is_some_and(|top| top.is_same_mount(entry));
        let is_it = if entry.mountpoint == self.entry.mountpoint {
            let now = || ids_at(&entry.mountpoint).map(|ids| ids.identity);
            !on_top || self.identity.is_none() || now() == self.identity
        } else {
            let now = on_top.then(|| ids_at(&entry.mountpoint)).flatten();
            now.is_some_and(|ids| ids.are_unique() && Some(ids.identity) == self.identity)
        };
        is_it.then_some(entry)
    }

    /// Whether it is among these.
    pub(super) fn is_among(&self, all: &[MountEntry]) -> bool {
        self.among(all).is_some()
    }
}

fn ids_at(mountpoint: &Path) -> Option<MountIds> {
    let path = CString::new(mountpoint.as_os_str().as_bytes()).ok()?;
    mount_ids(&open_mount(&path)?)
}

/// Unmounts exactly this mount; nothing to do if it is gone.
pub(super) fn unmount_entry(own: &Own, mode: Unmount) -> Result<(), UnmountError> {
    let list = |source| UnmountError::List {
        mountpoint: own.entry.mountpoint.clone(),
        source,
    };
    let all = MountEntry::all().map_err(list)?;
    let Some(entry) = own.among(&all) else {
        return Ok(());
    };
    let mountpoint = || entry.mountpoint.clone();
    let top = MountEntry::containing(&all, &entry.mountpoint);
    if let Some(top) = top.filter(|top| !top.is_same_mount(entry)) {
        return Err(UnmountError::Covered {
            mountpoint: mountpoint(),
            by: top.mountpoint.clone(),
            fs_type: top.fs_type.clone(),
        });
    }
    let aborted = if mode == Unmount::Force {
        abort(entry.connection())
    } else {
        Ok(())
    };
    let flags = match mode {
        Unmount::Normal => UnmountFlags::NOFOLLOW,
        Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        Unmount::Force => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    match unmount_patiently(entry, flags, &all) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(busy_error(entry, &all)),
        Err(Errno::PERM) => {
            aborted.map_err(|source| UnmountError::Abort {
                mountpoint: mountpoint(),
                connection: entry.connection(),
                source,
            })?;
            unmount_by_helper(entry, mode != Unmount::Normal, &all)
        }
        // Somebody else was quicker.
        Err(Errno::INVAL | Errno::NOENT) if !own.is_among(&MountEntry::all().map_err(list)?) => {
            Ok(())
        }
        Err(errno) => Err(UnmountError::Kernel {
            mountpoint: mountpoint(),
            source: errno.into(),
        }),
    }
}

/// Unmounts, and while the mount is busy although nobody is seen to use it, tries again for a while.
///
/// Whoever is in a call by path, such as stat(2), keeps it busy and is seen nowhere in /proc. Over
/// io_uring that is also a process of the session's own, for some milliseconds after handlers took
/// long: see `transport/io_uring/kick.rs`. A RELEASE in flight does not keep the mount busy.
fn unmount_patiently(
    entry: &MountEntry,
    flags: UnmountFlags,
    all: &[MountEntry],
) -> Result<(), Errno> {
    let deadline = Instant::now() + BUSY_PATIENCE;
    loop {
        let result = rustix::mount::unmount(&entry.mountpoint, flags);
        if result != Err(Errno::BUSY) || !frees_itself(entry, all, deadline) {
            return result;
        }
        if !is_there(entry) {
            return Ok(());
        }
    }
}

/// After a pause: whether a mount that is busy may be free now, because nobody is seen to use it. Who was seen before the
/// pause may have been a child between fork(2) and execve(2), which has what its parent had open.
fn frees_itself(entry: &MountEntry, all: &[MountEntry], deadline: Instant) -> bool {
    let used = || !below(entry, all).is_empty() || !busy::holders(entry).is_empty();
    Instant::now() <= deadline && !stays(used)
}

/// Whether something is so before a pause and after it.
fn stays(is_so: impl Fn() -> bool) -> bool {
    let was_so = is_so();
    std::thread::sleep(BUSY_PAUSE);
    was_so && is_so()
}

/// Another mount may have come to the same place meanwhile.
fn is_there(entry: &MountEntry) -> bool {
    MountEntry::all().is_ok_and(|all| all.iter().any(|other| other.is_same_mount(entry)))
}

fn unmount_by_helper(
    entry: &MountEntry,
    lazy: bool,
    all: &[MountEntry],
) -> Result<(), UnmountError> {
    let mountpoint = entry.mountpoint.clone();
    let Some(program) = fusermount::find_fusermount() else {
        return Err(UnmountError::FusermountMissing { mountpoint });
    };
    // fusermount3 prints strerror(3) of the C locale: it never calls setlocale(3).
    let is_busy = |message: &String| message.contains("busy");
    let deadline = Instant::now() + BUSY_PATIENCE;
    let answer = loop {
        let answer = fusermount::unmount(&program, &entry.mountpoint, lazy);
        let busy = matches!(&answer, Ok(Err(message)) if is_busy(message));
        if !busy || !frees_itself(entry, all, deadline) {
            break answer;
        }
        if !is_there(entry) {
            return Ok(());
        }
    };
    match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(message)) if is_busy(&message) => Err(busy_error(entry, all)),
        Ok(Err(message)) => Err(match entry.owner() {
            Some(owner) if owner != rustix::process::getuid().as_raw() => UnmountError::NotYours {
                mountpoint,
                owner: named(owner),
            },
            _ => UnmountError::Fusermount {
                mountpoint,
                message,
            },
        }),
        Err(source) => Err(UnmountError::Kernel { mountpoint, source }),
    }
}

/// A user by number and name. Users of a directory service have none here.
fn named(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    });
    match name {
        Some(name) => format!("uid {user} ({name})"),
        None => format!("uid {user}"),
    }
}

fn busy_error(entry: &MountEntry, all: &[MountEntry]) -> UnmountError {
    let requests = busy::requests(entry);
    let mut holders = busy::holders(entry);
    if holders.is_empty() && requests > 0 {
        holders = busy::waiting(entry);
    }
    UnmountError::Busy {
        mountpoint: entry.mountpoint.clone(),
        holders,
        below: below(entry, all),
        requests,
    }
}

/// What is mounted on this mount.
fn below(entry: &MountEntry, all: &[MountEntry]) -> Vec<PathBuf> {
    let below = all.iter().filter(|listed| listed.parent == entry.id);
    below.map(|listed| listed.mountpoint.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_seen_once_does_not_keep_a_mount_busy() {
        for (seen, stay) in [
            ([true, true], true),
            ([true, false], false),
            ([false, true], false),
        ] {
            let looks = std::cell::Cell::new(0);
            let look = || seen[looks.replace(looks.get() + 1)];
            assert_eq!(stays(look), stay, "{seen:?}");
        }
    }

    #[test]
    fn what_is_no_fuse_mount_is_left_alone() {
        let error = unmount(Path::new("/"), Unmount::Force).unwrap_err();
        assert!(matches!(error, UnmountError::NotFuse { .. }), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let error = unmount(dir.path(), Unmount::Lazy).unwrap_err();
        assert!(matches!(error, UnmountError::NotMounted { .. }), "{error}");
        let error = unmount(&dir.path().join("none"), Unmount::Normal).unwrap_err();
        assert!(
            error.to_string().contains("none: nothing is mounted there"),
            "{error}"
        );
    }
}
