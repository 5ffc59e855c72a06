//! Ends a connection from outside, as the administrator would.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mount::{self, MountEntry};

/// Number of the connection behind a descriptor of /dev/fuse, as in /sys/fs/fuse/connections.
/// Kernels before 6.16 do not tell it.
pub(crate) fn connection(device: impl AsFd) -> Option<u32> {
    let number = device.as_fd().as_raw_fd();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix("fuse_connection:"))?;
    value.trim().parse().ok()
}

/// Aborts the connection: every request in flight and every later one fails.
pub(crate) fn abort(connection: Option<u32>) -> io::Result<()> {
    let number = connection.ok_or_else(|| {
        io::Error::other("the kernel does not tell the connection's number; use umount -f")
    })?;
    let Err(error) = mount::abort(number) else {
        return Ok(());
    };
    force(number).map_err(|_| {
        let advice = "is fusectl mounted at /sys/fs/fuse/connections?";
        let text = format!("abort connection {number}: {error}; {advice}");
        io::Error::new(error.kind(), text)
    })
}

/// A forced umount(2) aborts too, before it tells whether the mount was busy.
fn force(connection: u32) -> io::Result<()> {
    let mount = MountEntry::of_connection(connection)?.ok_or(io::ErrorKind::NotFound)?;
    match rustix::mount::unmount(
        &mount.mountpoint,
        UnmountFlags::FORCE | UnmountFlags::NOFOLLOW,
    ) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
