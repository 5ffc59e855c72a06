//! Answers as flat structures, both ways.

use bickford::Errno;
use bickford::ops::{Answer, FileRange};
use bickford::path::Listing;

use crate::abi::{BICKFORD_DATA_MAX, bickford_answer, bickford_request};
use crate::parameters::bytes;

/// What an answer is gathered in beside the flat structure.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The memory behind [`bickford_answer::data`].
    bytes: Vec<u8>,
    filled: usize,
    /// Where the request lists a directory over paths.
    pub(crate) listing: Option<Listing>,
    /// Where it is a READ that is answered from a descriptor.
    pub(crate) range: Option<FileRange>,
}

impl Buffer {
    /// Room for `size` bytes. They are zero: an answer that says more than was written must not
    /// show what this memory held before.
    pub(crate) fn with_room(size: u64) -> Result<Self, Errno> {
        if size > BICKFORD_DATA_MAX {
            return Err(Errno::INVAL);
        }
        let size = usize::try_from(size).map_err(|_| Errno::INVAL)?;
        Ok(Self {
            bytes: vec![0; size],
            ..Self::default()
        })
    }

    /// For names.
    pub(crate) fn of_names(listing: Listing) -> Self {
        Self {
            listing: Some(listing),
            ..Self::default()
        }
    }

    /// What an answer holds that exists already.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        let filled = bytes.len();
        Self {
            bytes,
            filled,
            ..Self::default()
        }
    }

    /// Puts the buffer into an answer.
    pub(crate) fn offer(&mut self, answer: &mut bickford_answer) {
        answer.data = if self.bytes.is_empty() {
            std::ptr::null_mut()
        } else {
            self.bytes.as_mut_ptr()
        };
        answer.data_capacity = self.bytes.len() as u64;
        answer.data_length = self.filled as u64;
    }

    /// The bytes that an answer says there are.
    ///
    /// # Safety
    /// The answer's data is this buffer, or points to as many bytes as it says.
    pub(crate) unsafe fn take(mut self, answer: &bickford_answer) -> Result<Vec<u8>, Errno> {
        if self.bytes.is_empty() || !std::ptr::eq(self.bytes.as_ptr(), answer.data) {
            // SAFETY: the caller's promise.
            return Ok(unsafe { bytes(answer.data, answer.data_length) }?.to_vec());
        }
        let room = self.bytes.len();
        let length = usize::try_from(answer.data_length).map_err(|_| Errno::IO)?;
        if length > room {
            tracing::error!(length, room, "an answer is longer than its room");
            return Err(Errno::IO);
        }
        self.bytes.truncate(length);
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

/// What a callback answers, from a flat structure.
pub(crate) trait FromFlat: Sized + Send + 'static {
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
}

/// An answer to the kernel that can be written as a flat structure and read back.
pub(crate) trait FlatAnswer: FromFlat + Answer {
    /// Into the flat structure; its data is set by the caller. Without `with_data`, data of READ
    /// stay out of it.
    fn expose(self, answer: &mut bickford_answer, with_data: bool) -> Result<Exposed<Self>, Errno>;

    /// The answer to a request with this size, where it was given to one with another.
    fn for_size(self, asked: u64) -> Result<Self, Errno> {
        let _ = asked;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_is_zero() {
        for size in [24, 4096, 256 << 10] {
            // Memory that is used again has these bytes in it.
            let old: Vec<Vec<u8>> = (0..8).map(|_| vec![0xA5; size]).collect();
            drop(std::hint::black_box(old));
            let buffers = (0..8).map(|_| Buffer::with_room(size as u64).unwrap());
            let mut buffers: Vec<Buffer> = buffers.collect();
            while let Some(mut buffer) = buffers.pop() {
                let mut answer = bickford_answer::default();
                buffer.offer(&mut answer);
                assert_eq!(answer.data_length, 0);
                answer.data_length = answer.data_capacity;
                // SAFETY: the data is the buffer.
                let bytes = unsafe { buffer.take(&answer) }.unwrap();
                assert_eq!(bytes, vec![0; size]);
            }
        }
    }
}
