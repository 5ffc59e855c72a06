//! From a mount point to its connection and the daemon behind it, without touching the mount: it
//! may hang.

use std::fs;
use std::path::{Path, PathBuf};

use bickford::mount::MountEntry;
use bickford::trace::control;

use crate::cli::Failure;

/// A FUSE mount that was found in the list of mounts.
pub(crate) struct Target {
    pub(crate) mountpoint: PathBuf,
    pub(crate) connection: u32,
    pub(crate) fs_type: String,
}

/// What the kernel tells of a connection (fusectl).
pub(crate) struct Connection {
    pub(crate) waiting: Option<u64>,
    pub(crate) max_background: Option<u64>,
    pub(crate) congestion_threshold: Option<u64>,
}

impl Target {
    pub(crate) fn find(mountpoint: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(mountpoint).map_err(|error| {
            Failure::new(format!(
                "{}: {error}; give the mount point",
                mountpoint.display()
            ))
        })?;
        let entry = MountEntry::at(&absolute)
            .map_err(|error| Failure::new(format!("read /proc/self/mountinfo: {error}")))?;
        match entry {
            Some(entry) if entry.is_fuse() => Ok(Self {
                mountpoint: absolute,
                connection: entry.minor,
                fs_type: entry.fs_type,
            }),
            Some(entry) => Err(Failure::new(format!(
                "{}: the mount there is of type {}, not FUSE; see 'findmnt -t fuse'",
                absolute.display(),
                entry.fs_type
            ))),
            None => Err(Failure::new(format!(
                "{}: nothing is mounted there; see 'findmnt' for what is",
                absolute.display()
            ))),
        }
    }

    /// The control socket of the session, where one of ours serves the mount.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        Some(control::socket_path(self.connection)).filter(|path| path.exists())
    }

    pub(crate) fn connection(&self) -> Connection {
        let read = |name: &str| {
            let path = format!("/sys/fs/fuse/connections/{}/{name}", self.connection);
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Connection {
            waiting: read("waiting"),
            max_background: read("max_background"),
            congestion_threshold: read("congestion_threshold"),
        }
    }
}
