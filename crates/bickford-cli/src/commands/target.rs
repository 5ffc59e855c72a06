//! From a mount point to its connection and the daemon behind it, without touching the mount: it
//! may hang.

mod resolve;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bickford::mount::{Elsewhere, MountEntry, elsewhere};
use bickford::trace::control;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

use crate::cli::Failure;
use resolve::Place;

/// A FUSE mount that was found in the list of mounts.
pub(crate) struct Target {
    pub(crate) mountpoint: PathBuf,
    pub(crate) connection: u32,
    pub(crate) fs_type: String,
    entry: MountEntry,
    /// The user who mounted it.
    user: u32,
}

/// What the kernel tells of a connection (fusectl).
pub(crate) struct Connection {
    pub(crate) waiting: Option<u64>,
    pub(crate) max_background: Option<u64>,
    pub(crate) congestion_threshold: Option<u64>,
}

impl Target {
    pub(crate) fn find(mountpoint: &Path) -> Result<Self, Failure> {
        let mounts = MountEntry::all()
            .map_err(|error| Failure::new(format!("read /proc/self/mountinfo: {error}")))?;
        let place = |path: &Path| {
            MountEntry::top_of(&mounts, path).map_or(Place::Plain, |entry| match entry {
                entry if entry.is_fuse() && waits(entry) => Place::Waiting,
                _ => Place::Mount,
            })
        };
        let resolved = std::path::absolute(mountpoint)
            .and_then(|path| resolve::resolve(&path, place))
            .map_err(|error| {
                Failure::new(format!(
                    "{}: {error}; give the mount point, see 'findmnt -l | grep fuse'",
                    mountpoint.display()
                ))
            })?;
        match MountEntry::top_of(&mounts, &resolved).cloned() {
            Some(entry) if entry.is_fuse() => Ok(Self {
                mountpoint: resolved,
                connection: entry.connection(),
                user: entry.owner().unwrap_or(0),
                fs_type: entry.fs_type.clone(),
                entry,
            }),
            Some(entry) => Err(Failure::new(format!(
                "{}: the mount there is of type {}, not FUSE; see 'findmnt -l | grep fuse'",
                resolved.display(),
                entry.fs_type
            ))),
            None => Err(Failure::new(format!(
                "{}: nothing is mounted there; see 'findmnt' for what is",
                resolved.display()
            ))),
        }
    }

    /// A place where it is mounted now: this one if it is, or if the list of mounts cannot be read.
    pub(crate) fn mounted_at(&self) -> Option<PathBuf> {
        let Ok(mut mounts) = MountEntry::all() else {
            return Some(self.mountpoint.clone());
        };
        // Its number alone may be that of a later mount.
        let key = (self.connection, &self.fs_type, &self.entry.source);
        mounts.retain(|m| m.is_fuse() && (m.connection(), &m.fs_type, &m.source) == key);
        let here = mounts.iter().position(|m| m.mountpoint == self.mountpoint);
        let found = mounts.into_iter().nth(here.unwrap_or(0))?;
        Some(found.mountpoint)
    }

    /// Where it is mounted in other mount namespaces, while its daemon is there.
    pub(crate) fn elsewhere(&self) -> Vec<Elsewhere> {
        elsewhere(&self.entry)
    }

    /// Asks the daemon at its control socket, where one of ours serves the mount; or why there is no
    /// answer.
    pub(crate) fn ask<T>(&self, ask: impl Fn(&Path) -> io::Result<T>) -> Result<T, String> {
        let mut reason = None;
        for socket in control::find(self.connection, self.user) {
            let told = match socket {
                Ok(socket) => match ask(&socket.address()) {
                    Ok(answer) => return Ok(answer),
                    Err(error) => {
                        format!("{}: {}", socket.path().display(), why(&error))
                    }
                },
                Err(error) => error.to_string(),
            };
            // The first is the likeliest.
            reason.get_or_insert(told);
        }
        Err(reason.unwrap_or_else(|| "the daemon has no control socket".to_owned()))
    }

    /// Whether somebody listens at a control socket of its daemon.
    pub(crate) fn listens(&self) -> bool {
        let listens = |socket: control::Socket| match control::connect(&socket.address()) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::TimedOut,
        };
        self.sockets().into_iter().any(listens)
    }

    /// The process that listens at its control socket, as the kernel knows it.
    pub(crate) fn daemon(&self) -> Option<Pid> {
        let peer = self.ask(|path| Ok(socket_peercred(control::connect(path)?)?));
        Some(peer.ok()?.pid)
    }

    /// The number of that process here; in its own PID namespace it may have another one.
    pub(crate) fn daemon_number(&self) -> Option<u32> {
        let pid = self.daemon()?.as_raw_nonzero();
        Some(pid.get().cast_unsigned())
    }

    /// The control sockets that may be its daemon's.
    pub(crate) fn sockets(&self) -> Vec<control::Socket> {
        let found = control::find(self.connection, self.user);
        found.into_iter().flatten().collect()
    }

    pub(crate) fn connection(&self) -> Connection {
        let read = |name: &str| told(self.connection, name);
        // What the kernel sets when the connection has ended.
        let ended = u64::from(u32::MAX);
        Connection {
            waiting: read("waiting"),
            max_background: read("max_background").filter(|limit| *limit != ended),
            congestion_threshold: read("congestion_threshold"),
        }
    }
}

/// What the kernel tells of a connection, where fusectl is mounted.
fn told(connection: u32, name: &str) -> Option<u64> {
    let path = format!("/sys/fs/fuse/connections/{connection}/{name}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether fusectl tells of a connection, if not to this user.
pub(crate) fn is_told_to_others(connection: u32) -> bool {
    Path::new("/sys/fs/fuse/connections")
        .join(connection.to_string())
        .is_dir()
}

/// Whether requests wait in a mount; not where that is not known.
fn waits(entry: &MountEntry) -> bool {
    told(entry.connection(), "waiting").is_some_and(|count| count > 0)
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nobody answers there: the daemon was killed, or an earlier one with this number was and this \
             one is not ours or has its socket elsewhere"
                .to_owned()
        }
        io::ErrorKind::UnexpectedEof => "the daemon hung up: it is ending, or has too many \
            clients; try again"
            .to_owned(),
        _ => error.to_string(),
    }
}
