//! The classic transport: read(2) and write(2) on /dev/fuse.

mod channel;
mod driver;
mod receiver;
mod splice;
#[cfg(test)]
pub(super) mod tests;
mod workers;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bickford_abi::Opcode;
use rustix::io::Errno;

pub(crate) use channel::{Channel, wait_for_memory};
pub(crate) use driver::End;
pub use driver::{Driver, Served};
pub(crate) use workers::Pool;
pub use workers::Workers;

use super::buffer::Buffer;
use super::{DATA_MIN, Responder};
use crate::decode;
use crate::dispatch::Server;

/// Bytes in front of the data of the largest request: headers, names, extensions.
pub(crate) const HEADER_ROOM: usize = 8192;

/// Bytes that a worker has room for. The kernel refuses what has none, with E2BIG or EIO.
fn room(max_write: u32) -> usize {
    HEADER_ROOM + max_write.max(DATA_MIN) as usize
}

/// Receives INIT and answers it. Nothing else comes before.
///
/// # Errors
/// When the connection ends before INIT, or the file system refuses: with its errno.
pub(crate) fn initialize(server: &Server, device: &Arc<OwnedFd>) -> io::Result<()> {
    let channel = Arc::new(Channel::new(Arc::clone(device)));
    let responder: Arc<dyn Responder> = channel.clone();
    let worker = server.worker(0);
    let mut buffer = Buffer::new(HEADER_ROOM + crate::filesystem::MAX_WRITE as usize)?;
    while server.negotiated().is_none() {
        let length = match channel.receive(&mut buffer) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let message = buffer.received(length);
        let is_init = decode::opcode(message) == Some(Opcode::Init);
        server.process_bytes(&worker, message, &responder);
        if is_init && server.negotiated().is_none() && !renegotiates(message) {
            let refused = || io::Error::other("the session was refused at INIT");
            return Err(server.take_refusal().unwrap_or_else(refused));
        }
    }
    Ok(())
}

/// Whether the kernel speaks a later major version and will send INIT again.
fn renegotiates(init: &[u8]) -> bool {
    let major = init
        .get(40..44)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_ne_bytes);
    major.is_some_and(|major| major > bickford_abi::KERNEL_VERSION)
}
