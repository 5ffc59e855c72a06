//! What does not come over the rings: FORGET, INTERRUPT and the data of retrievals that the kernel
//! answers by /dev/fuse.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bickford_abi::Opcode;
use rustix::io::Errno;

use super::{Part, Shared};
use crate::transport::Responder;
use crate::transport::buffer::Buffer;
use crate::transport::dev_fuse::{Channel, HEADER_ROOM};
use crate::{decode, dispatch};

/// After a FORGET the reader waits a little, so that those that follow are read together. Nobody
/// waits for a FORGET; an INTERRUPT comes this much later at worst.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn start(shared: &Arc<Shared>, dispatcher: &Arc<dispatch::Server>) -> io::Result<()> {
    let part = Part::new(shared, dispatcher);
    let buffer = Buffer::new(HEADER_ROOM + shared.payload)?;
    thread::Builder::new()
        .name("bickford-forget".into())
        .spawn(move || run(&part, buffer))?;
    Ok(())
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
            Err(Errno::NODEV | Errno::CONNABORTED) => return dispatcher.in_flight().end(),
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
