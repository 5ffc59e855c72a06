//! What receives requests and handles them: that of one thread at a time.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::Channel;
use super::splice::{Received, Splicing};
use crate::dispatch::{Server, Worker};
use crate::transport::Responder;
use crate::transport::buffer::Buffer;

/// What there was to receive.
pub(super) enum Receipt {
    Request(Received),
    /// No request waits, where the descriptor does not.
    Nothing,
    /// The connection has ended.
    End,
}

pub(super) struct Receiver {
    worker: Worker,
    pub(super) buffer: Buffer,
    splicing: Splicing,
}

impl Receiver {
    /// With a number of its own.
    pub(super) fn new(server: &Server, number: usize) -> io::Result<Self> {
        let max_write = server
            .negotiated()
            .map_or(0, |settled| settled.negotiation.max_write());
        let size = super::room(max_write);
        // First: where there is no memory for its tables the process ends, while without a buffer this is an error.
        let worker = server.worker(number);
        let buffer = Buffer::new(size).map_err(|error| {
            let text = format!("{size} bytes for a worker: {error}");
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            worker,
            buffer,
            splicing: Splicing::new(server),
        })
    }

    /// Takes a request, waiting for it as the descriptor does.
    pub(super) fn receive(&mut self, channel: &Channel) -> Result<Receipt, Errno> {
        loop {
            return match self.splicing.receive(channel, &mut self.buffer) {
                Ok(received) => Ok(Receipt::Request(received)),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::AGAIN) => Ok(Receipt::Nothing),
                Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Receipt::End),
                Err(error) => Err(error),
            };
        }
    }

    pub(super) fn handle(
        &mut self,
        server: &Server,
        received: Received,
        responder: &Arc<dyn Responder>,
    ) {
        let (worker, buffer) = (&self.worker, &mut self.buffer);
        match received {
            Received::Whole(length) => {
                server.process_bytes(worker, buffer.received(length), responder);
            }
            Received::Piped(data) => {
                self.splicing
                    .process(server, worker, buffer, data, responder);
            }
        }
    }
}
