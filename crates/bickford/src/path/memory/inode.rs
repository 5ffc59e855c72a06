//! An inode in memory.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};

use super::Xattrs;
use crate::Result;
use crate::ops::{Attr, Timestamp};
use crate::path::{Owner, SetXattr, Times};

/// An inode, and what the file system keeps of it.
#[derive(Clone, Debug)]
pub struct Inode<T> {
    /// Its attributes. Number and links are the tree's to change.
    pub attr: Attr,
    /// When it was made.
    pub born: Timestamp,
    /// What a symbolic link says.
    pub target: Vec<u8>,
    /// Its extended attributes.
    pub xattrs: Xattrs,
    /// What the file system keeps of it.
    pub data: T,
    pub(super) children: BTreeMap<OsString, u64>,
    pub(super) opens: u64,
}

impl<T> Inode<T> {
    pub(super) fn new(attr: Attr, data: T) -> Self {
        Self {
            attr,
            born: attr.changed,
            target: Vec::new(),
            xattrs: Xattrs::default(),
            data,
            children: BTreeMap::new(),
            opens: 0,
        }
    }

    /// Its attributes with the time of its birth (statx(2)).
    #[must_use]
    pub fn dated(&self) -> (Attr, Option<Timestamp>) {
        (self.attr, Some(self.born))
    }

    /// Sets the time of its last change.
    pub fn touch(&mut self) {
        self.attr.changed = Timestamp::now();
    }

    /// Sets the times of its last change and of that of its contents.
    pub fn touch_contents(&mut self) {
        self.touch();
        self.attr.modified = self.attr.changed;
    }

    /// Sets permissions; the type stays (chmod(2)).
    pub fn chmod(&mut self, permissions: u32) {
        self.attr.mode = self.attr.file_type() | (permissions & 0o7777);
        self.touch();
    }

    /// Sets owner and group (chown(2)).
    pub fn chown(&mut self, owner: Owner) {
        self.attr.uid = owner.uid.unwrap_or(self.attr.uid);
        self.attr.gid = owner.gid.unwrap_or(self.attr.gid);
        self.touch();
    }

    /// Sets times (utimensat(2)).
    pub fn utimens(&mut self, times: Times) {
        times.apply(&mut self.attr);
        self.touch();
    }

    /// Sets an extended attribute (setxattr(2)).
    ///
    /// # Errors
    /// As [`Xattrs::set`].
    pub fn set_xattr(&mut self, xattr: SetXattr<'_>) -> Result<()> {
        self.xattrs.set(xattr)?;
        self.touch();
        Ok(())
    }

    /// Removes an extended attribute (removexattr(2)).
    ///
    /// # Errors
    /// As [`Xattrs::remove`].
    pub fn remove_xattr(&mut self, name: &CStr) -> Result<()> {
        self.xattrs.remove(name)?;
        self.touch();
        Ok(())
    }
}
