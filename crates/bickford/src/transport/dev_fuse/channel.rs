//! One descriptor of the connection.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bickford_abi::OutHeader;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::splice::{self, Pipe, Sent};
use crate::backing::Backings;
use crate::ops::{Data, FileRange};
use crate::sys::device;
use crate::transport::buffer::{Buffer, IDLE_KEEP};
use crate::transport::{NotifySink, Outgoing, Responder, Ticket, failure};

/// More pieces than this are joined: writev(2) takes 1024 with the headers.
const PIECES_MAX: usize = 1022;

/// How long to wait after a read for which there was no memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A descriptor of the connection. Answers must go back through the descriptor by which their
/// request came; so it lives as long as any reply does.
#[derive(Debug)]
pub(crate) struct Channel {
    device: Arc<OwnedFd>,
    /// For answers from files, made when first needed.
    pipe: Mutex<Answers>,
}

#[derive(Debug, Default)]
enum Answers {
    #[default]
    None,
    /// Somebody uses it.
    Taken,
    Ready(Pipe),
    /// The system gives none.
    Impossible,
}

thread_local! {
    /// For data that are in a file and are not spliced.
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Channel {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Self {
        Self {
            device,
            pipe: Mutex::default(),
        }
    }

    /// Another descriptor of the same connection; where the kernel has none to give, the same one.
    pub(crate) fn duplicate(&self) -> Self {
        match device::clone_device(self.device.as_fd()) {
            Ok(device) => Self::new(Arc::new(device)),
            Err(error) => {
                tracing::debug!("the descriptor is shared by workers: {error}");
                Self::new(Arc::clone(&self.device))
            }
        }
    }

    /// The same descriptor, for another channel.
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.device)
    }

    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, buffer: &mut Buffer) -> Result<usize, Errno> {
        #[cfg(test)]
        if let Some(error) = super::tests::READ_FAILS.take() {
            return Err(error);
        }
        rustix::io::read(&*self.device, buffer.room())
    }

    fn write(&self, header: &OutHeader, fixed: &[u8], data: &[u8]) -> io::Result<()> {
        let header = OutHeader {
            len: u32::try_from(size_of::<OutHeader>() + fixed.len() + data.len())
                .map_err(|_| io::ErrorKind::InvalidInput)?,
            ..*header
        };
        let parts = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(fixed),
            IoSlice::new(data),
        ];
        let used = if data.is_empty() { 2 } else { 3 };
        rustix::io::writev(&*self.device, parts.get(..used).unwrap_or(&parts))?;
        Ok(())
    }

    /// Data in pieces go out with one system call, or are joined where some are in files.
    fn write_pieces(&self, header: OutHeader, fixed: &[u8], data: &Data) -> io::Result<()> {
        let slices = data.slices().filter(|slices| slices.len() <= PIECES_MAX);
        let Some(slices) = slices else {
            return match data.clone().into_bytes() {
                Ok(bytes) => self.write(&header, fixed, &bytes),
                Err(error) => self.write_error(header, &error),
            };
        };
        let length = size_of::<OutHeader>() + fixed.len() + data.len();
        let len = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let header = OutHeader { len, ..header };
        let mut parts = vec![IoSlice::new(header.as_bytes()), IoSlice::new(fixed)];
        parts.extend(slices.into_iter().map(IoSlice::new));
        rustix::io::writev(&*self.device, &parts)?;
        Ok(())
    }

    fn write_error(&self, header: OutHeader, error: &io::Error) -> io::Result<()> {
        let error = -failure(error);
        self.write(&OutHeader { error, ..header }, &[], &[])
    }

    /// Takes the pipe, unless somebody else uses it or there is none to be had.
    fn take_pipe(&self) -> Option<Pipe> {
        let mut answers = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *answers, Answers::Taken) {
            Answers::Ready(pipe) => Some(pipe),
            Answers::Taken => None,
            Answers::Impossible => {
                *answers = Answers::Impossible;
                None
            }
            Answers::None => match Pipe::for_answers() {
                Ok(pipe) => Some(pipe),
                Err(error) => {
                    tracing::debug!("answers are copied, not spliced: {error}");
                    *answers = Answers::Impossible;
                    None
                }
            },
        }
    }

    /// Splices a range of a file; `None` when it must be copied.
    fn splice_file(
        &self,
        header: &OutHeader,
        fixed: &[u8],
        range: &FileRange,
    ) -> Option<io::Result<()>> {
        let length = splice::suitable_length(range)?;
        let pipe = self.take_pipe()?;
        let sent = splice::send(&pipe, self.device.as_fd(), header, fixed, range, length);
        let (rest, result) = match sent {
            Sent::Done(Ok(())) => (Answers::Ready(pipe), Some(Ok(()))),
            // What is left in the pipe goes with it.
            Sent::Done(Err(error)) => (Answers::None, Some(Err(error))),
            Sent::TooLarge => (Answers::Ready(pipe), None),
            Sent::Unsuitable => (Answers::None, None),
        };
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = rest;
        result
    }

    fn write_file(&self, header: OutHeader, fixed: &[u8], range: &FileRange) -> io::Result<()> {
        if let Some(sent) = self.splice_file(&header, fixed, range) {
            return sent;
        }
        let copy_into = |buffer: &mut [u8]| match range.read_into(buffer) {
            Ok(length) => self.write(&header, fixed, buffer.get(..length).unwrap_or_default()),
            Err(error) => self.write_error(header, &error),
        };
        if range.length > IDLE_KEEP {
            return copy_into(&mut vec![0; range.length]);
        }
        COPY.with_borrow_mut(|copy| {
            copy.resize(IDLE_KEEP, 0);
            copy_into(copy)
        })
    }
}

/// Waits before the next read: this one found no memory for the buffer, which gives its pages back, or for what the
/// kernel itself needs. It has answered the request then, with EIO.
pub(crate) fn wait_for_memory(error: Errno) {
    tracing::warn!("receiving a request: {error}; reading again");
    thread::sleep(PAUSE);
}

impl Responder for Channel {
    fn respond(&self, ticket: Ticket, answer: &Outgoing<'_>) -> io::Result<()> {
        let header = OutHeader {
            len: 0,
            error: -answer.error,
            unique: ticket.unique.0,
        };
        match answer.data {
            Data::File(range) => self.write_file(header, answer.fixed, range),
            data @ Data::Vectored(_) => self.write_pieces(header, answer.fixed, data),
            data => self.write(&header, answer.fixed, data.bytes().unwrap_or_default()),
        }
    }

    fn backings(&self) -> Option<Backings> {
        Some(Backings::new(&self.device))
    }
}

impl NotifySink for Channel {
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let header = OutHeader {
            len: 0,
            error: code,
            unique: 0,
        };
        self.write(&header, body, &[])
    }
}
