//! Moves data between files and the device through a pipe, without copying them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Once};

use bickford_abi::{InHeader, Opcode, OutHeader, WriteIn};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use zerocopy::{FromBytes, IntoBytes};

use super::{Channel, HEADER_ROOM};
use crate::decode::Incoming;
use crate::dispatch::{Server, Worker};
use crate::filesystem::MAX_WRITE;
use crate::ops::FileRange;
use crate::trace::Stamp;
use crate::transport::Responder;
use crate::transport::buffer::Buffer;

/// Answers below this are copied: splicing costs more than it saves.
const ANSWER_MIN: usize = 32 << 10;
/// The same for data of WRITE, where a splice saves less.
const WRITE_MIN: usize = 128 << 10;
/// Room for answers where a pipe of 1 MiB is the most that there is to be had, which is so without
/// CAP_SYS_RESOURCE: a page takes a slot even where it is not whole.
const SMALL_PIPE: usize = 512 << 10;
/// Slots beside those of the data: headers, and a page at each end that is not whole.
const SPARE: usize = 4 * 4096;
/// What stands before the data of WRITE.
const WRITE_FRONT: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// A pipe that is empty between uses.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes of data that fit.
    data: usize,
}

impl Pipe {
    /// A pipe with room for `data` bytes and what belongs to them.
    fn new(data: usize) -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let wanted = (data + SPARE).next_power_of_two();
        let size = rustix::pipe::fcntl_setpipe_size(&write, wanted)?;
        if size < data + SPARE {
            return Err(Errno::MFILE.into());
        }
        Ok(Self { read, write, data })
    }

    /// For answers.
    pub(super) fn for_answers() -> io::Result<Self> {
        Self::new(MAX_WRITE as usize).or_else(|_| Self::new(SMALL_PIPE))
    }

    fn held(&self) -> usize {
        rustix::io::ioctl_fionread(&self.read)
            .ok()
            .and_then(|held| usize::try_from(held).ok())
            .unwrap_or(0)
    }

    /// Throws away what nobody took.
    fn clear(&self, scratch: &mut [u8]) {
        while self.held() > 0 {
            match rustix::io::read(&self.read, &mut *scratch) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("emptying a pipe: {error}");
                    return;
                }
            }
        }
    }

    fn read_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(room) = buffer.get_mut(done..).filter(|room| !room.is_empty()) {
            match rustix::io::read(&self.read, room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// How an answer from a file ended.
pub(super) enum Sent {
    /// The kernel took it, or refused it.
    Done(io::Result<()>),
    /// It must be copied.
    TooLarge,
    /// It must be copied; the pipe is to be thrown away.
    Unsuitable,
}

/// How much of a range there is in its file now, where that is worth splicing.
pub(super) fn suitable_length(range: &FileRange) -> Option<usize> {
    if range.length < ANSWER_MIN {
        return None;
    }
    range.present().filter(|length| *length >= ANSWER_MIN)
}

/// Sends `length` bytes of a file. When it has become shorter, that is not suitable, since the header
/// that says the length goes first.
pub(super) fn send(
    pipe: &Pipe,
    device: BorrowedFd<'_>,
    header: &OutHeader,
    fixed: &[u8],
    range: &FileRange,
    length: usize,
) -> Sent {
    if length > pipe.data {
        return Sent::TooLarge;
    }
    let total = size_of::<OutHeader>() + fixed.len() + length;
    let header = OutHeader {
        len: u32::try_from(total).unwrap_or(u32::MAX),
        ..*header
    };
    let front = [header.as_bytes(), fixed].concat();
    if rustix::io::write(&pipe.write, &front) != Ok(front.len()) {
        return Sent::Unsuitable;
    }
    let mut done = 0;
    while done < length {
        let mut offset = range.offset.saturating_add(done as u64);
        let wanted = length - done;
        let flags = SpliceFlags::NONBLOCK;
        match rustix::pipe::splice(
            &range.file,
            Some(&mut offset),
            &pipe.write,
            None,
            wanted,
            flags,
        ) {
            Ok(0) => return Sent::Unsuitable,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) => return Sent::Unsuitable,
        }
    }
    let flags = SpliceFlags::empty();
    let sent = rustix::pipe::splice(&pipe.read, None, device, None, total, flags);
    Sent::Done(sent.map(drop).map_err(Into::into))
}

/// A request as it was received.
pub(super) enum Received {
    /// All of it is in the buffer.
    Whole(usize),
    /// A WRITE: the front is in the buffer, so many bytes of data are in the pipe.
    Piped(usize),
}

/// Once, though each worker finds out.
fn tell_of_copies(room: usize, error: &io::Error) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let wanted = (room + SPARE).next_power_of_two();
        tracing::info!(
            "data of WRITE are copied, not spliced: no pipe of {wanted} bytes: {error}; sysctl fs.pipe-max-size={wanted} allows it"
        );
    });
}

/// How one worker receives: through a pipe while large WRITEs come, else straight into its buffer,
/// which takes a system call less.
pub(super) struct Splicing {
    pipe: Option<Pipe>,
    /// The last request was a large WRITE; so the next is likely to be one.
    expecting: bool,
}

impl Splicing {
    /// As the file system wants it.
    pub(super) fn new(server: &Server) -> Self {
        let wanted = server
            .negotiated()
            .map(|settled| &settled.negotiation)
            .filter(|negotiation| negotiation.splice_writes());
        let pipe = wanted.and_then(|negotiation| {
            // A request that does not fit into the pipe would be lost.
            let room = negotiation.max_write() as usize + HEADER_ROOM;
            let pipe = Pipe::new(room);
            pipe.inspect_err(|error| tell_of_copies(room, error)).ok()
        });
        Self {
            pipe,
            expecting: false,
        }
    }

    pub(super) fn receive(
        &mut self,
        channel: &Channel,
        buffer: &mut Buffer,
    ) -> Result<Received, Errno> {
        let received = match &self.pipe {
            Some(pipe) if self.expecting => {
                let received = receive(pipe, channel.device(), buffer);
                if matches!(received, Err(Errno::IO)) {
                    // What is left in it would be taken for the next one.
                    self.pipe = None;
                }
                received?
            }
            _ => Received::Whole(channel.receive(buffer)?),
        };
        self.expecting = self.pipe.is_some()
            && match received {
                Received::Piped(_) => true,
                Received::Whole(length) => length >= WRITE_MIN && is_write(buffer.room()),
            };
        Ok(received)
    }

    /// Handles a WRITE whose data are in the pipe, and throws away what is left of them.
    pub(super) fn process(
        &self,
        server: &Server,
        worker: &Worker,
        buffer: &mut Buffer,
        data: usize,
        responder: &Arc<dyn Responder>,
    ) {
        let Some(pipe) = &self.pipe else {
            return;
        };
        let received = Stamp::now();
        let front = buffer.received(WRITE_FRONT);
        match Incoming::parse_piped(front, pipe.read.as_fd(), data) {
            Ok(incoming) => server.process(worker, incoming, received, responder, 0),
            Err(error) => server.refuse_message(front, error, responder),
        }
        pipe.clear(buffer.room());
    }
}

fn is_write(message: &[u8]) -> bool {
    InHeader::read_from_prefix(message)
        .is_ok_and(|(header, _)| header.opcode == Opcode::Write as u32 && header.total_extlen == 0)
}

/// Receives a request through `pipe`. Data of a large WRITE stay there. EIO where it was lost on the way.
fn receive(pipe: &Pipe, device: BorrowedFd<'_>, buffer: &mut Buffer) -> Result<Received, Errno> {
    let room = buffer.room();
    let flags = SpliceFlags::empty();
    let length = rustix::pipe::splice(device, None, &pipe.write, None, room.len(), flags)?;
    let failed = |error: io::Error| {
        tracing::error!("a request was lost in a pipe: {error}");
        Errno::IO
    };
    let front = length.min(WRITE_FRONT);
    let (start, rest) = room.split_at_mut_checked(front).ok_or(Errno::IO)?;
    pipe.read_exact(start).map_err(failed)?;
    let data = length - front;
    if data >= WRITE_MIN && is_write(start) {
        return Ok(Received::Piped(data));
    }
    let rest = rest.get_mut(..data).ok_or(Errno::IO)?;
    pipe.read_exact(rest).map_err(failed)?;
    Ok(Received::Whole(length))
}
