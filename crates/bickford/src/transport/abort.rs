//! Ends a connection from outside, as the administrator would.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mount::MountEntry;

/// Number of the connection behind a descriptor of /dev/fuse, as in /sys/fs/fuse/connections.
/// Kernels before 6.16 do not tell it.
pub(crate) fn connection(device: impl AsFd) -> Option<u64> {
    let number = device.as_fd().as_raw_fd();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix("fuse_connection:"))?;
    value.trim().parse().ok()
}

/// Aborts the connection: every request in flight and every later one fails.
pub(crate) fn abort(device: impl AsFd) -> io::Result<()> {
    let number = connection(device).ok_or_else(|| {
        io::Error::other("the kernel does not tell the connection's number; use umount -f")
    })?;
    let file = format!("/sys/fs/fuse/connections/{number}/abort");
    let Err(error) = fs::write(&file, "1") else {
        return Ok(());
    };
    force(number).map_err(|_| {
        let advice = "is fusectl mounted at /sys/fs/fuse/connections?";
        io::Error::new(error.kind(), format!("write {file}: {error}; {advice}"))
    })
}

/// A forced umount(2) aborts too, before it tells whether the mount was busy.
fn force(connection: u64) -> io::Result<()> {
    let entries = MountEntry::all()?;
    let mount = entries
        .iter()
        .find(|entry| entry.major == 0 && u64::from(entry.minor) == connection)
        .ok_or(io::ErrorKind::NotFound)?;
    match rustix::mount::unmount(&mount.mountpoint, UnmountFlags::FORCE) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
