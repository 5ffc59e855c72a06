//! The buffer that a worker receives into.

use std::io;

use crate::sys::mapping::Mapping;

/// Room for one request. What a large request used is given back when the worker rests.
#[derive(Debug)]
pub(crate) struct Buffer {
    mapping: Mapping,
    used: usize,
}

/// An idle worker keeps at most this much memory.
pub(crate) const IDLE_KEEP: usize = 64 << 10;

impl Buffer {
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        Ok(Self {
            mapping: Mapping::new(length)?,
            used: 0,
        })
    }

    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.mapping.as_mut_slice()
    }

    pub(crate) fn received(&mut self, length: usize) -> &[u8] {
        self.used = self.used.max(length);
        self.mapping.as_slice().get(..length).unwrap_or_default()
    }

    /// Whether more memory is in use than an idle worker may keep.
    pub(crate) fn is_large(&self) -> bool {
        self.used > IDLE_KEEP
    }

    pub(crate) fn shrink(&mut self) {
        self.mapping.discard_beyond(IDLE_KEEP);
        self.used = 0;
    }
}
