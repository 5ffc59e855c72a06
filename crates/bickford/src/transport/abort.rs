//! Ends a connection from outside, as the administrator would.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mount::{self, MountEntry};
use crate::sys::mount::{open_mount, reusable_id};

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

/// Aborts the connection behind a descriptor of /dev/fuse: every request in flight and every later one fails.
/// Nothing happens where it is over.
pub(crate) fn abort(connection: Option<u32>, device: impl AsFd) -> io::Result<()> {
    let file = connection.map(mount::open_abort);
    // The number of a connection that is over may be another one's. Of one that is not over yet, what was
    // opened before is its own, and stays so.
    if is_over(&device) {
        return Ok(());
    }
    let (number, file) = connection.zip(file).ok_or_else(|| {
        io::Error::other("the kernel does not tell the connection's number; use umount -f")
    })?;
    let Err(error) = file.and_then(|mut file| file.write_all(b"1")) else {
        return Ok(());
    };
    force(number).map_err(|_| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "this process may not, perhaps since it gave up rights: root can ('umount -f')"
            }
            _ => "is fusectl mounted at /sys/fs/fuse/connections?",
        };
        let text = format!("abort connection {number}: {error}; {advice}");
        io::Error::new(error.kind(), text)
    })
}

/// Aborts a connection that nobody serves any more.
pub(crate) fn give_up(connection: Option<u32>, device: impl AsFd) {
    if let Err(error) = abort(connection, device) {
        tracing::error!("the connection was not aborted, its requests hang: {error}");
    }
}

fn is_over(device: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(device, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds.iter().any(|fd| fd.revents().contains(PollFlags::ERR))
}

/// A forced umount(2) aborts too, before it tells whether the mount was busy. It is, and stays, while its root is open.
fn force(connection: u32) -> io::Result<()> {
    let mount = MountEntry::of_connection(connection)?.ok_or(io::ErrorKind::NotFound)?;
    let place = CString::new(mount.mountpoint.as_os_str().as_bytes())?;
    let root = open_mount(&place).filter(|root| reusable_id(root) == Some(mount.id));
    let root = root.ok_or(io::ErrorKind::NotFound)?;
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    match rustix::mount::unmount(path, UnmountFlags::FORCE) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
