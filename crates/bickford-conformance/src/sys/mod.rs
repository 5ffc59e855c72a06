//! The home of `unsafe`: mapped files.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
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
