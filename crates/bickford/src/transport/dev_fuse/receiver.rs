//! What receives requests and handles them: that of one thread at a time.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::Channel;
use super::splice::{Received, Splicing};
use crate::dispatch::{Server, Worker};
use crate::transport::Responder;
use crate::transport::buffer::Buffer;

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
        // Before the buffer, for which memory may be missing without harm.
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
    pub(super) fn receive(&mut self, channel: &Channel) -> Result<Received, Errno> {
        self.splicing.receive(channel, &mut self.buffer)
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
