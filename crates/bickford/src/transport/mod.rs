//! Transports: where requests come from and answers go. Nothing above knows which one it is.
//!
//! One of your own has a [`Server`](crate::dispatch::Server) and for each thread a [`Worker`](crate::dispatch::Worker), hands each
//! message to [`Server::process_bytes`](crate::dispatch::Server::process_bytes) with its [`Responder`], beginning with INIT, and
//! sends notifications by its [`NotifySink`] ([`Server::serve_notifications`](crate::dispatch::Server::serve_notifications)). When the
//! connection has ended it calls [`InFlight::end`](crate::dispatch::InFlight::end), and when its threads have,
//! [`Server::destroy`](crate::dispatch::Server::destroy). [`memory`] is one.

pub(crate) mod abort;
mod buffer;
mod choice;
pub mod dev_fuse;
pub mod io_uring;
pub mod memory;

use std::{fmt, io};

use rustix::io::Errno;

use crate::Unique;
use crate::backing::Backings;
use crate::ops::Data;

pub use choice::{Transport, TransportChoice, TransportInForce, Yielding};
pub use dev_fuse::Workers;
pub use io_uring::{io_uring_obstacle, yielding_obstacle};

/// Bytes of names and data for which a request must have room whatever `max_write` is, in whole pages: a value of
/// an extended attribute (`XATTR_SIZE_MAX` of linux/limits.h) and its name. Nothing else is larger.
pub(crate) const DATA_MIN: u32 = 17 * 4096;

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

impl<'a> Outgoing<'a> {
    /// Zero or a positive errno, and fixed structures alone.
    pub(crate) fn without_data(error: i32, fixed: &'a [u8]) -> Self {
        Self {
            error,
            fixed,
            data: &Data::Empty,
        }
    }
}

/// Sends answers back the way their requests came. Any thread may call it.
pub trait Responder: Send + Sync + 'static {
    /// Sends one answer; at most once for each ticket, but once more when the first was not taken.
    /// When the data cannot be had (a read of a backing file fails), the error is sent instead.
    ///
    /// # Errors
    /// When the kernel does not take the answer.
    fn respond(&self, ticket: Ticket, answer: &Outgoing<'_>) -> io::Result<()>;

    /// Whether a reply may be kept until something else happens, which may be another request; see
    /// [`Reply::may_wait`](crate::Reply::may_wait).
    fn may_wait(&self) -> bool {
        true
    }

    /// What registers backing files with the connection, where there is one.
    fn backings(&self) -> Option<Backings> {
        None
    }
}

impl fmt::Debug for dyn Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}

/// The kernel refuses errors from here on (`ERESTARTSYS` and others of its own) without looking for
/// the request, whose caller would then wait for ever.
const KERNEL_ERRNOS: i32 = 512;

/// What goes to the kernel for an errno: EIO where it takes none such.
pub(crate) fn sendable(errno: Errno) -> i32 {
    let number = errno.raw_os_error();
    if (1..KERNEL_ERRNOS).contains(&number) {
        return number;
    }
    tracing::error!(
        errno = number,
        "an errno that cannot be answered; the caller gets EIO"
    );
    Errno::IO.raw_os_error()
}

/// What goes to the kernel when the data of an answer cannot be had.
fn failure(error: &io::Error) -> i32 {
    sendable(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Sends notifications to the kernel.
pub trait NotifySink: Send + Sync + 'static {
    /// Writes one notification, which may block until the kernel has done it.
    ///
    /// # Errors
    /// What the kernel answers; ENOENT where it does not know the inode or name.
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()>;
}
