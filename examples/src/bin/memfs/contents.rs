//! The contents of a file: blocks, and holes where none were written.

use std::collections::BTreeMap;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

/// Contents without a size of their own; what was not written reads as zeros.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    blocks: BTreeMap<u64, Box<[u8]>>,
}

/// The pieces of a range: block, place in the block, place in the range, length.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let piece = (BLOCK as usize - within).min(length - done);
        let found = (at / BLOCK, within, done, piece);
        done += piece;
        (piece > 0).then_some(found)
    })
}

impl Contents {
    /// How many blocks are held.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// How many more blocks a write needs.
    pub(crate) fn missing(&self, offset: u64, length: usize) -> u64 {
        let missing = |(block, ..): &(u64, usize, usize, usize)| !self.blocks.contains_key(block);
        pieces(offset, length).filter(missing).count() as u64
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (block, within, at, piece) in pieces(offset, length) {
            if let Some(block) = self.blocks.get(&block) {
                bytes[at..at + piece].copy_from_slice(&block[within..within + piece]);
            }
        }
        bytes
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (block, within, at, piece) in pieces(offset, bytes.len()) {
            let empty = || vec![0; BLOCK as usize].into_boxed_slice();
            let block = self.blocks.entry(block).or_insert_with(empty);
            block[within..within + piece].copy_from_slice(&bytes[at..at + piece]);
        }
    }

    /// Makes everything from `from` to before `to` read as zeros, and frees whole blocks of it.
    pub(crate) fn clear(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> = self
            .blocks
            .range(from / BLOCK..to.div_ceil(BLOCK))
            .map(|(number, _)| *number)
            .collect();
        for number in touched {
            let start = from.max(number * BLOCK) - number * BLOCK;
            let end = to.min((number + 1) * BLOCK) - number * BLOCK;
            if end - start == BLOCK {
                self.blocks.remove(&number);
            } else if let Some(block) = self.blocks.get_mut(&number) {
                block[start as usize..end as usize].fill(0);
            }
        }
    }

    /// The next offset from `offset` on that has data, or with `data` false has none.
    pub(crate) fn seek(&self, offset: u64, data: bool) -> Option<u64> {
        let first = offset / BLOCK;
        let number = if data {
            *self.blocks.range(first..).next()?.0
        } else {
            (first..).find(|number| !self.blocks.contains_key(number))?
        };
        Some(offset.max(number * BLOCK))
    }
}
