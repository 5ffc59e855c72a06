//! The contents of a file: blocks, and holes where none were written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bickford::path::Allocation;
use bickford::path::memory::Inode;
use bickford::{Errno, Result};
use rustix::fs::FallocateFlags;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;
/// Blocks that files may hold together.
pub(crate) const BLOCKS_MAX: u64 = (1 << 30) / BLOCK;
/// Offsets beyond this are refused, as by a file system of a disk.
const SIZE_MAX: u64 = 1 << 42;

/// Blocks by number, and the count of all files' blocks; what is not there reads as zeros.
pub(crate) struct Contents(BTreeMap<u64, Box<[u8]>>, Arc<AtomicU64>);

impl Drop for Contents {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len() as u64, Ordering::Relaxed);
    }
}

/// The pieces of a range: block, place in the block, place in the range, length.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let piece = (BLOCK as usize - within).min(length - done);
        done += piece;
        (piece > 0).then_some((at / BLOCK, within, done - piece, piece))
    })
}

fn end_of(offset: u64, length: u64) -> Result<u64> {
    let end = offset.checked_add(length);
    end.filter(|end| *end <= SIZE_MAX).ok_or(Errno::FBIG)
}

impl Contents {
    pub(crate) fn new(used: &Arc<AtomicU64>) -> Self {
        Self(BTreeMap::new(), Arc::clone(used))
    }

    fn check_room(&self, blocks: u64) -> Result<()> {
        match self.1.load(Ordering::Relaxed) + blocks <= BLOCKS_MAX {
            true => Ok(()),
            false => Err(Errno::NOSPC),
        }
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (block, within, at, piece) in pieces(offset, length) {
            if let Some(block) = self.0.get(&block) {
                bytes[at..at + piece].copy_from_slice(&block[within..within + piece]);
            }
        }
        bytes
    }

    /// Makes everything from `from` to before `to` read as zeros, and frees whole blocks of it.
    fn clear(&mut self, from: u64, to: u64) {
        let touched = self.0.range(from / BLOCK..to.div_ceil(BLOCK));
        for number in touched.map(|(number, _)| *number).collect::<Vec<_>>() {
            let start = from.saturating_sub(number * BLOCK) as usize;
            let end = BLOCK.min(to - number * BLOCK) as usize;
            if end - start == BLOCK as usize {
                self.0.remove(&number);
                self.1.fetch_sub(1, Ordering::Relaxed);
            } else if let Some(block) = self.0.get_mut(&number) {
                block[start..end].fill(0);
            }
        }
    }
}

fn changed(inode: &mut Inode<Contents>, size: u64) -> Result<()> {
    inode.attr.size = size;
    inode.attr.blocks = inode.data.0.len() as u64 * (BLOCK / 512);
    inode.touch_contents();
    Ok(())
}

pub(crate) fn write(inode: &mut Inode<Contents>, offset: u64, bytes: &[u8]) -> Result<()> {
    let end = end_of(offset, bytes.len() as u64)?;
    let is_missing = |(block, ..): &(u64, _, _, _)| !inode.data.0.contains_key(block);
    let missing = pieces(offset, bytes.len()).filter(is_missing).count() as u64;
    inode.data.check_room(missing)?;
    let Contents(blocks, used) = &mut inode.data;
    used.fetch_add(missing, Ordering::Relaxed);
    for (block, within, at, piece) in pieces(offset, bytes.len()) {
        let block = blocks.entry(block);
        let block = block.or_insert_with(|| vec![0; BLOCK as usize].into());
        block[within..within + piece].copy_from_slice(&bytes[at..at + piece]);
    }
    changed(inode, inode.attr.size.max(end))
}

pub(crate) fn truncate(inode: &mut Inode<Contents>, size: u64) -> Result<()> {
    end_of(size, 0)?;
    inode.data.clear(size, inode.attr.size.max(size));
    changed(inode, size)
}

/// Blocks are taken when they are written; what can be promised before is that there is room.
pub(crate) fn allocate(inode: &mut Inode<Contents>, range: Allocation) -> Result<()> {
    let mode = FallocateFlags::from_bits_retain(range.mode);
    let (offset, end) = (range.offset, end_of(range.offset, range.length)?);
    match mode.difference(FallocateFlags::KEEP_SIZE) {
        rest if rest.is_empty() => inode.data.check_room(range.length.div_ceil(BLOCK))?,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE => inode.data.clear(offset, end),
        _ => return Err(Errno::OPNOTSUPP),
    }
    let size = inode.attr.size;
    let keeps = mode.contains(FallocateFlags::KEEP_SIZE);
    changed(inode, if keeps { size } else { size.max(end) })
}

/// The next offset with data (`SEEK_DATA`, 3) or without (`SEEK_HOLE`, 4); the end is a hole.
pub(crate) fn seek(inode: &Inode<Contents>, offset: u64, whence: u32) -> Result<u64> {
    let (first, blocks, size) = (offset / BLOCK, &inode.data.0, inode.attr.size);
    let found = match whence {
        3 => blocks.range(first..).next().map(|(number, _)| *number),
        4 => (first..).find(|number| !blocks.contains_key(number)),
        _ => return Err(Errno::INVAL),
    };
    let found = found.map_or(u64::MAX, |number| offset.max(number * BLOCK));
    match found < size || (whence == 4 && offset < size) {
        true => Ok(found.min(size)),
        false => Err(Errno::NXIO),
    }
}
