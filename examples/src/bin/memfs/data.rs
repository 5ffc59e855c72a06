//! Reading, writing, and changing the size of files.

use bickford::Errno;
use bickford::ops::{Data, SetTime, Timestamp};
use rustix::fs::FallocateFlags;

use crate::CAPACITY;
use crate::contents::BLOCK;
use crate::store::Store;

/// Offsets beyond this are refused, as by a file system of a disk.
const SIZE_MAX: u64 = 1 << 42;

fn end_of(offset: u64, length: u64) -> Result<u64, Errno> {
    offset
        .checked_add(length)
        .filter(|end| *end <= SIZE_MAX)
        .ok_or(Errno::FBIG)
}

fn check_room(store: &Store, blocks: u64) -> Result<(), Errno> {
    match store.used + blocks <= CAPACITY / BLOCK {
        true => Ok(()),
        false => Err(Errno::NOSPC),
    }
}

pub(crate) fn read(store: &mut Store, ino: u64, offset: u64, size: u32) -> Result<Data, Errno> {
    let node = store.get_mut(ino)?;
    node.attr.accessed = Timestamp::now();
    let length = node.attr.size.saturating_sub(offset).min(u64::from(size));
    Ok(node.contents.read(offset, length as usize).into())
}

pub(crate) fn write(store: &mut Store, ino: u64, offset: u64, bytes: &[u8]) -> Result<u32, Errno> {
    let end = end_of(offset, bytes.len() as u64)?;
    check_room(store, store.get(ino)?.contents.missing(offset, bytes.len()))?;
    store.edit(ino, |contents| contents.write(offset, bytes))?;
    let attr = &mut store.get_mut(ino)?.attr;
    attr.size = attr.size.max(end);
    Ok(bytes.len() as u32)
}

pub(crate) fn truncate(store: &mut Store, ino: u64, size: u64) -> Result<(), Errno> {
    end_of(size, 0)?;
    let before = store.get(ino)?.attr.size;
    store.edit(ino, |contents| contents.clear(size, before.max(size)))?;
    store.get_mut(ino)?.attr.size = size;
    Ok(())
}

/// Blocks are taken when they are written; what can be promised before is that there is room.
pub(crate) fn allocate(
    store: &mut Store,
    ino: u64,
    mode: u32,
    offset: u64,
    length: u64,
) -> Result<(), Errno> {
    let mode = FallocateFlags::from_bits_retain(mode);
    let end = end_of(offset, length)?;
    let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
    match mode.difference(FallocateFlags::KEEP_SIZE) {
        rest if rest.is_empty() => check_room(store, length.div_ceil(BLOCK))?,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE => {
            store.edit(ino, |contents| contents.clear(offset, end))?;
        }
        _ => return Err(Errno::OPNOTSUPP),
    }
    store.changed(ino, true)?;
    let attr = &mut store.get_mut(ino)?.attr;
    if !keep_size {
        attr.size = attr.size.max(end);
    }
    Ok(())
}

pub(crate) fn seek(store: &mut Store, ino: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
    let node = store.get(ino)?;
    let size = node.attr.size;
    if offset >= size {
        return Err(Errno::NXIO);
    }
    match whence {
        3 => node
            .contents
            .seek(offset, true)
            .filter(|at| *at < size)
            .ok_or(Errno::NXIO),
        4 => Ok(node
            .contents
            .seek(offset, false)
            .map_or(size, |at| at.min(size))),
        _ => Err(Errno::INVAL),
    }
}

/// Sets a time, if there is one to set.
pub(crate) fn set_time(time: &mut Timestamp, to: Option<SetTime>) {
    match to {
        Some(SetTime::Now) => *time = Timestamp::now(),
        Some(SetTime::At(at)) => *time = at,
        None => {}
    }
}
