//! Listings.

use std::time::Duration;

use bickford_abi as abi;
use zerocopy::{FromBytes, IntoBytes};

use super::{Answer, Attr, Data, Encoder, Encoding, Entry};
use crate::NodeId;

/// One name of a listing (`struct fuse_dirent`).
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// The name, without a slash.
    pub name: &'a [u8],
    /// Its inode number as readdir(3) shows it; zero when unknown.
    pub ino: u64,
    /// Where the listing goes on after this name; the next READDIR brings it back.
    pub offset: u64,
    /// The type: the `S_IFMT` bits of the mode, or zero when unknown.
    pub mode: u32,
}

/// A listing being filled; it takes no more bytes than the kernel asked for. Names are as they come: at one
/// that no file can have (empty, with a slash or NUL byte, or longer than
/// [`NAME_MAX`](crate::notify::NAME_MAX)) the kernel ends the listing.
#[derive(Debug)]
pub struct Directory {
    bytes: Vec<u8>,
    limit: usize,
    plus: bool,
    /// Something in it has several names.
    linked: bool,
}

/// Shown where an inode number is not known: readdir(3) leaves out names that have zero.
const UNKNOWN_INO: u64 = 0xffff_ffff;

/// A larger listing than any kernel asks for; bounds what a wrong request can allocate.
const LISTING_MAX: u32 = 16 << 20;

impl Directory {
    /// An empty listing for at most `limit` bytes. With `plus`, each name comes with an entry.
    #[must_use]
    pub fn new(limit: u32, plus: bool) -> Self {
        let limit = limit.min(LISTING_MAX) as usize;
        Self {
            bytes: Vec::with_capacity(limit.min(64 << 10)),
            limit,
            plus,
            linked: false,
        }
    }

    /// A listing of at most `limit` bytes from its bytes; `None` where they are none.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>, limit: u32, plus: bool) -> Option<Self> {
        let mut listing = Self::new(limit, plus);
        let read = Self {
            bytes,
            ..Self::new(0, plus)
        };
        for (name, entry) in read.iter() {
            if !listing.push_entry(&name, &entry.unwrap_or_default()) {
                return None;
            }
        }
        (listing.bytes.len() == read.bytes.len()).then_some(listing)
    }

    /// Whether names of this listing come with entries (READDIRPLUS).
    #[must_use]
    pub fn is_plus(&self) -> bool {
        self.plus
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether another name of `name_length` bytes fits.
    #[must_use]
    pub fn fits(&self, name_length: usize) -> bool {
        self.bytes.len() + Self::size_of(name_length, self.plus) <= self.limit
    }

    /// Bytes of a name of `name_length` bytes, with an entry or without.
    pub(crate) fn size_of(name_length: usize, plus: bool) -> usize {
        let fixed = if plus {
            size_of::<abi::Direntplus>()
        } else {
            size_of::<abi::Dirent>()
        };
        (fixed + name_length).next_multiple_of(8)
    }

    /// Adds a name, with a negative entry in a listing with entries: the kernel then looks it up
    /// itself. Answers whether it fitted.
    #[must_use = "what did not fit must come again with the next request"]
    pub fn push(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        self.push_entry(entry, &Entry::default())
    }

    /// Adds a name with its entry, which raises the lookup count of its node unless the name is
    /// `.` or `..` or the entry negative. In a listing without entries, the entry is left out.
    /// Answers whether it fitted.
    #[must_use = "what did not fit must come again with the next request"]
    pub fn push_entry(&mut self, name: &DirectoryEntry<'_>, entry: &Entry) -> bool {
        if !self.fits(name.name.len()) {
            return false;
        }
        let end = self.bytes.len() + Self::size_of(name.name.len(), self.plus);
        if self.plus {
            self.linked |= entry.attr.links > 1 && !entry.attr.is_directory();
            self.bytes.extend_from_slice(entry.to_abi().as_bytes());
        }
        let dirent = abi::Dirent {
            ino: if name.ino == 0 { UNKNOWN_INO } else { name.ino },
            off: name.offset,
            namelen: u32::try_from(name.name.len()).unwrap_or(u32::MAX),
            r#type: (name.mode & 0o170_000) >> 12,
        };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name.name);
        self.bytes.resize(end, 0);
        true
    }

    /// The names in it, each with its entry where this is a listing with entries.
    pub fn iter(&self) -> impl Iterator<Item = (DirectoryEntry<'_>, Option<Entry>)> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (entry, tail) = if self.plus {
                let (entry, tail) = abi::EntryOut::read_from_prefix(rest).ok()?;
                (Some(Entry::from_abi(&entry)), tail)
            } else {
                (None, rest)
            };
            let (dirent, tail) = abi::Dirent::read_from_prefix(tail).ok()?;
            let name = tail.get(..dirent.namelen as usize)?;
            let size = Self::size_of(name.len(), self.plus);
            rest = rest.get(size..).unwrap_or_default();
            let name = DirectoryEntry {
                name,
                ino: dirent.ino,
                offset: dirent.off,
                mode: dirent.r#type << 12,
            };
            Some((name, entry))
        })
    }

    /// The listing as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answer for Directory {
    fn tells(
        &mut self,
        _: NodeId,
        losing: bool,
        tell: &mut dyn FnMut(NodeId, &Attr, &mut Duration),
    ) {
        if !self.plus || !(self.linked || losing) {
            return;
        }
        for entry in self.iter().filter_map(|(_, entry)| entry) {
            if !entry.is_negative() && (losing || entry.attr.links > 1) {
                tell(entry.node, &entry.attr, &mut { entry.attr_valid });
            }
        }
    }

    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.data(Data::Bytes(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_can_be_read_again() {
        let mut directory = Directory::new(4096, true);
        let attr = super::super::Attr {
            size: 5,
            uid: 6,
            ..super::super::Attr::file(77, 0o640, 5)
        };
        let entry = Entry::new(crate::NodeId(7), attr, std::time::Duration::new(1, 2));
        for (offset, name) in [(1, b"first".as_slice()), (2, b"the second"), (3, b"3")] {
            let name = DirectoryEntry {
                name,
                ino: 77,
                offset,
                mode: 0o100_000,
            };
            assert!(directory.push_entry(&name, &entry));
        }
        let names: Vec<_> = directory
            .iter()
            .map(|(name, entry)| (name.name.to_vec(), name.offset, name.mode, entry))
            .collect();
        let expected = |name: &[u8], offset| (name.to_vec(), offset, 0o100_000, Some(entry));
        assert_eq!(
            names,
            [
                expected(b"first", 1),
                expected(b"the second", 2),
                expected(b"3", 3)
            ]
        );
    }

    #[test]
    fn bytes_are_a_listing_or_none() {
        for plus in [false, true] {
            let mut listing = Directory::new(4096, plus);
            let name = DirectoryEntry {
                name: b"name",
                ino: 7,
                offset: 1,
                mode: 0o100_000,
            };
            assert!(listing.push(&name) && listing.push(&name));
            let bytes = listing.bytes;
            let limit = bytes.len() as u32;
            let read = |bytes: &[u8], limit| Directory::from_bytes(bytes.to_vec(), limit, plus);
            assert_eq!(read(&bytes, limit).unwrap().bytes, bytes);
            assert!(read(&bytes, limit - 1).is_none());
            assert!(read(b"", 0).unwrap().is_empty());
            let whole = [0, bytes.len() / 2, bytes.len()];
            for length in (0..bytes.len()).filter(|length| !whole.contains(length)) {
                assert!(read(&bytes[..length], limit).is_none(), "{length}");
            }
            let wild = [0xff; 512];
            assert!(read(&wild, 4096).is_none());
        }
    }

    #[test]
    fn a_name_whose_number_is_not_known_is_shown() {
        let mut directory = Directory::new(64, false);
        let name = DirectoryEntry {
            name: b"name",
            ino: 0,
            offset: 1,
            mode: 0,
        };
        assert!(directory.push(&name));
        let shown = directory.iter().map(|(name, _)| name.ino);
        assert_eq!(shown.collect::<Vec<_>>(), [UNKNOWN_INO]);
    }

    #[test]
    fn a_listing_keeps_its_limit() {
        let mut directory = Directory::new(64, false);
        let entry = |name| DirectoryEntry {
            name,
            ino: 1,
            offset: 1,
            mode: 0o100_644,
        };
        assert!(directory.push(&entry(b"12345678")));
        assert!(directory.push(&entry(b"1234567")));
        assert!(!directory.push(&entry(b"x")));
        assert_eq!(directory.as_bytes().len(), 64);
        assert_eq!(directory.as_bytes()[20], 8);
    }
}
