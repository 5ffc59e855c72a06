//! Operations that a layer asks of the file system below on its own account.

use std::ffi::CStr;

use bickford_abi::{OpenInFlags, WriteFlags};

use crate::ops::{Create, Getattr, Open, Payload, Read, Release, Setattr, Unlink, Write};
use crate::{FileHandle, LockOwner, NodeId};

impl Getattr {
    /// Asks for the attributes of an inode.
    #[must_use]
    pub fn new(node: NodeId, handle: Option<FileHandle>) -> Self {
        Self { node, handle }
    }
}

impl Setattr {
    /// Changes the size of a file and nothing else.
    #[must_use]
    pub fn resize(node: NodeId, handle: Option<FileHandle>, size: u64) -> Self {
        Self {
            node,
            handle,
            mode: None,
            uid: None,
            gid: None,
            size: Some(size),
            accessed: None,
            modified: None,
            changed: None,
            lock_owner: None,
            kill_suidgid: false,
        }
    }
}

impl Open {
    /// Opens a file with flags of open(2).
    #[must_use]
    pub fn new(node: NodeId, flags: u32) -> Self {
        Self {
            node,
            flags,
            open_flags: OpenInFlags::empty(),
        }
    }
}

impl Release {
    /// Ends an open file.
    #[must_use]
    pub fn new(node: NodeId, handle: FileHandle, flags: u32) -> Self {
        Self {
            node,
            handle,
            flags,
            lock_owner: LockOwner(0),
            flock: false,
        }
    }
}

impl Read {
    /// Reads `size` bytes from `offset` on.
    #[must_use]
    pub fn new(node: NodeId, handle: FileHandle, offset: u64, size: u32) -> Self {
        Self {
            node,
            handle,
            offset,
            size,
            flags: 0,
            lock_owner: None,
        }
    }
}

impl<'a> Write<'a> {
    /// Writes bytes at `offset`.
    #[must_use]
    pub fn new(node: NodeId, handle: FileHandle, offset: u64, data: &'a [u8]) -> Self {
        Self {
            node,
            handle,
            offset,
            data: Payload::from_bytes(data),
            flags: 0,
            write_flags: WriteFlags::empty(),
            lock_owner: None,
        }
    }
}

impl<'a> Create<'a> {
    /// Makes a regular file and opens it with flags of open(2).
    #[must_use]
    pub fn new(parent: NodeId, name: &'a CStr, mode: u32, umask: u32, flags: u32) -> Self {
        Self {
            parent,
            name,
            mode,
            umask,
            flags,
            open_flags: OpenInFlags::empty(),
        }
    }
}

impl<'a> Unlink<'a> {
    /// Removes a name of anything but a directory.
    #[must_use]
    pub fn new(parent: NodeId, name: &'a CStr) -> Self {
        Self { parent, name }
    }
}
