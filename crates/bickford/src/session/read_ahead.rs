//! The read-ahead of a mount, `read_ahead_kb` of its backing device.
//!
//! At INIT the kernel offers the 128 KiB that every new mount has, and takes less but not more: a
//! buffered read then never asks for more than 128 KiB at once, whatever `max_write` is. What is
//! above has to be written here afterwards, which needs root. It holds for files opened from then
//! on.

use std::fs;

use super::backing_device;

fn file_of(connection: u32) -> String {
    backing_device::directory(connection) + "/read_ahead_kb"
}

/// The read-ahead in force, in KiB.
pub(super) fn in_force(connection: u32) -> Option<u32> {
    let text = fs::read_to_string(file_of(connection)).ok()?;
    text.trim().parse().ok()
}

/// Sets the read-ahead. Nothing here looks at the mount itself, which nobody serves yet.
pub(super) fn set(connection: u32, kib: u32) {
    let file = file_of(connection);
    if let Err(error) = fs::write(&file, kib.to_string()) {
        tracing::debug!("write {kib} to {file}: {error}; root may, and reads are smaller without");
    }
}
