//! Transports: where requests come from and answers go. Nothing above knows which one it is.

pub(crate) mod abort;
mod buffer;
mod choice;
pub mod dev_fuse;
pub mod io_uring;
pub mod memory;

use std::io;
use std::os::fd::BorrowedFd;

use crate::Unique;
use crate::backing::Backing;
use crate::ops::Data;

pub use choice::{Transport, TransportChoice, TransportInForce};
pub use dev_fuse::Workers;
pub use io_uring::io_uring_obstacle;

/// Names a request towards the transport that it came by.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The request's number.
    pub unique: Unique,
    /// Where the transport keeps it; zero where it keeps nothing.
    pub entry: u32,
}

/// An answer on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Zero, or a positive errno.
    pub error: i32,
    /// The fixed structures.
    pub fixed: &'a [u8],
    /// What follows them.
    pub data: &'a Data,
}

/// Sends answers back the way their requests came. Any thread may call it.
pub trait Responder: Send + Sync + 'static {
    /// Sends one answer; at most once for each ticket. When the data cannot be had (a read of a
    /// backing file fails), the error is sent instead.
    ///
    /// # Errors
    /// When the kernel does not take the answer.
    fn respond(&self, ticket: Ticket, answer: &Outgoing<'_>) -> io::Result<()>;

    /// Registers a backing file with the connection, where there is one.
    fn open_backing(&self, file: BorrowedFd<'_>) -> Option<io::Result<Backing>> {
        let _ = file;
        None
    }
}

/// Sends notifications to the kernel.
pub trait NotifySink: Send + Sync + 'static {
    /// Writes one notification, which may block until the kernel has done it.
    ///
    /// # Errors
    /// What the kernel answers; ENOENT where it does not know the inode or name.
    fn notify(&self, code: i32, parts: &[&[u8]]) -> io::Result<()>;
}
