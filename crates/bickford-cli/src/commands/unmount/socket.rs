//! What a daemon that was killed leaves beside its mount: its control socket.

use std::io;
use std::os::unix::fs::MetadataExt;

use bickford::trace::control::{self, DirectoryLock, Socket};
use bickford_program::service::remove_directory;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat, unlinkat};

/// Write permission for others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Removes those of the sockets that nobody listens to any more. They were found before the mount was taken
/// away: the number of its connection, which is their name, may be another mount's by now.
pub(super) fn remove_left(sockets: &[Socket]) {
    for socket in sockets.iter().filter(|socket| is_left(socket)) {
        if let Err(error) = remove(socket) {
            tracing::debug!("{}: {error}", socket.path().display());
        }
    }
}

fn is_left(socket: &Socket) -> bool {
    let refused = control::connect(&socket.address()).map_err(|error| error.kind());
    matches!(refused, Err(io::ErrorKind::ConnectionRefused))
}

fn remove(socket: &Socket) -> io::Result<()> {
    let found = std::fs::metadata(socket.address())?;
    let (directory, name) = (socket.path().parent(), socket.path().file_name());
    let (Some(directory), Some(name)) = (directory, name) else {
        return Ok(());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(CWD, directory, flags, Mode::empty())?;
    let stat = fstat(&place)?;
    if stat.st_uid != found.uid() || stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other(
            "left: its directory is another user's, or others may write there",
        ));
    }
    let _lock = DirectoryLock::of(socket.path());
    let now = statat(&place, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (now.st_dev, now.st_ino) == (found.dev(), found.ino()) {
        unlinkat(&place, name, AtFlags::empty())?;
        remove_directory(directory);
    }
    Ok(())
}
