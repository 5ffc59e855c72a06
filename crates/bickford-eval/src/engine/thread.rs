//! One thread of a workload: its flow operations, over and over.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::files::write;
use super::{Backend, Block, OPS, Pool, Shared, Tally, op_index, pattern};
use crate::sys;
use crate::wml::{Op, Thread, Workload};

/// The largest buffer of a thread; a larger I/O takes several calls.
const BUFFER_MAX: u64 = 64 << 20;
/// What is read at once where no set has a size, so that files have what was appended to them.
const GROWN: u64 = 64 << 10;

/// An open file: which of which set, and its descriptor (none with the null backend).
struct Handle {
    fileset: usize,
    index: u32,
    file: Option<File>,
}

/// What an operation came to.
enum Step {
    /// Done, with so many bytes moved.
    Done(u64),
    /// There is no file left to do it on: the thread ends.
    NothingLeft,
}

/// One thread, with its buffer.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    handles: Vec<Option<Handle>>,
    rotors: Vec<usize>,
    random: fastrand::Rng,
    buffer: Block,
    path: String,
}

pub(super) fn run(mut worker: Worker<'_>, thread: &Thread) -> Result<Tally, String> {
    let shared = worker.shared;
    let mut tally = Tally::default();
    let limits: Vec<u64> = thread
        .flowops
        .iter()
        .filter_map(|f| match f.op {
            Op::FinishOnCount { value } => Some(value),
            _ => None,
        })
        .collect();
    'turns: while !shared.stop.load(Ordering::Relaxed) {
        for flowop in &thread.flowops {
            let Some(kind) = op_index(&flowop.op) else {
                continue;
            };
            for _ in 0..flowop.iters {
                if shared.stop.load(Ordering::Relaxed) {
                    break 'turns;
                }
                let begun = Instant::now();
                let step = worker
                    .step(&flowop.op)
                    .map_err(|e| worker.describe(kind, &e))?;
                let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let Step::Done(bytes) = step else {
                    tally.idle = tally.is_empty().into();
                    break 'turns;
                };
                tally.record(kind, took)?;
                tally.bytes += bytes;
                let done = shared.operations.fetch_add(1, Ordering::Relaxed) + 1;
                if limits.iter().any(|limit| done >= *limit) {
                    break 'turns;
                }
            }
        }
    }
    for fd in 0..worker.handles.len() {
        worker
            .close(fd)
            .map_err(|e| format!("{} at the end: {e}", worker.path))?;
    }
    if shared.workload.quit_first_done {
        shared.stop.store(true, Ordering::Relaxed);
    }
    Ok(tally)
}

/// Bytes of a thread's buffer.
pub(super) fn buffer_size(workload: &Workload, thread: &Thread) -> u64 {
    let largest = workload
        .filesets
        .iter()
        .map(|s| s.size)
        .max()
        .filter(|size| *size > 0)
        .unwrap_or(GROWN);
    let of = |op: &Op| match op {
        Op::WriteWholeFile { iosize, .. } | Op::ReadWholeFile { iosize, .. } => {
            if *iosize == 0 {
                largest
            } else {
                (*iosize).min(largest)
            }
        }
        Op::Append { iosize, .. } => *iosize,
        _ => 0,
    };
    let most = thread.flowops.iter().map(|f| of(&f.op)).max().unwrap_or(0);
    // Files may have grown by appends; a read of more than the buffer takes several turns.
    most.clamp(1, BUFFER_MAX)
}

/// What of the buffer, which is as large as the thread's largest I/O, one call takes: `iosize` bytes of it, and all of
/// it where that is 0.
fn piece(iosize: u64, buffer: &mut [u8]) -> &mut [u8] {
    let size = match usize::try_from(iosize) {
        Ok(size @ 1..) => size.min(buffer.len()),
        _ => buffer.len(),
    };
    buffer.get_mut(..size).unwrap_or_default()
}

fn handle(handles: &mut [Option<Handle>], fd: usize) -> io::Result<&mut Handle> {
    let open = handles.get_mut(fd).and_then(Option::as_mut);
    open.ok_or_else(|| {
        io::Error::other(format!(
            "descriptor {fd} is not open at this point of the workload"
        ))
    })
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, thread: &Thread, number: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(number);
        let sets = shared.workload.filesets.iter();
        Self {
            shared,
            handles: (0..64).map(|_| None).collect(),
            rotors: sets
                .map(|s| random.usize(..s.entries.max(1) as usize))
                .collect(),
            random,
            buffer: pattern(buffer_size(shared.workload, thread) as usize),
            path: String::new(),
        }
    }

    fn describe(&self, kind: usize, error: &io::Error) -> String {
        format!(
            "{} {}: {error}",
            OPS.get(kind).copied().unwrap_or("operation"),
            self.path
        )
    }

    fn name(&mut self, fileset: usize, index: u32) {
        if let Some(tree) = self.shared.trees.get(fileset) {
            tree.path(&mut self.path, self.shared.root, index);
        }
    }

    fn step(&mut self, op: &Op) -> io::Result<Step> {
        match op {
            Op::CreateFile { fileset, fd } => self.create(*fileset, *fd),
            Op::OpenFile { fileset, fd } => self.open(*fileset, *fd),
            Op::WriteWholeFile { fd, iosize } => self.write_whole(*fd, *iosize),
            Op::ReadWholeFile { fd, iosize } => self.read_whole(*fd, *iosize),
            Op::Append {
                fd,
                iosize,
                fileset,
                random,
            } => self.append(*fd, *iosize, *fileset, *random),
            Op::CloseFile { fd } => {
                handle(&mut self.handles, *fd)?;
                self.close(*fd)?;
                Ok(Step::Done(0))
            }
            Op::DeleteFile { fileset } => self.delete(*fileset),
            Op::StatFile { fileset } => self.stat(*fileset),
            Op::Fsync { fd } => {
                if let Some((file, _)) = self.file(*fd)? {
                    file.sync_all()?;
                }
                Ok(Step::Done(0))
            }
            Op::FinishOnCount { .. } | Op::OpsLimit => Ok(Step::Done(0)),
        }
    }

    /// Closes what is open in a slot, if anything is. After an error `path` names it.
    fn close(&mut self, fd: usize) -> io::Result<()> {
        let Some(handle) = self.handles.get_mut(fd).and_then(Option::take) else {
            return Ok(());
        };
        let closed = handle.file.map_or(Ok(()), sys::close);
        if let Some(pool) = self.shared.pools.get(handle.fileset) {
            pool.release(handle.index);
        }
        closed.inspect_err(|_| self.name(handle.fileset, handle.index))
    }

    fn put(&mut self, fd: usize, fileset: usize, index: u32, file: Option<File>) -> io::Result<()> {
        self.close(fd)?;
        if let Some(slot) = self.handles.get_mut(fd) {
            *slot = Some(Handle {
                fileset,
                index,
                file,
            });
        }
        Ok(())
    }

    /// A file of the set that exists, taken by [`Pool::hold_existing`] or [`Pool::take_existing`] and named in
    /// `path`; `None` where there is none left.
    fn existing(
        &mut self,
        fileset: usize,
        take: fn(&Pool, &mut usize) -> Option<u32>,
    ) -> Option<(&'a Pool, u32)> {
        let pool = self.shared.pools.get(fileset)?;
        let index = take(pool, self.rotors.get_mut(fileset)?)?;
        self.name(fileset, index);
        Some((pool, index))
    }

    /// What is open in a slot, and the buffer; `None` with the null backend.
    fn file(&mut self, fd: usize) -> io::Result<Option<(&mut File, &mut [u8])>> {
        let file = handle(&mut self.handles, fd)?.file.as_mut();
        Ok(file.zip(Some(&mut *self.buffer)))
    }

    /// Opens what `path` names, with the null backend nothing.
    fn opened(&self, options: &OpenOptions) -> io::Result<Option<File>> {
        let posix = self.shared.backend == Backend::Posix;
        posix.then(|| options.open(&self.path)).transpose()
    }

    fn create(&mut self, fileset: usize, fd: usize) -> io::Result<Step> {
        let pool = self.shared.pools.get(fileset);
        let Some((pool, index)) = pool.and_then(|pool| Some((pool, pool.take_missing()?))) else {
            return Ok(Step::NothingLeft);
        };
        self.name(fileset, index);
        let file = self.opened(OpenOptions::new().read(true).write(true).create_new(true))?;
        pool.created(index);
        self.put(fd, fileset, index, file)?;
        Ok(Step::Done(0))
    }

    fn open(&mut self, fileset: usize, fd: usize) -> io::Result<Step> {
        let Some((_, index)) = self.existing(fileset, Pool::hold_existing) else {
            return Ok(Step::NothingLeft);
        };
        let file = self.opened(OpenOptions::new().read(true).write(true))?;
        self.put(fd, fileset, index, file)?;
        Ok(Step::Done(0))
    }

    fn write_whole(&mut self, fd: usize, iosize: u64) -> io::Result<Step> {
        let fileset = handle(&mut self.handles, fd)?.fileset;
        let size = self
            .shared
            .workload
            .filesets
            .get(fileset)
            .map_or(0, |s| s.size);
        let Some((file, buffer)) = self.file(fd)? else {
            return Ok(Step::Done(size));
        };
        file.seek(SeekFrom::Start(0))?;
        write(file, size, piece(iosize, buffer))?;
        Ok(Step::Done(size))
    }

    fn read_whole(&mut self, fd: usize, iosize: u64) -> io::Result<Step> {
        let Some((file, buffer)) = self.file(fd)? else {
            return Ok(Step::Done(0));
        };
        file.seek(SeekFrom::Start(0))?;
        let part = piece(iosize, buffer);
        let mut bytes = 0;
        loop {
            let count = file.read(part)?;
            if count == 0 {
                return Ok(Step::Done(bytes));
            }
            bytes += count as u64;
        }
    }

    fn append(
        &mut self,
        fd: usize,
        iosize: u64,
        fileset: Option<usize>,
        random: bool,
    ) -> io::Result<Step> {
        if let (None, Some(fileset)) = (self.handles.get(fd).and_then(Option::as_ref), fileset)
            && let Step::NothingLeft = self.open(fileset, fd)?
        {
            return Ok(Step::NothingLeft);
        }
        let size = if random {
            self.random.u64(1..=iosize.max(1))
        } else {
            iosize
        };
        if let Some((file, buffer)) = self.file(fd)? {
            file.seek(SeekFrom::End(0))?;
            write(file, size, buffer)?;
        }
        Ok(Step::Done(size))
    }

    fn delete(&mut self, fileset: usize) -> io::Result<Step> {
        let Some((pool, index)) = self.existing(fileset, Pool::take_existing) else {
            return Ok(Step::NothingLeft);
        };
        if self.shared.backend == Backend::Posix {
            fs::remove_file(&self.path)?;
        }
        pool.deleted(index);
        Ok(Step::Done(0))
    }

    fn stat(&mut self, fileset: usize) -> io::Result<Step> {
        let Some((pool, index)) = self.existing(fileset, Pool::hold_existing) else {
            return Ok(Step::NothingLeft);
        };
        let result = match self.shared.backend {
            Backend::Posix => fs::metadata(&self.path).map(|_| Step::Done(0)),
            Backend::Null => Ok(Step::Done(0)),
        };
        pool.release(index);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_its_own_size_and_not_that_of_the_largest() {
        let of = |iosize| piece(iosize, &mut [0; 1024]).len();
        assert_eq!([of(4), of(0), of(4096)], [4, 1024, 1024]);
    }
}
