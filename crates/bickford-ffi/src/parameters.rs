//! Operations as flat requests, and back after a pre-call changed them.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;

use bickford::abi::{IoctlFlags, OpenInFlags, WriteFlags};
use bickford::ops::{
    Access, Bmap, CopyFileRange, Create, Fallocate, Flush, Fsync, Fsyncdir, Getattr, Getlk,
    Getxattr, Ioctl, Link, Listxattr, Lock, LockKind, Lookup, Lseek, Mkdir, Mknod, Open, Opendir,
    Payload, Poll, PollHandle, Read, Readdir, Readdirplus, Readlink, Release, Releasedir,
    Removexattr, Rename, Rmdir, Setlk, Setxattr, Statfs, Statx, Symlink, Syncfs, Timestamp,
    Tmpfile, Unlink, Write,
};
use bickford::{Errno, FileHandle, LockOwner, NodeId};
use rustix::fs::RenameFlags;

use crate::abi::*;

/// What a pre-call put in place of names and data.
#[derive(Debug, Default)]
pub(crate) struct Changed<'a> {
    name: Option<CString>,
    name2: Option<CString>,
    pub(crate) data: Option<&'a [u8]>,
}

impl<'a> Changed<'a> {
    /// Compares a request before and after a pre-call.
    ///
    /// # Safety
    /// Names and data that changed point to memory that stays as it is during `'a`.
    pub(crate) unsafe fn between(
        before: &bickford_request,
        after: &'a bickford_request,
    ) -> Result<Self, Errno> {
        let name = |old: (*const u8, u64), new: (*const u8, u64)| {
            if old == new {
                return Ok(None);
            }
            // SAFETY: the caller's promise.
            let bytes = unsafe { bytes(new.0, new.1) }?;
            CString::new(bytes).map(Some).map_err(|_| Errno::INVAL)
        };
        let data = if (before.data, before.data_length) == (after.data, after.data_length) {
            None
        } else {
            // SAFETY: the caller's promise.
            Some(unsafe { bytes(after.data, after.data_length) }?)
        };
        Ok(Self {
            name: name(
                (before.name, before.name_length),
                (after.name, after.name_length),
            )?,
            name2: name(
                (before.name2, before.name2_length),
                (after.name2, after.name2_length),
            )?,
            data,
        })
    }

    fn name(&'a self, old: &'a CStr) -> &'a CStr {
        self.name.as_deref().unwrap_or(old)
    }

    fn name2(&'a self, old: &'a CStr) -> &'a CStr {
        self.name2.as_deref().unwrap_or(old)
    }
}

/// Bytes that the other side passed.
///
/// # Safety
/// `start` is null with `length` zero, or points to `length` bytes that stay as they are during
/// `'a`.
pub(crate) unsafe fn bytes<'a>(start: *const u8, length: u64) -> Result<&'a [u8], Errno> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() || length > BICKFORD_DATA_MAX {
        return Err(Errno::INVAL);
    }
    let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// An operation that can be written as a flat request, and read back after changes.
pub(crate) trait Parameters<'a> {
    /// Writes the operation.
    fn fill(&self, request: &mut bickford_request);

    /// Takes over what the request says now.
    fn apply(&mut self, request: &bickford_request, changed: &'a Changed<'a>);

    /// Data that are to be put into the request by whoever wants them there: they may have to be
    /// read from a pipe first, once.
    fn payload(&self) -> Option<io::Result<Cow<'a, [u8]>>> {
        None
    }
}

pub(crate) fn put_name(request: &mut bickford_request, name: &CStr) {
    request.name = name.as_ptr().cast();
    request.name_length = name.count_bytes() as u64;
}

pub(crate) fn put_name2(request: &mut bickford_request, name: &CStr) {
    request.name2 = name.as_ptr().cast();
    request.name2_length = name.count_bytes() as u64;
}

pub(crate) fn put_data(request: &mut bickford_request, data: &[u8]) {
    request.data = data.as_ptr();
    request.data_length = data.len() as u64;
}

pub(crate) fn put_handle(request: &mut bickford_request, handle: Option<FileHandle>) {
    if let Some(handle) = handle {
        request.handle = handle.0;
        request.present |= BICKFORD_HAS_HANDLE;
    }
}

pub(crate) fn has(request: &bickford_request, bit: u32) -> bool {
    request.present & bit != 0
}

pub(crate) fn handle(request: &bickford_request) -> Option<FileHandle> {
    has(request, BICKFORD_HAS_HANDLE).then_some(FileHandle(request.handle))
}

pub(crate) fn put_owner(request: &mut bickford_request, owner: Option<LockOwner>) {
    if let Some(owner) = owner {
        request.lock_owner = owner.0;
        request.present |= BICKFORD_HAS_LOCK_OWNER;
    }
}

pub(crate) fn owner(request: &bickford_request) -> Option<LockOwner> {
    has(request, BICKFORD_HAS_LOCK_OWNER).then_some(LockOwner(request.lock_owner))
}

pub(crate) fn to_time(time: Timestamp) -> bickford_time {
    bickford_time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    }
}

pub(crate) fn from_time(time: bickford_time) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds.min(999_999_999),
    }
}

pub(crate) fn to_kind(kind: LockKind) -> u32 {
    match kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::Unlock => 2,
    }
}

pub(crate) fn from_kind(kind: u32) -> LockKind {
    match kind {
        0 => LockKind::Read,
        1 => LockKind::Write,
        _ => LockKind::Unlock,
    }
}

pub(crate) fn put_lock(request: &mut bickford_request, lock: &Lock) {
    request.lock_start = lock.start;
    request.lock_end = lock.end;
    request.lock_kind = to_kind(lock.kind);
    request.lock_pid = lock.pid;
}

fn lock(request: &bickford_request) -> Lock {
    Lock {
        start: request.lock_start,
        end: request.lock_end,
        kind: from_kind(request.lock_kind),
        pid: request.lock_pid,
    }
}

/// Implements [`Parameters`] for operations whose fields are numbers and names: each field with
/// the expression that makes the flat value of it, and the one that makes it of the flat value. After
/// them, fields that take several flat ones.
macro_rules! parameters {
    ($($operation:ty { $($field:ident <=> $flat:ident: $out:expr, $back:expr);* $(;)? }
        $(@name $name:ident)? $(@name2 $name2:ident)? $(@data $data:ident)?
        $(@handle $handle:ident)? $(@owner $owner:ident)? $(@lock $lock:ident)?)+) => {
        $(impl<'a> Parameters<'a> for $operation {
            fn fill(&self, request: &mut bickford_request) {
                $(request.$flat = ($out)(self.$field);)*
                $(put_name(request, self.$name);)?
                $(put_name2(request, self.$name2);)?
                $(put_data(request, self.$data); request.size = self.$data.len() as u64;)?
                $(put_handle(request, self.$handle);)?
                $(put_owner(request, self.$owner);)?
                $(put_lock(request, &self.$lock);)?
            }

            fn apply(&mut self, request: &bickford_request, changed: &'a Changed<'a>) {
                let _ = changed;
                $(self.$field = ($back)(request.$flat);)*
                $(self.$name = changed.name(self.$name);)?
                $(self.$name2 = changed.name2(self.$name2);)?
                $(self.$data = changed.data.unwrap_or(self.$data);)?
                $(self.$handle = handle(request);)?
                $(self.$owner = owner(request);)?
                $(self.$lock = lock(request);)?
            }
        })+
    };
}

fn same<T>(value: T) -> T {
    value
}

fn node(id: NodeId) -> u64 {
    id.0
}

fn open(handle: FileHandle) -> u64 {
    handle.0
}

fn owned(owner: LockOwner) -> u64 {
    owner.0
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

parameters! {
    Lookup<'a> { parent <=> node: node, NodeId } @name name
    Readlink { node <=> node: node, NodeId }
    Symlink<'a> { parent <=> node: node, NodeId } @name name @name2 target
    Mknod<'a> {
        parent <=> node: node, NodeId;
        mode <=> mode: same, same;
        rdev <=> rdev: same, same;
        umask <=> umask: same, same;
    } @name name
    Mkdir<'a> {
        parent <=> node: node, NodeId;
        mode <=> mode: same, same;
        umask <=> umask: same, same;
    } @name name
    Unlink<'a> { parent <=> node: node, NodeId } @name name
    Rmdir<'a> { parent <=> node: node, NodeId } @name name
    Rename<'a> {
        parent <=> node: node, NodeId;
        new_parent <=> node2: node, NodeId;
        flags <=> flags: |flags: RenameFlags| flags.bits(), RenameFlags::from_bits_retain;
    } @name name @name2 new_name
    Link<'a> {
        node <=> node: node, NodeId;
        new_parent <=> node2: node, NodeId;
    } @name new_name
    Open {
        node <=> node: node, NodeId;
        flags <=> flags: same, same;
        open_flags <=> flags2: |flags: OpenInFlags| flags.bits(), OpenInFlags::from_bits_retain;
    }
    Getattr { node <=> node: node, NodeId } @handle handle
    Statx {
        node <=> node: node, NodeId;
        flags <=> flags: same, same;
        mask <=> flags2: same, same;
    } @handle handle
    Read {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        offset <=> offset: same, same;
        size <=> size: u64::from, narrow;
        flags <=> flags: same, same;
    } @owner lock_owner
    Statfs { node <=> node: node, NodeId }
    Fsync {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        data_only <=> flags2: u32::from, |flags| flags & 1 != 0;
    }
    Fsyncdir {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        data_only <=> flags2: u32::from, |flags| flags & 1 != 0;
    }
    Setxattr<'a> {
        node <=> node: node, NodeId;
        flags <=> flags: same, same;
        kill_sgid <=> flags2: u32::from, |flags| flags & 1 != 0;
    } @name name @data value
    Getxattr<'a> {
        node <=> node: node, NodeId;
        size <=> size: u64::from, narrow;
    } @name name
    Listxattr {
        node <=> node: node, NodeId;
        size <=> size: u64::from, narrow;
    }
    Removexattr<'a> { node <=> node: node, NodeId } @name name
    Flush {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        lock_owner <=> lock_owner: owned, LockOwner;
    }
    Release {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        flags <=> flags: same, same;
        flock <=> flags2: u32::from, |flags| flags & 1 != 0;
        lock_owner <=> lock_owner: owned, LockOwner;
    }
    Opendir {
        node <=> node: node, NodeId;
        flags <=> flags: same, same;
    }
    Readdir {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        offset <=> offset: same, same;
        size <=> size: u64::from, narrow;
    }
    Readdirplus {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        offset <=> offset: same, same;
        size <=> size: u64::from, narrow;
    }
    Releasedir {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
    }
    Getlk {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        owner <=> lock_owner: owned, LockOwner;
    } @lock lock
    Access {
        node <=> node: node, NodeId;
        mask <=> flags: same, same;
    }
    Create<'a> {
        parent <=> node: node, NodeId;
        mode <=> mode: same, same;
        umask <=> umask: same, same;
        flags <=> flags: same, same;
        open_flags <=> flags2: |flags: OpenInFlags| flags.bits(), OpenInFlags::from_bits_retain;
    } @name name
    Bmap {
        node <=> node: node, NodeId;
        block <=> offset: same, same;
        block_size <=> size: u64::from, narrow;
    }
    Fallocate {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        offset <=> offset: same, same;
        length <=> size: same, same;
        mode <=> flags: same, same;
    }
    Lseek {
        node <=> node: node, NodeId;
        handle <=> handle: open, FileHandle;
        offset <=> offset: same, same;
        whence <=> flags: same, same;
    }
    CopyFileRange {
        node_in <=> node: node, NodeId;
        handle_in <=> handle: open, FileHandle;
        offset_in <=> offset: same, same;
        node_out <=> node2: node, NodeId;
        handle_out <=> handle2: open, FileHandle;
        offset_out <=> offset2: same, same;
        length <=> size: same, same;
        flags <=> flags: narrow, u64::from;
    }
    Syncfs { node <=> node: node, NodeId }
    Tmpfile {
        parent <=> node: node, NodeId;
        mode <=> mode: same, same;
        umask <=> umask: same, same;
        flags <=> flags: same, same;
    }
}

impl<'a> Parameters<'a> for Write<'a> {
    fn fill(&self, request: &mut bickford_request) {
        request.node = self.node.0;
        request.handle = self.handle.0;
        request.offset = self.offset;
        request.size = self.data.len() as u64;
        request.flags = self.flags;
        request.flags2 = self.write_flags.bits();
        put_owner(request, self.lock_owner);
    }

    fn apply(&mut self, request: &bickford_request, changed: &'a Changed<'a>) {
        self.node = NodeId(request.node);
        self.handle = FileHandle(request.handle);
        self.offset = request.offset;
        self.flags = request.flags;
        self.write_flags = WriteFlags::from_bits_retain(request.flags2);
        self.lock_owner = owner(request);
        if let Some(data) = changed.data {
            self.data = Payload::from_bytes(data);
        }
    }

    fn payload(&self) -> Option<io::Result<Cow<'a, [u8]>>> {
        Some(self.data.bytes())
    }
}

impl<'a> Parameters<'a> for Setlk {
    fn fill(&self, request: &mut bickford_request) {
        request.node = self.node.0;
        request.handle = self.handle.0;
        request.lock_owner = self.owner.0;
        request.flags2 = u32::from(self.flock) | u32::from(self.wait) << 1;
        put_lock(request, &self.lock);
    }

    fn apply(&mut self, request: &bickford_request, _: &'a Changed<'a>) {
        self.node = NodeId(request.node);
        self.handle = FileHandle(request.handle);
        self.owner = LockOwner(request.lock_owner);
        self.flock = request.flags2 & 1 != 0;
        self.wait = request.flags2 & 2 != 0;
        self.lock = lock(request);
    }
}

impl<'a> Parameters<'a> for Ioctl<'a> {
    fn fill(&self, request: &mut bickford_request) {
        request.node = self.node.0;
        request.handle = self.handle.0;
        request.flags = self.flags.bits();
        request.flags2 = self.command;
        request.offset = self.argument;
        request.size = u64::from(self.output_size);
        put_data(request, self.input);
    }

    fn apply(&mut self, request: &bickford_request, changed: &'a Changed<'a>) {
        self.node = NodeId(request.node);
        self.handle = FileHandle(request.handle);
        self.flags = IoctlFlags::from_bits_retain(request.flags);
        self.command = request.flags2;
        self.argument = request.offset;
        self.output_size = narrow(request.size);
        self.input = changed.data.unwrap_or(self.input);
    }
}

impl<'a> Parameters<'a> for Poll {
    fn fill(&self, request: &mut bickford_request) {
        request.node = self.node.0;
        request.handle = self.handle.0;
        request.flags2 = self.events;
        if let Some(waiter) = self.waiter {
            request.offset = waiter.0;
            request.present |= BICKFORD_HAS_WAITER;
        }
    }

    fn apply(&mut self, request: &bickford_request, _: &'a Changed<'a>) {
        self.node = NodeId(request.node);
        self.handle = FileHandle(request.handle);
        self.events = request.flags2;
        self.waiter = has(request, BICKFORD_HAS_WAITER).then_some(PollHandle(request.offset));
    }
}
