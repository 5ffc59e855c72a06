//! Writing and changing the size: blocks are read, changed and written whole.

use std::collections::BTreeMap;

use bickford::abi::WriteFlags;
use bickford::ops::{Attributes, Setattr};
use bickford::{DetachedContext, Errno, Reply};

use crate::SIZE_MAX;
use crate::block;
use crate::file::{File, Region, damaged};
use crate::geometry::{BLOCK, OVERHEAD, block_length, last_block, lower_length, position};
use crate::queue::run;

/// Blocks that are written at once.
const CHUNK: u64 = 256;
/// How much longer a file may get by one operation beyond what is written: its zeros are encrypted
/// and written.
const GROW_MAX: u64 = 1 << 30;

type Then = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// The number of a block, and its bytes below.
type Block = (u64, Vec<u8>);

/// A block as it was.
struct Old {
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

/// A change of neighbouring blocks.
struct Change {
    /// Not interrupted once something is written, for then all of it is to be, or to be put back.
    file: File,
    /// With its last piece all of it is synced.
    sync: u32,
    /// The caller's context.
    asked: DetachedContext,
    offset: u64,
    data: Vec<u8>,
    /// Sizes of the file before and after.
    size: u64,
    target: u64,
    /// The blocks that are still to be written, from the one that is next to the last one; the last of these
    /// ranges first.
    ranges: Vec<(u64, u64)>,
    /// Blocks before this one may have been written in the place of old ones.
    reached: u64,
    old: BTreeMap<u64, Old>,
    then: Then,
}

impl File {
    /// Writes plaintext at an offset; the file grows with zeros where it ends before. Without data
    /// it only grows.
    pub(crate) fn change(self, offset: u64, data: Vec<u8>, then: Then) {
        let file = self.clone();
        self.size(move |size| match size {
            Ok(size) => file.change_of(size, offset, data, then),
            Err(errno) => then(Err(errno)),
        });
    }

    /// Writes plaintext where the file ends below.
    pub(crate) fn append(self, data: Vec<u8>, then: Then) {
        let file = self.clone();
        self.size(move |size| match size {
            Ok(size) => file.change_of(size, size, data, then),
            Err(errno) => then(Err(errno)),
        });
    }

    fn change_of(mut self, size: u64, offset: u64, data: Vec<u8>, then: Then) {
        let end = offset.saturating_add(data.len() as u64);
        if size > SIZE_MAX {
            return then(Err(damaged(self.node, last_block(size), "the end")));
        }
        if end > SIZE_MAX || offset.saturating_sub(size) > GROW_MAX {
            return then(Err(Errno::FBIG));
        }
        let target = size.max(end);
        let grows = target > size;
        if !grows && data.is_empty() {
            return then(Ok(()));
        }
        let (mut first, mut last) = (offset / BLOCK, end.saturating_sub(1) / BLOCK);
        if grows {
            self.inner.found_longer(self.node);
            first = first.min(last_block(size));
            last = last_block(target);
        }
        // What is not overwritten whole must be known, and the last block always: it tells that the file
        // rightly ended there, which what is written says again. It is put back when growing fails.
        let mut wanted = Vec::new();
        if (first..=last).contains(&last_block(size)) {
            wanted.push(last_block(size));
        }
        for block in [first, last] {
            let begins = block * BLOCK;
            let ends = begins + block_length(block, size) as u64;
            let covered = offset <= begins && ends <= end;
            if ends > begins && !covered && !wanted.contains(&block) {
                wanted.push(block);
            }
        }
        let change = Change {
            asked: self.cx.clone(),
            sync: std::mem::take(&mut self.sync),
            file: self,
            offset,
            data,
            size,
            target,
            // What is new goes first: where there is no space for it, nothing old was touched.
            ranges: match last_block(size) {
                end if grows && last > end => vec![(first, end), (end + 1, last)],
                _ => vec![(first, last)],
            },
            reached: 0,
            old: BTreeMap::new(),
            then,
        };
        change.read_old(wanted);
    }

    /// Makes the file shorter. Its new last block is written first, and put back when what follows fails:
    /// what was cut off cannot be.
    pub(crate) fn shrink(self, size: u64, then: Then) {
        let last = last_block(size);
        let length = block_length(last, size);
        let file = self.clone();
        self.read_sealed(last, 1, move |bytes| match bytes {
            // Killed while it grew, a file has new blocks behind the one that still is its last.
            Ok(bytes) if file.ended_with(last, length, &bytes) => {
                file.resize_below(lower_length(size), then);
            }
            bytes => {
                let region = bytes.and_then(|bytes| file.decrypt(last, 1, bytes));
                file.shorten(size, region, then);
            }
        });
    }

    /// Whether the file once ended with a block that has `length` bytes and begins these.
    fn ended_with(&self, block: u64, length: usize, bytes: &[u8]) -> bool {
        let sealed = bytes.get(..length + OVERHEAD as usize);
        let open = |sealed| block::open(&self.inner.keys, &self.id, block, true, sealed);
        sealed.is_some_and(|sealed| open(sealed).is_ok())
    }

    /// Ends the file within its block that was read.
    fn shorten(self, size: u64, region: Result<Region, Errno>, then: Then) {
        let last = last_block(size);
        let length = block_length(last, size);
        match region {
            Ok(region) if region.plain.len() >= length => {
                let mut plain = region.plain;
                plain.truncate(length);
                self.cut(size, plain, vec![(last, region.sealed)], then);
            }
            // Nothing is kept of it, and it may be damaged.
            _ if size == 0 => self.cut(size, Vec::new(), Vec::new(), then),
            Ok(_) => then(Err(damaged(self.node, last, "a block"))),
            Err(errno) => then(Err(errno)),
        }
    }

    /// Ends the file with `plain` in the place of its block `old`.
    fn cut(self, size: u64, plain: Vec<u8>, old: Vec<Block>, then: Then) {
        let last = last_block(size);
        let sealed = block::seal(&self.inner.keys, &self.id, last, true, &plain);
        let Ok(sealed) = sealed else {
            return then(Err(Errno::IO));
        };
        let file = self.uninterrupted();
        let cut = file.clone();
        cut.write_below(position(last), &sealed, move |written| {
            if let Err(errno) = written {
                return file.put_back(old, errno, then);
            }
            let resized = file.clone();
            file.resize_below(lower_length(size), move |result| match result {
                Ok(()) => then(Ok(())),
                Err(errno) => resized.put_back(old, errno, then),
            });
        });
    }

    /// Writes blocks as they were before a change that failed with `errno`, the last one first.
    fn put_back(self, mut old: Vec<Block>, errno: Errno, then: Then) {
        let Some((block, sealed)) = old.pop() else {
            return then(Err(errno));
        };
        let file = self.clone();
        self.write_below(position(block), &sealed, move |written| {
            if let Err(error) = written {
                tracing::error!(
                    layer = "crypt",
                    node = file.node.0,
                    block,
                    "a block could not be put back: {error}"
                );
            }
            file.put_back(old, errno, then);
        });
    }

    /// Makes the file below end at `length` where it is longer.
    fn end_at(self, length: u64, then: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let file = self.clone();
        self.length_below(move |now| match now {
            Ok(now) if now > length => file.resize_below(length, then),
            now => then(now.map(|_| ())),
        });
    }

    /// Sets the length of the file below.
    pub(crate) fn resize_below(
        &self,
        length: u64,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let mut op = Setattr::resize(self.node, Some(self.handle), length);
        op.kill_suidgid = self.flags.contains(WriteFlags::KILL_SUIDGID);
        let reply =
            Reply::intercept(move |result: Result<Attributes, Errno>| then(result.map(|_| ())));
        self.inner.lower.0.setattr(&self.cx.context(), op, reply);
    }
}

impl Change {
    fn read_old(mut self, mut wanted: Vec<u64>) {
        let Some(block) = wanted.pop() else {
            self.file = self.file.uninterrupted();
            return self.write_chunk();
        };
        let file = self.file.clone();
        file.read_blocks(block, 1, move |region| match region {
            Ok(region) if region.plain.len() == block_length(block, self.size) => {
                let old = Old {
                    plain: region.plain,
                    sealed: region.sealed,
                };
                self.old.insert(block, old);
                self.read_old(wanted);
            }
            Ok(_) => (self.then)(Err(damaged(self.file.node, block, "a block"))),
            Err(errno) => (self.then)(Err(errno)),
        });
    }

    /// A block as it is to be.
    fn plain(&self, block: u64) -> Vec<u8> {
        let mut plain = vec![0; block_length(block, self.target)];
        if let Some(old) = self.old.get(&block) {
            let kept = plain.len().min(old.plain.len());
            if let (Some(to), Some(from)) = (plain.get_mut(..kept), old.plain.get(..kept)) {
                to.copy_from_slice(from);
            }
        }
        let begins = block * BLOCK;
        let from = self.offset.max(begins);
        let to = (self.offset + self.data.len() as u64).min(begins + plain.len() as u64);
        if from < to {
            let range = |base: u64| {
                let at = |offset: u64| usize::try_from(offset - base).unwrap_or(usize::MAX);
                at(from)..at(to)
            };
            let room = plain.get_mut(range(begins));
            let data = self.data.get(range(self.offset));
            if let (Some(room), Some(data)) = (room, data) {
                room.copy_from_slice(data);
            }
        }
        plain
    }

    fn write_chunk(mut self) {
        let Some((first, last)) = self.ranges.pop() else {
            return (self.then)(Ok(()));
        };
        // What only grows may take long, and is undone: nothing old was overwritten.
        if self.data.is_empty() && self.reached == 0 && self.asked.context().interrupt().is_raised()
        {
            return self.undo(Errno::INTR);
        }
        let end = (last + 1).min(first + CHUNK);
        if end <= last {
            self.ranges.push((end, last));
        }
        let mut sealed = Vec::new();
        for block in first..end {
            let last = block == last_block(self.target);
            let plain = self.plain(block);
            let (keys, id) = (&self.file.inner.keys, &self.file.id);
            match block::seal(keys, id, block, last, &plain) {
                Ok(bytes) => sealed.extend_from_slice(&bytes),
                Err(_) => return self.undo(Errno::IO),
            }
        }
        if first <= last_block(self.size) {
            self.reached = end;
        }
        let mut file = self.file.clone();
        if self.ranges.is_empty() {
            file.sync = self.sync;
        }
        file.write_below(position(first), &sealed, move |written| match written {
            Ok(()) => run(move || self.write_chunk()),
            Err(errno) => self.undo(errno),
        });
    }

    /// Writing failed: the file ends where it ended, which also gives space back, and blocks of which something
    /// was to be kept are as they were.
    fn undo(self, errno: Errno) {
        let reached = self.reached;
        let old = self.old.into_iter().filter(|(block, _)| *block < reached);
        let old: Vec<_> = old.map(|(block, old)| (block, old.sealed)).collect();
        let (file, then) = (self.file, self.then);
        let node = file.node.0;
        let ending = file.clone();
        ending.end_at(lower_length(self.size), move |ended| {
            if let Err(error) = ended {
                tracing::error!(
                    layer = "crypt",
                    node,
                    "the end of a file could not be put back: {error}"
                );
            }
            file.put_back(old, errno, then);
        });
    }
}
