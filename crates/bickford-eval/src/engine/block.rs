//! Memory that data are read into and written from.

use std::ops::{Deref, DerefMut};

/// Of the processors that Linux runs on, none has smaller pages.
const PAGE: usize = 4096;

/// Bytes that begin a page, as the buffers of cp(1), cat(1) and fio do: there are processors on which the kernel's
/// copy to elsewhere takes several times as long, and what a file system costs would be lost in that.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Vec<u8>,
    first: usize,
}

impl Block {
    /// `length` zeros.
    pub(crate) fn new(length: usize) -> Self {
        let mut memory = vec![0; length + PAGE];
        let first = memory.as_ptr().align_offset(PAGE).min(PAGE);
        memory.truncate(first + length);
        Self { memory, first }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(self.first..).unwrap_or_default()
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.first..).unwrap_or_default()
    }
}

/// `length` bytes that are not all alike.
pub(crate) fn pattern(length: usize) -> Block {
    let mut block = Block::new(length);
    fastrand::Rng::with_seed(1).fill(&mut block);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_begins_a_page_and_has_its_length() {
        for length in [0, 1, 511, 4096, 4097, 1 << 20] {
            let mut block = pattern(length);
            assert_eq!(block.len(), length);
            assert_eq!(block.as_ptr() as usize % PAGE, 0, "{length}");
            block.fill(7);
            assert!(block.iter().all(|byte| *byte == 7), "{length}");
        }
    }

    #[test]
    fn a_pattern_is_the_same_each_time() {
        let block = pattern(4096);
        assert_eq!(*block, *pattern(4096));
        assert!(block.iter().any(|byte| Some(byte) != block.first()));
    }
}
