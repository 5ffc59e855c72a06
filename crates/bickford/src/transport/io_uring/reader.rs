//! What does not come over the rings: FORGET, INTERRUPT and the data of retrievals that the kernel
//! answers by /dev/fuse.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use bickford_abi::Opcode;
use rustix::io::Errno;

use super::{Part, Shared};
use crate::decode;
use crate::parked::Parked;
use crate::transport::Responder;
use crate::transport::buffer::Buffer;
use crate::transport::dev_fuse::{Channel, HEADER_ROOM, wait_for_memory};

/// After a FORGET the reader waits a little, so that those that follow are read together. Nobody
/// waits for a FORGET; an INTERRUPT comes this much later at worst.
const PAUSE: Duration = Duration::from_millis(2);

/// Starts a reader, which begins once it is given its part of the session.
pub(super) fn prepare(shared: &Shared) -> io::Result<Parked<Part>> {
    let buffer = Buffer::new(HEADER_ROOM + shared.payload)?;
    Parked::new("bickford-forget".into(), move |word: &Receiver<Part>| {
        if let Ok(part) = word.recv() {
            run(&part, buffer);
        }
    })
}

fn run(part: &Part, mut buffer: Buffer) {
    let dispatcher = &part.dispatcher;
    let channel = Arc::new(Channel::new(Arc::clone(&part.shared.device)));
    let responder: Arc<dyn Responder> = channel.clone();
    let worker = dispatcher.worker(0);
    loop {
        let length = match channel.receive(&mut buffer) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(error @ (Errno::NOMEM | Errno::FAULT)) => {
                wait_for_memory(error);
                continue;
            }
            Err(Errno::NODEV | Errno::CONNABORTED) => {
                // No ring is told while replies that are due later have all entries.
                part.shared.stop();
                return dispatcher.in_flight().end();
            }
            Err(error) => {
                tracing::error!("receiving from /dev/fuse: {error}; FORGET and INTERRUPT are lost");
                return;
            }
        };
        let message = buffer.received(length);
        let opcode = decode::opcode(message);
        dispatcher.process_bytes(&worker, message, &responder);
        if buffer.is_large() {
            buffer.shrink();
        }
        if matches!(opcode, Some(Opcode::Forget | Opcode::BatchForget)) {
            thread::sleep(PAUSE);
        }
    }
}
