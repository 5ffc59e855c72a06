//! The home of `unsafe`: `close(2)` with its error.
#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;

/// Closes a file and says what its file system had to report, such as an error of a write that was delayed.
pub(crate) fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is ours and given up here; Linux frees it even when close fails.
    unsafe { rustix::io::try_close(file.into_raw_fd()) }
        .map_err(|e| io::Error::new(e.kind(), format!("close: {}", io::Error::from(e))))
}
