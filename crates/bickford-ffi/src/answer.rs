//! Answers as flat structures, both ways.

use bickford::Errno;
use bickford::ops::Answer;

use crate::abi::{BICKFORD_DATA_MAX, bickford_answer, bickford_request};
use crate::parameters::bytes;

/// The memory behind [`bickford_answer::data`].
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    room: usize,
}

impl Buffer {
    /// Room for `size` bytes, not yet written.
    pub(crate) fn with_room(size: u64) -> Result<Self, Errno> {
        if size > BICKFORD_DATA_MAX {
            return Err(Errno::INVAL);
        }
        let size = usize::try_from(size).map_err(|_| Errno::INVAL)?;
        Ok(Self {
            bytes: Vec::with_capacity(size),
            room: size,
        })
    }

    /// What an answer holds that exists already.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        let room = bytes.len();
        Self { bytes, room }
    }

    /// Puts the buffer into an answer.
    pub(crate) fn offer(&mut self, answer: &mut bickford_answer) {
        answer.data = if self.room == 0 {
            std::ptr::null_mut()
        } else {
            self.bytes.as_mut_ptr()
        };
        answer.data_capacity = self.room as u64;
        answer.data_length = self.bytes.len() as u64;
    }

    /// The bytes that an answer says there are.
    ///
    /// # Safety
    /// If the answer's data is this buffer, as many bytes of it have been written as it says; else
    /// it points to as many bytes.
    pub(crate) unsafe fn take(mut self, answer: &bickford_answer) -> Result<Vec<u8>, Errno> {
        if self.room == 0 || !std::ptr::eq(self.bytes.as_ptr(), answer.data) {
            // SAFETY: the caller's promise.
            return Ok(unsafe { bytes(answer.data, answer.data_length) }?.to_vec());
        }
        let length = usize::try_from(answer.data_length).map_err(|_| Errno::IO)?;
        if length > self.room {
            tracing::error!(
                length,
                room = self.room,
                "an answer is longer than its room"
            );
            return Err(Errno::IO);
        }
        // SAFETY: within the capacity, and written, says the caller.
        unsafe { self.bytes.set_len(length) };
        Ok(self.bytes)
    }
}

/// What [`FlatAnswer::expose`] made of an answer.
pub(crate) struct Exposed<A> {
    /// What the flat answer's data points into.
    pub(crate) buffer: Buffer,
    /// The answer itself where it is not taken from the flat one.
    pub(crate) kept: Option<A>,
}

impl<A> Exposed<A> {
    pub(crate) fn flat() -> Self {
        Self {
            buffer: Buffer::default(),
            kept: None,
        }
    }

    pub(crate) fn data(bytes: Vec<u8>) -> Self {
        Self {
            buffer: Buffer::holding(bytes),
            kept: None,
        }
    }
}

/// An answer that can be written as a flat structure and read back.
pub(crate) trait FlatAnswer: Answer {
    /// How many bytes of data the answer may hold.
    fn room(request: &bickford_request) -> u64 {
        let _ = request;
        0
    }

    /// From the flat structure.
    ///
    /// # Safety
    /// As for [`Buffer::take`].
    unsafe fn from_flat(
        answer: &bickford_answer,
        request: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno>;

    /// Into the flat structure; its data is set by the caller. Without `with_data`, data of READ
    /// stay out of it.
    fn expose(self, answer: &mut bickford_answer, with_data: bool) -> Result<Exposed<Self>, Errno>;
}
