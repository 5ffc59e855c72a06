//! Answers as bytes.

use std::time::Duration;

use bickford_abi::Opcode;
use zerocopy::{Immutable, IntoBytes};

use super::Data;

/// What the form of an answer depends on.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// The minor version that was negotiated.
    pub minor: u32,
    /// The request's opcode.
    pub opcode: Opcode,
    /// The kernel is to ask for the attributes of the root each time, and thereby for each caller. Attributes
    /// without a node id are the root's then.
    pub uncached: bool,
}

impl Encoding {
    /// How long attributes are valid that the file system wants to be so for `wanted`.
    pub(super) fn attributes_valid(&self, wanted: Duration) -> Duration {
        match self.uncached {
            true => Duration::ZERO,
            false => wanted,
        }
    }
}

/// Larger than every fixed answer (`struct fuse_statx_out` has 288 bytes).
const FIXED_MAX: usize = 320;

/// Gathers an answer: fixed structures, then data.
#[derive(Debug)]
pub struct Encoder {
    fixed: [u8; FIXED_MAX],
    length: usize,
    data: Data,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            fixed: [0; FIXED_MAX],
            length: 0,
            data: Data::Empty,
        }
    }
}

impl Encoder {
    /// Adds a fixed structure.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.put_prefix(value, usize::MAX);
    }

    /// Adds the first `known` bytes of a fixed structure, for a kernel that knows no more of it.
    pub fn put_prefix<T: IntoBytes + Immutable>(&mut self, value: &T, known: usize) {
        let bytes = value.as_bytes();
        let bytes = bytes.get(..known).unwrap_or(bytes);
        let end = self.length + bytes.len();
        if let Some(room) = self.fixed.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        } else {
            debug_assert!(false, "fixed answers take at most {FIXED_MAX} bytes");
        }
    }

    /// Sets the data that follows the fixed structures.
    pub fn data(&mut self, data: Data) {
        self.data = data;
    }

    /// The fixed structures and the data.
    #[must_use]
    pub fn parts(&self) -> (&[u8], &Data) {
        (
            self.fixed.get(..self.length).unwrap_or_default(),
            &self.data,
        )
    }
}
