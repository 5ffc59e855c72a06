//! Listings of directories over paths.

use crate::notify::NAME_MAX;
use crate::ops::{Attr, Directory};

/// Bytes of names that one directory may have in memory while it is being listed in one piece.
pub const LISTING_BYTES_MAX: usize = 256 << 20;

/// One name.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Box<[u8]>,
    pub(crate) mode: u32,
    pub(crate) attr: Option<Attr>,
    /// Inode number, also where its attributes are not known; zero where it is not.
    pub(crate) ino: u64,
    pub(crate) offset: u64,
}

impl Name {
    /// See [`Attr::is_of_changing_file`].
    pub(crate) fn leave_out_if_changing(&mut self) {
        self.attr.take_if(|attr| attr.is_of_changing_file());
    }
}

/// Whether a file can have the name.
fn is_name(name: &[u8]) -> bool {
    if name.len() > NAME_MAX {
        let bytes = name.len();
        tracing::warn!("a listing leaves out a name of {bytes} bytes: the longest have {NAME_MAX}");
        return false;
    }
    let possible = !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'/' | 0));
    if !possible {
        let name = String::from_utf8_lossy(name);
        tracing::warn!("a listing leaves out {name:?}: no file has such a name");
    }
    possible
}

/// Whether it is the directory itself, or the one above.
fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// What a directory holds, filled by [`super::FileSystem::readdir`] in one of two ways:
///
/// - In one piece: add every name with [`Listing::add`], [`Listing::add_numbered`] or [`Listing::add_attr`], whatever the
///   offset. The listing is kept for the open directory, so that one who reads it sees each name
///   once even if names come and go meanwhile. A directory that is rewound is listed again. `.`
///   and `..` are there without being added.
/// - In parts, for directories too large for that: add names from [`Listing::offset`] on with
///   [`Listing::add_at`], [`Listing::add_numbered_at`] or [`Listing::add_attr_at`], until it answers false. `.` and `..` are
///   names like others here, and not there unless they are added.
///
/// With attributes a name need not be looked up. In one piece only those of the first answer count, a page or some more
/// (20 to 200 names): what is answered later may have changed since. In parts all do.
///
/// A name that no file can have (empty, with a slash or NUL byte, or longer than [`NAME_MAX`]) is left out,
/// with a line in the log: the listing would end there.
#[derive(Debug)]
pub struct Listing {
    names: Vec<Name>,
    in_parts: bool,
    /// Names are answered with attributes.
    plus: bool,
    offset: u64,
    room: usize,
    /// Of the room.
    taken: usize,
    bytes: usize,
}

impl Listing {
    /// For `room` bytes of names in a listing in parts, with attributes if `plus`.
    pub(crate) fn new(offset: u64, room: u32, plus: bool) -> Self {
        Self {
            names: Vec::new(),
            in_parts: false,
            plus,
            offset,
            room: room as usize,
            taken: 0,
            bytes: 0,
        }
    }

    /// An empty listing of the same part, for whoever fills it elsewhere and puts it in this one's place then.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            names: Vec::new(),
            in_parts: false,
            taken: 0,
            bytes: 0,
            ..*self
        }
    }

    /// Where a listing in parts goes on: zero, or the offset of the name that was read last.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the attributes of the next name would reach the kernel: it does not always ask for them, nor for more than it has
    /// room for. Who pays for them adds the name without where this is false.
    #[must_use]
    pub fn wants_attributes(&self) -> bool {
        self.plus && self.taken < self.room
    }

    /// Bytes of getdents(2) that fill the room, about: names with attributes take some four times as many.
    pub(super) fn dirent_bytes(&self) -> usize {
        if self.plus { self.room / 4 } else { self.room }
    }

    /// Adds a name. Of `mode` only the type counts; zero when it is unknown.
    pub fn add(&mut self, name: impl AsRef<[u8]>, mode: u32) {
        self.push(name.as_ref(), mode, None, 0);
    }

    /// The same with its inode number, which is listed with [`crate::path::Options::use_ino`] (readdir(3) tells it, and so
    /// does `ls -i`). Without it that of a name that nobody has looked up is not known.
    pub fn add_numbered(&mut self, name: impl AsRef<[u8]>, mode: u32, ino: u64) {
        self.push(name.as_ref(), mode, None, ino);
    }

    /// Adds a name with its attributes, which saves the kernel asking for them as far as the first answer goes.
    pub fn add_attr(&mut self, name: impl AsRef<[u8]>, attr: Attr) {
        self.push(name.as_ref(), attr.mode, Some(attr), attr.ino);
    }

    /// Adds a name to a listing in parts; `offset` is where it goes on after this name, and not
    /// zero. Answers false when no more fits, and then the name comes again with the next call.
    #[must_use = "what did not fit must come again with the next call"]
    pub fn add_at(&mut self, name: impl AsRef<[u8]>, mode: u32, offset: u64) -> bool {
        self.push_at(name.as_ref(), mode, None, 0, offset)
    }

    /// The same with its inode number, as [`Listing::add_numbered`] has it.
    #[must_use = "what did not fit must come again with the next call"]
    pub fn add_numbered_at(
        &mut self,
        name: impl AsRef<[u8]>,
        mode: u32,
        ino: u64,
        offset: u64,
    ) -> bool {
        self.push_at(name.as_ref(), mode, None, ino, offset)
    }

    /// The same with its attributes, which saves the kernel asking for them.
    #[must_use = "what did not fit must come again with the next call"]
    pub fn add_attr_at(&mut self, name: impl AsRef<[u8]>, attr: Attr, offset: u64) -> bool {
        self.push_at(name.as_ref(), attr.mode, Some(attr), attr.ino, offset)
    }

    fn push_at(
        &mut self,
        name: &[u8],
        mode: u32,
        attr: Option<Attr>,
        ino: u64,
        offset: u64,
    ) -> bool {
        self.in_parts = true;
        if !is_name(name) {
            return true;
        }
        let size = Directory::size_of(name.len(), self.plus);
        if self.room.saturating_sub(self.taken) < size {
            return false;
        }
        self.taken += size;
        self.names.push(Name {
            name: name.into(),
            mode,
            // The kernel looks up neither, and so forgets neither.
            attr: attr.filter(|_| !is_dots(name)),
            ino,
            offset,
        });
        true
    }

    fn push(&mut self, name: &[u8], mode: u32, attr: Option<Attr>, ino: u64) {
        self.bytes += size_of::<Name>() + name.len();
        if self.bytes > LISTING_BYTES_MAX || is_dots(name) || !is_name(name) {
            return;
        }
        self.taken += Directory::size_of(name.len(), self.plus);
        // The first two offsets are those of `.` and `..`.
        let offset = self.names.len() as u64 + 3;
        self.names.push(Name {
            name: name.into(),
            mode,
            attr,
            ino,
            offset,
        });
    }

    pub(crate) fn is_in_parts(&self) -> bool {
        self.in_parts
    }

    /// Whether there were more names than are kept.
    pub(crate) fn overflowed(&self) -> bool {
        self.bytes > LISTING_BYTES_MAX
    }

    pub(crate) fn into_names(self) -> Vec<Name> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_file_has_are_left_out() {
        let mut whole = Listing::new(0, 4096, false);
        let mut parts = Listing::new(0, 4096, false);
        let long = "n".repeat(NAME_MAX + 1);
        for (number, name) in ["a", "", "b/c", "d\0", &long, "e"].iter().enumerate() {
            whole.add(name, 0);
            assert!(parts.add_at(name, 0, number as u64 + 1));
        }
        for listing in [whole, parts] {
            let names = listing.into_names();
            let names: Vec<_> = names.iter().map(|name| &*name.name).collect();
            assert_eq!(names, [b"a", b"e"]);
        }
    }
}
