//! Backing files: with one, the kernel reads and writes a lower file itself
//! (`FOPEN_PASSTHROUGH`), and requests for data do not come.
//!
//! The session must have negotiated [`bickford_abi::InitFlags::PASSTHROUGH`] with a stack depth
//! above zero, which rules out a write-back cache, and the process needs CAP_SYS_ADMIN. All opens
//! of an inode must name the same backing file, and the kernel does not check how it was opened: a
//! descriptor open for reading, or with O_PATH, lets the caller write. So the file system enforces
//! the access mode itself.
//!
//! ```
//! use std::collections::HashMap;
//! use std::fs::File;
//! use std::sync::{Mutex, PoisonError};
//!
//! use bickford::abi::{InitFlags, OpenOutFlags};
//! use bickford::backing::Backing;
//! use bickford::filesystem::blocking::FileSystem;
//! use bickford::ops::{Open, Opened};
//! use bickford::{Context, Errno, Negotiation, NodeId};
//!
//! /// Serves files of a cache.
//! struct Cache {
//!     /// Of nodes that are open, with the number of their opens, which `release` counts down.
//!     open: Mutex<HashMap<NodeId, (Backing, usize)>>,
//! }
//! # impl Cache {
//! #     fn file(&self, _: NodeId) -> Result<File, Errno> { Err(Errno::NOENT) }
//! # }
//!
//! impl FileSystem for Cache {
//!     fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
//!         if negotiation.want(InitFlags::PASSTHROUGH) {
//!             negotiation.set_max_stack_depth(1);
//!         }
//!         Ok(())
//!     }
//!
//!     fn open(&self, cx: &Context<'_>, op: Open) -> Result<Opened, Errno> {
//!         let file = self.file(op.node)?;
//!         let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
//!         if !open.contains_key(&op.node) {
//!             let backings = cx.backings().ok_or(Errno::OPNOTSUPP)?;
//!             let backing = backings.open(file).map_err(|_| Errno::IO)?;
//!             open.insert(op.node, (backing, 0));
//!         }
//!         let (backing, opens) = open.get_mut(&op.node).ok_or(Errno::IO)?;
//!         *opens += 1;
//!         Ok(Opened {
//!             flags: OpenOutFlags::PASSTHROUGH,
//!             backing_id: backing.id(),
//!             ..Opened::default()
//!         })
//!     }
//! }
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::sys::device;

/// Registers backing files with one connection, from any thread, and also after the reply that it came
/// from ([`Reply::backings`](crate::Reply::backings)) was answered. Like a reply it keeps the device open.
#[derive(Clone, Debug)]
pub struct Backings {
    device: Arc<OwnedFd>,
}

impl Backings {
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Self {
        Self {
            device: Arc::clone(device),
        }
    }

    /// Registers a file (`FUSE_DEV_IOC_BACKING_OPEN`), which may be closed afterwards.
    ///
    /// # Errors
    /// EPERM where pass-through was not negotiated, or without CAP_SYS_ADMIN; ELOOP where the file's
    /// file system is stacked as deep as the session allows
    /// ([`Negotiation::set_max_stack_depth`](crate::Negotiation::set_max_stack_depth)); EISDIR and the like
    /// for what is no regular file.
    pub fn open(&self, file: impl AsFd) -> io::Result<Backing> {
        let id = device::open_backing(self.device.as_fd(), file.as_fd())?;
        Ok(Backing {
            device: Arc::clone(&self.device),
            id,
        })
    }
}

/// A file that is registered with a connection; given back when this is dropped. Opens that name
/// it keep it alive in the kernel, but only once it has looked it up, which the thread that opens does some
/// time after the answer was sent: keep this until RELEASE.
#[derive(Debug)]
pub struct Backing {
    device: Arc<OwnedFd>,
    id: i32,
}

impl Backing {
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
