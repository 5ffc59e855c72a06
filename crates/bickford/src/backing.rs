//! Backing files: with one, the kernel reads and writes a lower file itself
//! (`FOPEN_PASSTHROUGH`), and requests for data do not come.
//!
//! The session must have negotiated [`bickford_abi::InitFlags::PASSTHROUGH`] with a stack depth
//! above zero, which rules out a write-back cache, and the process needs CAP_SYS_ADMIN. All opens
//! of an inode must name the same backing file, and the kernel does not check how it was opened: a
//! descriptor open for reading, or with O_PATH, lets the caller write. So the file system enforces
//! the access mode itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::sys::device;

/// A file that is registered with a connection; given back when this is dropped. Opens that name
/// it keep it alive in the kernel.
#[derive(Debug)]
pub struct Backing {
    device: Arc<OwnedFd>,
    id: i32,
}

impl Backing {
    pub(crate) fn open(device: &Arc<OwnedFd>, file: BorrowedFd<'_>) -> io::Result<Self> {
        let id = device::open_backing(device.as_fd(), file)?;
        Ok(Self {
            device: Arc::clone(device),
            id,
        })
    }

    /// The id for [`crate::ops::Opened::backing_id`].
    #[must_use]
    pub fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Err(error) = device::close_backing(self.device.as_fd(), self.id) {
            tracing::debug!(id = self.id, "closing a backing file: {error}");
        }
    }
}
