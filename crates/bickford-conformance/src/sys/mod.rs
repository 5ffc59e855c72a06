//! The home of `unsafe`: mapped files, writes by io_uring, close(2), file handles, and record locks.

#![allow(unsafe_code)]

mod handle;
mod lock;

pub use handle::FileHandle;
pub use lock::{LockKind, locked_by, record_lock};

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// A shared, writable map of the first bytes of a file.
#[derive(Debug)]
pub struct SharedMap {
    start: *mut u8,
    length: usize,
}

impl SharedMap {
    /// Maps `length` bytes of a file opened for reading and writing.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing else is mapped.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    /// Fills part of the map.
    ///
    /// # Panics
    /// When the part reaches beyond the map.
    pub fn fill(&self, offset: usize, length: usize, byte: u8) {
        assert!(offset + length <= self.length, "beyond the map");
        for index in offset..offset + length {
            // SAFETY: within the map by the assertion. Volatile, since others write to it too.
            unsafe { self.start.add(index).write_volatile(byte) };
        }
    }

    /// Copies part of the map.
    ///
    /// # Panics
    /// When the part reaches beyond the map.
    #[must_use]
    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length, "beyond the map");
        let places = offset..offset + length;
        // SAFETY: within the map by the assertion. Volatile, since others write to it too.
        places
            .map(|index| unsafe { self.start.add(index).read_volatile() })
            .collect()
    }

    /// Writes the map back to the file.
    ///
    /// # Errors
    /// Those of msync(2).
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly what was mapped.
        unsafe { rustix::mm::msync(self.start.cast(), self.length, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; nobody borrows from it.
        let unmapped = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Closes a file, and says what came of that.
///
/// # Errors
/// Those of close(2).
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is nobody else's, and is gone whatever comes of this.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes all of `bytes` at `offset` by io_uring: where the file system can, the calling thread is not
/// what waits, as with io_submit(2).
///
/// # Errors
/// As io_uring_setup(2) and write(2); `WriteZero` for fewer bytes.
///
/// # Panics
/// When io_uring_enter(2) fails, since the kernel may have the bytes then.
pub fn write_by_ring(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut ring = io_uring::IoUring::new(1)?;
    let descriptor = io_uring::types::Fd(file.as_raw_fd());
    let write = io_uring::opcode::Write::new(descriptor, bytes.as_ptr(), length).offset(offset);
    // SAFETY: the bytes are borrowed until this function returns, which is after the write has ended.
    unsafe { ring.submission().push(&write.build()) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel still has the bytes where it took them: they must not go.
            Err(error) => panic!("io_uring_enter: {error}"),
            Ok(_) => break,
        }
    }
    let ended = ring.completion().next().map_or(0, |ended| ended.result());
    match usize::try_from(ended) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-ended)),
    }
}
