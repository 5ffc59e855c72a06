//! What an operation over paths is about.

use std::ffi::CStr;
use std::path::Path;

use bickford_abi::OpenInFlags;
use rustix::io::Errno;

use crate::FileHandle;
use crate::ops::{Attr, SetTime, Timestamp};

/// A file that an operation is about: by its path, by the handle of an open file, or by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    path: Option<&'a Path>,
    handle: Option<FileHandle>,
}

impl<'a> Subject<'a> {
    /// By a path, a handle, or both.
    #[must_use]
    pub fn new(path: Option<&'a Path>, handle: Option<FileHandle>) -> Self {
        Self { path, handle }
    }

    /// By a path alone.
    #[must_use]
    pub fn of_path(path: &'a Path) -> Self {
        Self::new(Some(path), None)
    }

    /// The path, right for as long as the method runs.
    ///
    /// # Errors
    /// ENOENT where there is none: an open file whose last name was removed, or
    /// [`super::Options::handles_only`].
    pub fn path(&self) -> Result<&'a Path, Errno> {
        self.path.ok_or(Errno::NOENT)
    }

    /// The handle that opening answered with, where the operation comes through an open file, or
    /// the file has no path any more but is open.
    #[must_use]
    pub fn handle(&self) -> Option<FileHandle> {
        self.handle
    }
}

impl<'a> From<&'a Path> for Subject<'a> {
    fn from(path: &'a Path) -> Self {
        Self::of_path(path)
    }
}

impl<'a> From<&'a str> for Subject<'a> {
    fn from(path: &'a str) -> Self {
        Self::of_path(path.as_ref())
    }
}

/// What a new inode is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct New {
    /// Type and permissions; the umask is applied already unless `DONT_MASK` was negotiated.
    pub mode: u32,
    /// Device number in the kernel's 32-bit form, for device nodes.
    pub rdev: u32,
    /// The caller's umask.
    pub umask: u32,
}

impl New {
    /// Of a type and with permissions, and nothing else.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        Self::with_mode(mode, 0, 0)
    }

    pub(crate) fn with_mode(mode: u32, rdev: u32, umask: u32) -> Self {
        Self { mode, rdev, umask }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Open {
    /// Flags of open(2), without O_CREAT, O_EXCL and O_TRUNC.
    pub flags: u32,
    /// Whether opening must clear set-id bits.
    pub open_flags: OpenInFlags,
}

impl Open {
    pub(crate) fn new(flags: u32, open_flags: OpenInFlags) -> Self {
        const DONE: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC).cast_unsigned();
        Self {
            flags: flags & !DONE,
            open_flags,
        }
    }

    /// Whether the file can be written to through this open.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.flags & 3 != 0
    }
}

impl Times {
    pub(crate) fn new(accessed: Option<SetTime>, modified: Option<SetTime>) -> Option<Self> {
        let any = accessed.is_some() || modified.is_some();
        any.then_some(Self { accessed, modified })
    }

    /// Sets the times that are to be set.
    pub fn apply(&self, attr: &mut Attr) {
        let set = |time: &mut Timestamp, to: Option<SetTime>| match to {
            Some(SetTime::Now) => *time = Timestamp::now(),
            Some(SetTime::At(at)) => *time = at,
            None => {}
        };
        set(&mut attr.accessed, self.accessed);
        set(&mut attr.modified, self.modified);
    }
}

/// Times to set; what is `None` stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// Time of the last access.
    pub accessed: Option<SetTime>,
    /// Time of the last change of the contents.
    pub modified: Option<SetTime>,
}

impl From<Times> for rustix::fs::Timestamps {
    /// For utimensat(2) and futimens(3).
    fn from(times: Times) -> Self {
        let timespec = |time: Option<SetTime>| {
            let (tv_sec, tv_nsec) = match time {
                Some(SetTime::At(at)) => (at.seconds, at.nanoseconds.into()),
                Some(SetTime::Now) => (0, rustix::fs::UTIME_NOW),
                None => (0, rustix::fs::UTIME_OMIT),
            };
            rustix::fs::Timespec { tv_sec, tv_nsec }
        };
        Self {
            last_access: timespec(times.accessed),
            last_modification: timespec(times.modified),
        }
    }
}

/// Owner and group to set; what is `None` stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl Owner {
    pub(crate) fn new(uid: Option<u32>, gid: Option<u32>) -> Option<Self> {
        let any = uid.is_some() || gid.is_some();
        any.then_some(Self { uid, gid })
    }
}

/// An extended attribute to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetXattr<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// Its new value.
    pub value: &'a [u8],
    /// `XATTR_CREATE` (1): it must be new; `XATTR_REPLACE` (2): it must not.
    pub flags: u32,
}

impl<'a> SetXattr<'a> {
    /// Sets one, whether it is there or not.
    #[must_use]
    pub fn new(name: &'a CStr, value: &'a [u8]) -> Self {
        Self::with_flags(name, value, 0)
    }

    pub(crate) fn with_flags(name: &'a CStr, value: &'a [u8], flags: u32) -> Self {
        Self { name, value, flags }
    }
}

/// A range to allocate, free, zero or shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allocation {
    /// What to do, of `FALLOC_FL_*`; zero allocates.
    pub mode: u32,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

impl Allocation {
    pub(crate) fn new(mode: u32, offset: u64, length: u64) -> Self {
        Self {
            mode,
            offset,
            length,
        }
    }
}

/// What statx(2) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statx {
    /// How fresh, of `AT_STATX_*`.
    pub flags: u32,
    /// Which fields, of `STATX_*`.
    pub mask: u32,
}

impl Statx {
    pub(crate) fn new(flags: u32, mask: u32) -> Self {
        Self { flags, mask }
    }
}
