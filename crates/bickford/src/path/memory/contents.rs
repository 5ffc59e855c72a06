//! The contents of files: blocks, and holes where none were written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;

use super::Inode;
use crate::ops::{StatfsAnswer, Timestamp};
use crate::path::Allocation;
use crate::{Errno, Result};

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Longest file, in bytes. Offsets beyond it are refused, as by a file system of a disk.
pub const FILE_BYTES_MAX: u64 = 1 << 42;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// How much the inodes of a file system may hold together. Clones are the same limits.
#[derive(Clone, Debug)]
pub struct Limits(Arc<Held>);

#[derive(Debug)]
struct Held {
    inodes: Count,
    blocks: Count,
}

/// How many there are, and how many there may be.
#[derive(Debug)]
struct Count(AtomicU64, u64);

impl Count {
    fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn free(&self) -> u64 {
        self.1.saturating_sub(self.used())
    }

    fn take(&self, count: u64) -> Result<()> {
        let order = Ordering::Relaxed;
        let more = |used: u64| used.checked_add(count).filter(|used| *used <= self.1);
        let taken = self.0.fetch_update(order, order, more);
        taken.map(drop).map_err(|_| Errno::NOSPC)
    }

    fn give_back(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Limits {
    /// At most so many inodes, whose contents have at most so many bytes together, counted in
    /// blocks of 4 KiB. Names are bounded by [`super::Tree::with_names_max`], extended attributes for each inode
    /// ([`super::XATTRS_BYTES_MAX`]).
    #[must_use]
    pub fn new(inodes: u64, bytes: u64) -> Self {
        let count = |most| Count(AtomicU64::new(0), most);
        Self(Arc::new(Held {
            inodes: count(inodes),
            blocks: count(bytes / BLOCK),
        }))
    }

    /// What a new inode holds: nothing yet. The inode counts for as long as this lives.
    ///
    /// # Errors
    /// ENOSPC when there are as many as may be.
    pub fn contents(&self) -> Result<Contents> {
        self.0.inodes.take(1)?;
        Ok(Contents {
            blocks: BTreeMap::new(),
            held: Arc::clone(&self.0),
        })
    }

    /// The limits, and how much of them is left (statfs(2)).
    #[must_use]
    pub fn statfs(&self) -> StatfsAnswer {
        let Held { inodes, blocks } = &*self.0;
        StatfsAnswer {
            blocks: blocks.1,
            free: blocks.free(),
            available: blocks.free(),
            files: inodes.1,
            files_free: inodes.free(),
            ..StatfsAnswer::default()
        }
    }
}

/// What a file contains, within the [`Limits`] it was made by: blocks where something was written,
/// and holes, which take no memory and read as zeros. An [`Inode`] that holds it can be read and
/// written.
pub struct Contents {
    blocks: BTreeMap<u64, Box<[u8]>>,
    held: Arc<Held>,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks", self.blocks.len())
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.held.blocks.give_back(self.blocks.len() as u64);
        self.held.inodes.give_back(1);
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
    end.filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::FBIG)
}

impl Contents {
    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (block, within, at, piece) in pieces(offset, length) {
            let from = self.blocks.get(&block);
            let from = from.and_then(|block| block.get(within..within + piece));
            if let (Some(from), Some(to)) = (from, bytes.get_mut(at..at + piece)) {
                to.copy_from_slice(from);
            }
        }
        bytes
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let is_missing = |(block, ..): &(u64, _, _, _)| !self.blocks.contains_key(block);
        let missing = pieces(offset, bytes.len()).filter(is_missing).count();
        self.held.blocks.take(missing as u64)?;
        for (block, within, at, piece) in pieces(offset, bytes.len()) {
            let block = self.blocks.entry(block);
            let block = block.or_insert_with(|| vec![0; BLOCK as usize].into());
            let to = block.get_mut(within..within + piece);
            if let (Some(from), Some(to)) = (bytes.get(at..at + piece), to) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// How many blocks a range would take that it does not have.
    fn missing(&self, from: u64, to: u64) -> u64 {
        let range = from / BLOCK..to.div_ceil(BLOCK);
        let there = self.blocks.range(range.clone()).count() as u64;
        (range.end - range.start).saturating_sub(there)
    }

    /// Makes everything from `from` to before `to` read as zeros, and frees whole blocks of it.
    fn clear(&mut self, from: u64, to: u64) {
        let touched = self.blocks.range(from / BLOCK..to.div_ceil(BLOCK));
        for number in touched.map(|(number, _)| *number).collect::<Vec<_>>() {
            let start = from.saturating_sub(number * BLOCK) as usize;
            let end = BLOCK.min(to - number * BLOCK) as usize;
            if end - start == BLOCK as usize {
                self.blocks.remove(&number);
                self.held.blocks.give_back(1);
            } else if let Some(block) = self.blocks.get_mut(&number) {
                block[start..end].fill(0);
            }
        }
    }
}

impl Inode<Contents> {
    fn changed(&mut self, size: u64) {
        self.attr.size = size;
        self.attr.blocks = self.data.blocks.len() as u64 * (BLOCK / 512);
        self.touch_contents();
    }

    /// At most `size` bytes from `offset` on; fewer where the file ends (pread(2)).
    pub fn read(&mut self, offset: u64, size: u32) -> Vec<u8> {
        self.attr.accessed = Timestamp::now();
        let length = self.attr.size.saturating_sub(offset).min(size.into());
        self.data.read(offset, length as usize)
    }

    /// Writes all of `bytes` (pwrite(2)); answers how many there are. None change nothing, wherever they would be.
    ///
    /// # Errors
    /// EFBIG beyond [`FILE_BYTES_MAX`], ENOSPC beyond the [`Limits`]; then nothing was written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<u32> {
        let count = u32::try_from(bytes.len()).map_err(|_| Errno::FBIG)?;
        let end = end_of(offset, count.into())?;
        if bytes.is_empty() {
            return Ok(0);
        }
        self.data.write(offset, bytes)?;
        self.changed(self.attr.size.max(end));
        Ok(count)
    }

    /// Cuts the file, or makes it longer by a hole (truncate(2)).
    ///
    /// # Errors
    /// EFBIG beyond [`FILE_BYTES_MAX`].
    pub fn truncate(&mut self, size: u64) -> Result<()> {
        end_of(size, 0)?;
        self.data.clear(size, FILE_BYTES_MAX);
        self.changed(size);
        Ok(())
    }

    /// Reserves, punches a hole or fills with zeros (fallocate(2)). Blocks are taken when they are
    /// written; what is promised before is that there was room.
    ///
    /// # Errors
    /// EFBIG, ENOSPC, or EOPNOTSUPP for other modes.
    pub fn allocate(&mut self, range: Allocation) -> Result<()> {
        let mode = FallocateFlags::from_bits_retain(range.mode);
        let (offset, end) = (range.offset, end_of(range.offset, range.length)?);
        match mode.difference(FallocateFlags::KEEP_SIZE) {
            rest if rest.is_empty() => {
                if self.data.held.blocks.free() < self.data.missing(offset, end) {
                    return Err(Errno::NOSPC);
                }
            }
            FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE => self.data.clear(offset, end),
            _ => return Err(Errno::OPNOTSUPP),
        }
        let size = self.attr.size;
        let keeps = mode.contains(FallocateFlags::KEEP_SIZE);
        self.changed(if keeps { size } else { size.max(end) });
        Ok(())
    }

    /// The next offset with data (`SEEK_DATA`, 3) or without (`SEEK_HOLE`, 4); the end is a hole
    /// (lseek(2)).
    ///
    /// # Errors
    /// ENXIO where there is none, EINVAL for another `whence`.
    pub fn seek(&self, offset: u64, whence: u32) -> Result<u64> {
        let (first, blocks, size) = (offset / BLOCK, &self.data.blocks, self.attr.size);
        let found = match whence {
            SEEK_DATA => blocks.range(first..).next().map(|(number, _)| *number),
            SEEK_HOLE => (first..).find(|number| !blocks.contains_key(number)),
            _ => return Err(Errno::INVAL),
        };
        let found = found.map_or(u64::MAX, |number| offset.max(number * BLOCK));
        match found < size || (whence == SEEK_HOLE && offset < size) {
            true => Ok(found.min(size)),
            false => Err(Errno::NXIO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Attr;

    fn file(limits: &Limits) -> Inode<Contents> {
        Inode::new(Attr::file(1, 0o644, 0), limits.contents().unwrap())
    }

    fn allocation(mode: FallocateFlags, offset: u64, length: u64) -> Allocation {
        Allocation::new(mode.bits(), offset, length)
    }

    #[test]
    fn what_was_written_is_read_and_holes_are_zeros() {
        let limits = Limits::new(9, 1 << 20);
        let mut file = file(&limits);
        let bytes: Vec<u8> = (0..10_000u32).map(|at| (at % 251 + 1) as u8).collect();
        assert_eq!(file.write(5000, &bytes).unwrap(), 10_000);
        assert_eq!((file.attr.size, file.attr.blocks), (15_000, 3 * 8));
        assert_eq!(file.read(0, 5001), [vec![0; 5000], vec![1]].concat());
        assert_eq!(file.read(5000, 20_000), bytes);
        assert!(file.read(15_000, 1).is_empty());
        assert!(file.read(u64::MAX, 1).is_empty());
        assert_eq!(file.seek(0, SEEK_DATA), Ok(4096));
        assert_eq!(file.seek(4096, SEEK_HOLE), Ok(15_000));
        assert_eq!(file.seek(15_000, SEEK_HOLE), Err(Errno::NXIO));
        assert_eq!(file.seek(0, 0), Err(Errno::INVAL));

        assert_eq!(file.write(20_000, &[]), Ok(0));
        assert_eq!(file.attr.size, 15_000);

        // What was cut does not come back.
        file.truncate(6000).unwrap();
        file.truncate(15_000).unwrap();
        assert_eq!(file.read(5000, 1000), bytes[..1000]);
        assert_eq!(file.read(6000, 9000), [0; 9000]);
        assert_eq!(file.attr.blocks, 8);
    }

    #[test]
    fn holes_are_punched_and_room_is_promised() {
        let limits = Limits::new(9, 10 * BLOCK);
        let mut file = file(&limits);
        file.write(0, &[7; 12_288]).unwrap();
        let keep = FallocateFlags::KEEP_SIZE;
        let punch = allocation(FallocateFlags::PUNCH_HOLE | keep, 4000, 4296);
        file.allocate(punch).unwrap();
        assert_eq!(
            file.read(3999, 4298),
            [vec![7], vec![0; 4296], vec![7]].concat()
        );
        assert_eq!((file.attr.size, limits.statfs().free), (12_288, 8));
        let plain = FallocateFlags::empty();
        file.allocate(allocation(plain, 0, 20_000)).unwrap();
        assert_eq!(file.attr.size, 20_000);
        // Two blocks are there already, and eight are free.
        file.allocate(allocation(plain, 0, 10 * BLOCK)).unwrap();
        let refused = file.allocate(allocation(plain, 0, 10 * BLOCK + 1));
        assert_eq!(refused, Err(Errno::NOSPC));
        let refused = file.allocate(allocation(plain, u64::MAX, 1));
        assert_eq!(refused, Err(Errno::FBIG));
        let insert = allocation(FallocateFlags::INSERT_RANGE, 0, BLOCK);
        assert_eq!(file.allocate(insert), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn limits_hold_and_are_given_back() {
        let limits = Limits::new(2, 4 * BLOCK);
        let (mut one, mut two) = (file(&limits), file(&limits));
        assert_eq!(limits.contents().map(drop), Err(Errno::NOSPC));
        one.write(0, &[1; 3 * BLOCK as usize]).unwrap();
        assert_eq!(two.write(0, &[2; 2 * BLOCK as usize]), Err(Errno::NOSPC));
        assert_eq!((two.attr.size, limits.statfs().free), (0, 1));
        // What is there already takes nothing more.
        one.write(BLOCK, &[3; 3 * BLOCK as usize]).unwrap();
        assert_eq!(one.write(FILE_BYTES_MAX, &[1]), Err(Errno::FBIG));
        assert_eq!(one.truncate(FILE_BYTES_MAX + 1), Err(Errno::FBIG));
        drop(one);
        let left = limits.statfs();
        assert_eq!((left.free, left.blocks), (4, 4));
        assert_eq!((left.files_free, left.files), (1, 2));
        two.write(FILE_BYTES_MAX - 1, &[1]).unwrap();
        assert_eq!(two.attr.size, FILE_BYTES_MAX);
    }
}
