//! Commands of /dev/fuse.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bickford_abi::{BACKING_CLOSE, BACKING_OPEN, BackingMap, DEV_CLONE};

/// Another descriptor of the same connection, with a queue of received requests of its own.
pub(crate) fn clone_device(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let master: u32 = device.as_raw_fd().cast_unsigned();
    // SAFETY: DEV_CLONE reads one u32, the number of an open descriptor, which lives on the stack.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), DEV_CLONE as _, &raw const master) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(file.into())
    }
}

/// Registers a file with the connection, for pass-through. Answers with its backing id.
pub(crate) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<i32> {
    let map = BackingMap {
        fd: file.as_fd().as_raw_fd(),
        ..BackingMap::default()
    };
    // SAFETY: BACKING_OPEN reads one `struct fuse_backing_map`, which lives on the stack.
    let id = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_OPEN as _, &raw const map) };
    if id <= 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(id)
    }
}

/// Gives a backing id back.
pub(crate) fn close_backing(device: BorrowedFd<'_>, id: i32) -> io::Result<()> {
    let id = id.cast_unsigned();
    // SAFETY: BACKING_CLOSE reads one u32, which lives on the stack.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE as _, &raw const id) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
