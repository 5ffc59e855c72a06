//! A mount that was detached, as by 'umount -l', and is served until its last user is gone.
//!
//! No list of mounts has it. The kernel knows its connection, and the daemon behind that was told on its command
//! line where to mount.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bickford::mount::{
    Holder, MountEntry, Unmount, UnmountError, abort, device_elsewhere, device_holders,
};
use bickford::trace::control;
use bickford_program::background::MARK;
use bickford_program::elsewhere;
use bickford_program::terminal::escaped;
use clap::CommandFactory as _;
use rustix::net::sockopt::socket_peercred;

use super::daemon::Daemon;
use crate::argv::Form;
use crate::cli::{Cli, Command, Failure};

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Most users that a message names.
const NAMED: usize = 8;

/// Ends by force what was mounted at a place (absolute, without links) and is detached; whether there was any.
///
/// # Errors
/// When it is still used and not to be ended by force, or cannot be ended.
pub(super) fn end(place: &Path, mode: Unmount) -> Result<bool, Failure> {
    let found = Detached::all_of(place);
    // Started in it, this process would be one of its users.
    let _ = std::env::set_current_dir("/");
    for detached in &found {
        detached.end(place, mode)?;
    }
    Ok(!found.is_empty())
}

struct Detached {
    connection: u32,
    daemon: Daemon,
}

impl Detached {
    fn all_of(place: &Path) -> Vec<Self> {
        let Ok(mounts) = MountEntry::all() else {
            return Vec::new();
        };
        let is_listed = |number| mounts.iter().any(|mount| mount.connection() == number);
        let connections = fs::read_dir(CONNECTIONS).into_iter().flatten().flatten();
        let detached = connections.filter_map(|connection| {
            let number = connection.file_name().to_str()?.parse().ok()?;
            if is_listed(number) {
                return None;
            }
            let daemon = daemon_behind(number, connection.metadata().ok()?.uid())?;
            serves(&daemon, place).then_some(Self {
                connection: number,
                daemon,
            })
        });
        detached.collect()
    }

    fn end(&self, place: &Path, mode: Unmount) -> Result<(), Failure> {
        let (shown, pid) = (place.display(), self.daemon.pid());
        if let Some(where_still) = elsewhere::told(&device_elsewhere(device(self.connection))) {
            return Err(Failure::new(format!(
                "unmount {shown}: nothing is mounted there, but {where_still}; until then the daemon (process {pid}) \
                 goes on"
            )));
        }
        if mode != Unmount::Force {
            let users = device_holders(device(self.connection));
            return Err(Failure::new(format!(
                "unmount {shown}: nothing is mounted there any more: what was is detached, and the daemon (process \
                 {pid}) serves it while it is used: {}; end them, or end it with --force (their requests fail)",
                named(&users)
            )));
        }
        abort(self.connection).map_err(|source| UnmountError::Abort {
            mountpoint: place.to_owned(),
            connection: self.connection,
            source,
        })?;
        if !self.daemon.has_ended() {
            let text = format!(
                "the detached mount is ended, but the daemon (process {pid}) has not ended yet: it may be stopped, or \
                 wait for a disk"
            );
            // Not eprintln, which panics when the terminal is gone.
            let _ = writeln!(io::stderr(), "bickford: {}", escaped(&text));
        }
        Ok(())
    }
}

/// The device of a connection, which has its number of the kernel's own.
fn device(connection: u32) -> u64 {
    rustix::fs::makedev(connection >> 20, connection & 0xf_ffff)
}

fn named(users: &[Holder]) -> String {
    let mut named = users.iter().take(NAMED).map(Holder::to_string);
    let rest = match users.len() {
        0 => {
            let hidden =
                "processes that are not seen in /proc here, or that this user may not look at";
            return format!("by {hidden}");
        }
        count if count > NAMED => format!("; and {} more", count - NAMED),
        _ => String::new(),
    };
    let first = named.next().unwrap_or_default();
    named.fold(first, |text, user| text + "; " + &user) + &rest
}

/// The daemon of this command that listens for a connection.
fn daemon_behind(connection: u32, user: u32) -> Option<Daemon> {
    let sockets = control::find(connection, user).into_iter().flatten();
    let mut peers = sockets.filter_map(|socket| {
        let stream = control::connect(&socket.address()).ok()?;
        socket_peercred(stream).ok()
    });
    Daemon::of(peers.next()?.pid)
}

/// Whether a daemon that sees the mounts that this process sees was told to mount here.
fn serves(daemon: &Daemon, place: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{}", daemon.pid()));
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let told = || {
        let given = mountpoint_of(&fs::read(process.join("cmdline")).ok()?)?;
        let path = directory_of(&process)?.join(given);
        Some(fs::canonicalize(&path).unwrap_or(path))
    };
    namespace(&process) == namespace(Path::new("/proc/self")) && told().as_deref() == Some(place)
}

/// The mount point that a command line names.
fn mountpoint_of(line: &[u8]) -> Option<PathBuf> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    let words = line.split(|byte| *byte == 0);
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    let form = Form::detect(words.collect(), &Cli::command()).ok()?;
    match crate::parse(form.arguments).ok()?.command {
        Command::Mount(arguments) => Some(arguments.mountpoint().to_owned()),
        _ => None,
    }
}

/// Where a daemon was started.
fn directory_of(process: &Path) -> Option<PathBuf> {
    let variables = fs::read(process.join("environ")).ok()?;
    let mut variables = variables.split(|byte| *byte == 0);
    let left = variables.find_map(|variable| {
        let value = variable.strip_prefix(MARK.as_bytes())?;
        value.strip_prefix(b"=")
    });
    match left {
        Some(directory) => Some(Path::new(OsStr::from_bytes(directory)).to_owned()),
        None => fs::read_link(process.join("cwd")).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_the_daemon_has_read_them() {
        let of = |line: &str| mountpoint_of(line.replace(' ', "\0").as_bytes());
        let mnt = Some(PathBuf::from("mnt"));
        assert_eq!(of("bickford mount -f /src mnt -o ro "), mnt);
        assert_eq!(of("bickford /src mnt "), mnt);
        assert_eq!(
            of("/sbin/mount.fuse.bickford /src mnt -o rw,preset=opt "),
            mnt
        );
        assert_eq!(of("bickford unmount mnt "), None);
        assert_eq!(of(""), None);
    }
}
