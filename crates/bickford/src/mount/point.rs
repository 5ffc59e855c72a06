//! The mount point, checked once and held by descriptor.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::options::RootKind;
use super::{MountEntry, MountError};

/// A mount point that exists and is of the kind the file system's root is of.
pub(super) struct MountPoint {
    /// Absolute, without symbolic links.
    pub(super) path: PathBuf,
    /// An O_PATH descriptor of it.
    pub(super) fd: OwnedFd,
    /// The file type bits of its mode (`S_IFMT`).
    pub(super) kind: u32,
}

impl MountPoint {
    pub(super) fn resolve(given: &Path, root: RootKind) -> Result<Self, MountError> {
        let failed = |source: io::Error| explain(given, source);
        let path = std::fs::canonicalize(given).map_err(failed)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let mode = current_mode(&fd).map_err(|errno| failed(errno.into()))?;
        let found = FileType::from_raw_mode(mode);
        let (wanted, expected) = match root {
            RootKind::Directory => (FileType::Directory, "a directory"),
            RootKind::RegularFile => (FileType::RegularFile, "a regular file"),
        };
        if found != wanted {
            return Err(MountError::WrongKind {
                mountpoint: path,
                found: kind_name(found),
                expected,
            });
        }
        Ok(Self {
            path,
            fd,
            kind: wanted.as_raw_mode(),
        })
    }
}

/// The mode as the file system has it now: attributes that the kernel remembers say nothing about a
/// server that is gone.
fn current_mode(fd: &OwnedFd) -> Result<u32, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE | StatxFlags::MODE) {
        Ok(found) => Ok(u32::from(found.stx_mode)),
        // Before Linux 4.11, or hidden by a system call filter.
        Err(Errno::NOSYS | Errno::PERM) => Ok(rustix::fs::fstat(fd)?.st_mode),
        Err(errno) => Err(errno),
    }
}

fn explain(given: &Path, source: io::Error) -> MountError {
    let mountpoint = given.to_owned();
    if given.as_os_str().is_empty() {
        return MountError::NoMountpoint;
    }
    match Errno::from_io_error(&source) {
        Some(Errno::NOENT) => MountError::NotFound { mountpoint },
        // ECANCELED comes for a moment from a mount over io_uring whose server was killed: the
        // kernel cancels what it had handed to the rings before it aborts the connection. ECONNREFUSED comes where the
        // kernel refused what INIT was answered and, in Linux 7, where it never was.
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CONNREFUSED | Errno::CANCELED) => {
            let dead = in_the_way(given);
            MountError::Dead { mountpoint, dead }
        }
        _ => MountError::Unusable { mountpoint, source },
    }
}

/// The FUSE mount in which a path ends. Links on the way are not known here: the mount does not answer.
fn in_the_way(given: &Path) -> PathBuf {
    let found = || {
        let path = std::path::absolute(given).ok()?;
        let all = MountEntry::all().ok()?;
        let mount = MountEntry::containing(&all, &path).filter(|mount| mount.is_fuse())?;
        Some(mount.mountpoint.clone())
    };
    found().unwrap_or_else(|| given.to_owned())
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mounted_on_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = |path: &Path, root| match MountPoint::resolve(path, root) {
            Ok(point) => panic!("{} was accepted", point.path.display()),
            Err(error) => error.to_string(),
        };
        let missing = message(&dir.path().join("none"), RootKind::Directory);
        assert!(
            missing.contains("does not exist") && missing.contains("none"),
            "{missing}"
        );
        let wrong = message(&file, RootKind::Directory);
        assert!(wrong.contains("is a regular file"), "{wrong}");
        let wrong = message(dir.path(), RootKind::RegularFile);
        assert!(wrong.contains("is a directory"), "{wrong}");
        let empty = message(Path::new(""), RootKind::Directory);
        assert!(empty.contains("no mount point"), "{empty}");
        let below = message(&file.join("x"), RootKind::Directory);
        assert!(below.contains("file/x"), "{below}");
    }

    #[test]
    fn what_a_dead_server_leaves_is_recognised() {
        for errno in [
            Errno::NOTCONN,
            Errno::CONNABORTED,
            Errno::CONNREFUSED,
            Errno::CANCELED,
        ] {
            let error = explain(Path::new("/x"), errno.into());
            assert!(matches!(error, MountError::Dead { .. }), "{error}");
        }
    }

    #[test]
    fn symbolic_links_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let point = MountPoint::resolve(&dir.path().join("link"), RootKind::Directory).unwrap();
        assert_eq!(point.path, real.canonicalize().unwrap());
        assert_eq!(point.kind, 0o040_000);
    }
}
