//! Each kind of answer as a flat structure.

use std::ffi::c_int;
use std::time::Duration;

use bickford::abi::{AttrFlags, OpenOutFlags};
use bickford::ops::{
    Attr, Attributes, Block, Copied, Created, Data, Directory, Entry, IoctlAnswer, Lock, Offset,
    Opened, PollAnswer, StatfsAnswer, StatxAnswer, Target, Written, XattrAnswer,
};
use bickford::{Errno, FileHandle, Generation, NodeId};

use crate::abi::*;
use crate::answer::{Buffer, Exposed, FlatAnswer, FromFlat};
use crate::parameters::{from_kind, from_time, to_kind, to_time};

/// Longest target of a symbolic link (`PATH_MAX`).
const TARGET_MAX: u64 = 4096;

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn to_attr(attr: &Attr) -> bickford_attr {
    bickford_attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        accessed: to_time(attr.accessed),
        modified: to_time(attr.modified),
        changed: to_time(attr.changed),
        mode: attr.mode,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: attr.block_size,
        flags: attr.flags.bits(),
        reserved: 0,
    }
}

pub(crate) fn from_attr(attr: &bickford_attr) -> Attr {
    Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        accessed: from_time(attr.accessed),
        modified: from_time(attr.modified),
        changed: from_time(attr.changed),
        mode: attr.mode,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: attr.block_size,
        flags: AttrFlags::from_bits_retain(attr.flags),
    }
}

fn put_entry(answer: &mut bickford_answer, entry: &Entry) {
    answer.node = entry.node.0;
    answer.generation = entry.generation.0;
    answer.entry_valid = nanoseconds(entry.entry_valid);
    answer.attr_valid = nanoseconds(entry.attr_valid);
    answer.attr = to_attr(&entry.attr);
}

pub(crate) fn entry(answer: &bickford_answer) -> Entry {
    Entry {
        node: NodeId(answer.node),
        generation: Generation(answer.generation),
        attr: from_attr(&answer.attr),
        entry_valid: Duration::from_nanos(answer.entry_valid),
        attr_valid: Duration::from_nanos(answer.attr_valid),
    }
}

fn put_opened(answer: &mut bickford_answer, opened: &Opened) {
    answer.handle = opened.handle.0;
    answer.open_flags = opened.flags.bits();
    answer.backing = opened.backing_id;
}

fn opened(answer: &bickford_answer) -> Opened {
    Opened {
        handle: FileHandle(answer.handle),
        flags: OpenOutFlags::from_bits_retain(answer.open_flags),
        backing_id: answer.backing,
    }
}

/// Answers without data: `answer type: |flat| value, |value, flat| writes it;`
macro_rules! flat {
    ($($answer:ty: $from:expr, $to:expr;)+) => {
        $(impl FromFlat for $answer {
            unsafe fn from_flat(
                answer: &bickford_answer,
                _: &bickford_request,
                _: Buffer,
            ) -> Result<Self, Errno> {
                let from: fn(&bickford_answer) -> Self = $from;
                Ok(from(answer))
            }
        }

        impl FlatAnswer for $answer {
            fn expose(
                self,
                answer: &mut bickford_answer,
                _: bool,
            ) -> Result<Exposed<Self>, Errno> {
                let to: fn(Self, &mut bickford_answer) = $to;
                to(self, answer);
                Ok(Exposed::flat())
            }
        })+
    };
}

flat! {
    (): |_| (), |(), _| ();
    Entry: entry, |value, answer| put_entry(answer, &value);
    Opened: opened, |value, answer| put_opened(answer, &value);
    Attributes: |answer| Attributes {
        attr: from_attr(&answer.attr),
        valid: Duration::from_nanos(answer.attr_valid),
    }, |value, answer| {
        answer.attr = to_attr(&value.attr);
        answer.attr_valid = nanoseconds(value.valid);
    };
    Created: |answer| Created { entry: entry(answer), opened: opened(answer) }, |value, answer| {
        put_entry(answer, &value.entry);
        put_opened(answer, &value.opened);
    };
    Written: |answer| Written(u32::try_from(answer.count).unwrap_or(u32::MAX)),
        |value, answer| answer.count = u64::from(value.0);
    Copied: |answer| Copied(answer.count), |value, answer| answer.count = value.0;
    Offset: |answer| Offset(answer.count), |value, answer| answer.count = value.0;
    Block: |answer| Block(answer.count), |value, answer| answer.count = value.0;
    PollAnswer: |answer| PollAnswer(answer.count as u32),
        |value, answer| answer.count = u64::from(value.0);
    Lock: |answer| Lock {
        start: answer.lock_start,
        end: answer.lock_end,
        kind: from_kind(answer.lock_kind),
        pid: answer.lock_pid,
    }, |value, answer| {
        answer.lock_start = value.start;
        answer.lock_end = value.end;
        answer.lock_kind = to_kind(value.kind);
        answer.lock_pid = value.pid;
    };
    StatfsAnswer: |answer| StatfsAnswer {
        blocks: answer.statfs.blocks,
        free: answer.statfs.blocks_free,
        available: answer.statfs.available,
        files: answer.statfs.files,
        files_free: answer.statfs.files_free,
        block_size: answer.statfs.block_size,
        name_max: answer.statfs.name_max,
        fragment_size: answer.statfs.fragment_size,
    }, |value, answer| answer.statfs = bickford_statfs {
        blocks: value.blocks,
        blocks_free: value.free,
        available: value.available,
        files: value.files,
        files_free: value.files_free,
        block_size: value.block_size,
        name_max: value.name_max,
        fragment_size: value.fragment_size,
        reserved: 0,
    };
    StatxAnswer: |answer| StatxAnswer {
        attr: from_attr(&answer.attr),
        born: (answer.has_born != 0).then_some(from_time(answer.born)),
        valid: Duration::from_nanos(answer.attr_valid),
    }, |value, answer| {
        answer.attr = to_attr(&value.attr);
        answer.attr_valid = nanoseconds(value.valid);
        answer.has_born = u32::from(value.born.is_some());
        answer.born = to_time(value.born.unwrap_or_default());
    };
}

impl FromFlat for Data {
    fn room(request: &bickford_request) -> u64 {
        request.size
    }

    unsafe fn from_flat(
        answer: &bickford_answer,
        request: &bickford_request,
        mut buffer: Buffer,
    ) -> Result<Self, Errno> {
        if let Some(mut range) = buffer.range.take() {
            let asked = usize::try_from(request.size).unwrap_or(usize::MAX);
            range.length = range.length.min(asked);
            return Ok(range.into());
        }
        // SAFETY: the caller's promise.
        unsafe { buffer.take(answer) }.map(Self::Bytes)
    }
}

impl FlatAnswer for Data {
    fn expose(self, _: &mut bickford_answer, with_data: bool) -> Result<Exposed<Self>, Errno> {
        if !with_data {
            return Ok(Exposed {
                buffer: Buffer::default(),
                kept: Some(self),
            });
        }
        let bytes = self
            .into_bytes()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Exposed::data(bytes))
    }
}

impl FromFlat for Target {
    fn room(_: &bickford_request) -> u64 {
        TARGET_MAX
    }

    unsafe fn from_flat(
        answer: &bickford_answer,
        _: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        unsafe { buffer.take(answer) }.map(Self)
    }
}

impl FlatAnswer for Target {
    fn expose(self, _: &mut bickford_answer, _: bool) -> Result<Exposed<Self>, Errno> {
        Ok(Exposed::data(self.0))
    }
}

impl FromFlat for XattrAnswer {
    fn room(request: &bickford_request) -> u64 {
        request.size
    }

    unsafe fn from_flat(
        answer: &bickford_answer,
        request: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno> {
        if request.size == 0 {
            let length = answer.count.max(answer.data_length);
            return Ok(Self::Length(u32::try_from(length).unwrap_or(u32::MAX)));
        }
        // SAFETY: the caller's promise.
        let value = unsafe { buffer.take(answer) }?;
        Self::fit(value, u32::try_from(request.size).unwrap_or(u32::MAX))
    }
}

impl FlatAnswer for XattrAnswer {
    fn expose(self, answer: &mut bickford_answer, _: bool) -> Result<Exposed<Self>, Errno> {
        match self {
            Self::Length(length) => {
                answer.count = u64::from(length);
                Ok(Exposed::flat())
            }
            Self::Value(value) => Ok(Exposed::data(value)),
        }
    }

    fn for_size(self, asked: u64) -> Result<Self, Errno> {
        match self {
            Self::Value(value) => Self::fit(value, u32::try_from(asked).unwrap_or(u32::MAX)),
            Self::Length(_) if asked > 0 => {
                tracing::error!("a pre-call asked for the length of a value that the caller wants");
                Err(Errno::IO)
            }
            Self::Length(_) => Ok(self),
        }
    }
}

impl FromFlat for IoctlAnswer {
    fn room(request: &bickford_request) -> u64 {
        request.size
    }

    unsafe fn from_flat(
        answer: &bickford_answer,
        _: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno> {
        Ok(Self {
            result: answer.count as c_int,
            // SAFETY: the caller's promise.
            output: unsafe { buffer.take(answer) }?,
        })
    }
}

impl FlatAnswer for IoctlAnswer {
    fn expose(self, answer: &mut bickford_answer, _: bool) -> Result<Exposed<Self>, Errno> {
        answer.count = u64::from(self.result.cast_unsigned());
        Ok(Exposed::data(self.output))
    }
}

impl FromFlat for Directory {
    fn room(request: &bickford_request) -> u64 {
        request.size
    }

    unsafe fn from_flat(
        answer: &bickford_answer,
        request: &bickford_request,
        buffer: Buffer,
    ) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { buffer.take(answer) }?;
        let length = bytes.len();
        let plus = request.operation == BICKFORD_OP_READDIRPLUS;
        let limit = u32::try_from(request.size).unwrap_or(u32::MAX);
        Self::from_bytes(bytes, limit, plus).ok_or_else(|| {
            tracing::error!(
                bytes = length,
                "a listing is not made of struct fuse_dirent"
            );
            Errno::IO
        })
    }
}

impl FlatAnswer for Directory {
    fn expose(self, _: &mut bickford_answer, _: bool) -> Result<Exposed<Self>, Errno> {
        Ok(Exposed::data(self.as_bytes().to_vec()))
    }
}
