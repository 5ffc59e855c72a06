//! Finding the socket of a session that another user may serve.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};

use super::{OF_ROOT, socket_directory};
use crate::mount::MountEntry;

/// A socket that was found. It is held open, so that nobody can put another in its place.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    node: OwnedFd,
}

impl Socket {
    /// Where it was found, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What names the very socket that was found, for [`super::snapshot`] and
    /// [`super::EventReader::connect`]; valid as long as `self` is.
    #[must_use]
    pub fn address(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.node.as_raw_fd()).into()
    }
}

/// The sockets that may be those of the session that `user` mounted as `connection`, the likeliest first;
/// and why others are not used.
///
/// Looks in the directories of that user and in the caller's own ([`socket_directory`]). Directory and
/// socket must belong to one of the two or to root; symbolic links are not followed, and what lies in a
/// FUSE mount is not touched, because it may hang.
#[must_use]
pub fn find(connection: u32, user: u32) -> Vec<io::Result<Socket>> {
    let mounts = MountEntry::all().unwrap_or_default();
    let name = format!("{connection}.sock");
    let look = |directory: PathBuf| match open(&directory, &name, user, &mounts) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found),
    };
    directories_of(user).into_iter().filter_map(look).collect()
}

/// Where sessions of `user` have their sockets. What the user's environment says is known only where the
/// user is the caller.
fn directories_of(user: u32) -> Vec<PathBuf> {
    let own = socket_directory();
    let name = format!("bickford-{user}");
    let mut directories = match user {
        _ if user == rustix::process::geteuid().as_raw() => vec![own.clone()],
        0 => Vec::new(),
        _ => vec![PathBuf::from(format!("/run/user/{user}")).join(&name)],
    };
    if user == 0 {
        directories.push(OF_ROOT.into());
    } else {
        directories.extend([
            Path::new("/tmp").join(&name),
            std::env::temp_dir().join(&name),
        ]);
    }
    directories.push(own);
    let mut seen = Vec::new();
    for directory in directories {
        if !seen.contains(&directory) {
            seen.push(directory);
        }
    }
    seen
}

fn open(directory: &Path, name: &str, user: u32, mounts: &[MountEntry]) -> io::Result<Socket> {
    let path = directory.join(name);
    let told = |reason: &str| io::Error::other(format!("{}: {reason}", path.display()));
    let failed = |errno: rustix::io::Errno| {
        let error = io::Error::from(errno);
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied if user == 0 => "; run as root".to_owned(),
            io::ErrorKind::PermissionDenied => format!("; run as root or as user {user}"),
            _ => String::new(),
        };
        io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
    };
    let hangs = |mount: &MountEntry| mount.is_fuse() && directory.starts_with(&mount.mountpoint);
    if mounts.iter().any(hangs) {
        return Err(told("not looked for: the directory is in a FUSE mount"));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(CWD, directory, flags | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
    // Nothing of the user's own leads out of the directory that is checked.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let owner = fstat(&place).map_err(failed)?.st_uid;
    let trusted = [user, 0, rustix::process::geteuid().as_raw()];
    if !trusted.contains(&owner) {
        return Err(told(&format!(
            "not used: the directory belongs to user {owner}"
        )));
    }
    let node = openat2(&place, name, flags, Mode::empty(), resolve).map_err(failed)?;
    let stat = fstat(&node).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(told("not used: it is no socket"));
    }
    if !trusted.contains(&stat.st_uid) {
        return Err(told(&format!(
            "not used: it belongs to user {}",
            stat.st_uid
        )));
    }
    Ok(Socket { path, node })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn refusal(directory: &Path, user: u32) -> String {
        open(directory, "7.sock", user, &[])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_socket_is_reached_by_what_was_checked() {
        let place = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let missing = open(place.path(), "7.sock", user, &[]).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let path = place.path().join("7.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let socket = open(place.path(), "7.sock", user, &[]).unwrap();
        assert_eq!(socket.path(), path);
        // Another of the same name is not the one that was checked.
        std::fs::rename(&path, place.path().join("old")).unwrap();
        std::fs::write(&path, "").unwrap();
        std::os::unix::net::UnixStream::connect(socket.address()).unwrap();
        assert!(refusal(place.path(), user).contains("no socket"));
    }

    #[test]
    fn links_and_the_directories_of_others_are_not_used() {
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("real"), place.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        let _listener = UnixListener::bind(real.join("8.sock")).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::os::unix::fs::symlink("8.sock", real.join("7.sock")).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert!(open(&real, "8.sock", user, &[]).is_ok());
        assert!(open(&link, "8.sock", user, &[]).is_err());
        assert!(open(&real, "7.sock", user, &[]).is_err());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&real, Some(1234), None).unwrap();
            assert!(open(&real, "8.sock", 1234, &[]).is_ok());
            assert!(refusal(&real, 77).contains("belongs to user 1234"));
        }
    }

    #[test]
    fn what_is_in_a_fuse_mount_is_not_touched() {
        let mut mount = MountEntry::at(Path::new("/")).unwrap().unwrap();
        mount.fs_type = "fuse.other".into();
        let refused = open(Path::new("/nowhere"), "7.sock", 0, &[mount]).unwrap_err();
        assert!(refused.to_string().contains("FUSE"), "{refused}");
    }

    #[test]
    fn the_directories_of_a_user_come_before_the_callers() {
        let of_other = directories_of(1234);
        assert_eq!(of_other[0], Path::new("/run/user/1234/bickford-1234"));
        assert!(of_other.contains(&"/tmp/bickford-1234".into()));
        assert_eq!(of_other.last(), Some(&socket_directory()));
        assert_eq!(directories_of(0)[0].to_str(), Some("/run/bickford"));
    }
}
