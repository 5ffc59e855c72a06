//! Open directories.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Dev, RawDir, SeekFrom};

use super::file::attr_on;
use crate::Result;
use crate::ops::Attr;
use crate::path::Listing;

/// Bytes of the smallest buffer for getdents(2), which holds the longest name.
const BUFFER_MIN: usize = 4096;

/// An open directory: what [`opendir`](crate::path::FileSystem::opendir) makes with [`super::Directory::stream`], for
/// [`readdir`](crate::path::FileSystem::readdir) to list. It is listed in parts, so that all names have their attributes where the
/// kernel takes them, and each is listed once though names come and go meanwhile. As a descriptor it is the directory, for
/// instance for fsync(2).
#[derive(Debug)]
pub struct Stream {
    directory: OwnedFd,
    /// The device whose inode numbers are told.
    device: Dev,
    /// The directory is on it.
    numbered: bool,
}

impl Stream {
    pub(super) fn new(directory: OwnedFd, device: Dev) -> Result<Self> {
        let numbered = fs::fstat(&directory)?.st_dev == device;
        Ok(Self {
            directory,
            device,
            numbered,
        })
    }

    /// Adds what comes from the listing's offset on, as much as there is room for, with the inode numbers and attributes that
    /// [`File::attr`](super::File::attr) tells. Not for two at a time, which the kernel does not ask for: they share one position.
    ///
    /// # Errors
    /// As lseek(2) and getdents(2).
    pub fn list(&self, listing: &mut Listing) -> Result<()> {
        fs::seek(&self.directory, SeekFrom::Start(listing.offset()))?;
        let mut buffer = Vec::with_capacity(listing.dirent_bytes().max(BUFFER_MIN));
        let mut entries = RawDir::new(&self.directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let (name, offset) = (entry.file_name(), entry.next_entry_cookie());
            let attr = self.attr_for(listing, name);
            let added = match attr {
                Some(attr) => listing.add_attr_at(name.to_bytes(), attr, offset),
                None => {
                    let kind = entry.file_type().as_raw_mode();
                    let ino = self.ino(entry.ino());
                    listing.add_numbered_at(name.to_bytes(), kind, ino, offset)
                }
            };
            if !added {
                break;
            }
        }
        Ok(())
    }

    /// The attributes of a name, if the kernel takes them and it is there still.
    pub(super) fn attr_for(&self, listing: &Listing, name: &CStr) -> Option<Attr> {
        if !listing.wants_attributes() || matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let found = fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|found| attr_on(&found, Some(self.device)))
    }

    /// An inode number as an entry of the directory has it, or zero.
    pub(super) fn ino(&self, ino: u64) -> u64 {
        if self.numbered { ino } else { 0 }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Directory;
    use super::*;

    /// All names by parts of so many bytes, with the size that was told; and the number of parts.
    fn parts(stream: &Stream, bytes: u32, plus: bool) -> (BTreeMap<Vec<u8>, Option<u64>>, usize) {
        let mut all = BTreeMap::new();
        let mut offset = 0;
        for count in 0.. {
            let mut listing = Listing::new(offset, bytes, plus);
            stream.list(&mut listing).unwrap();
            let names = listing.into_names();
            let Some(last) = names.last() else {
                return (all, count);
            };
            offset = last.offset;
            for name in names {
                let size = name.attr.map(|attr| attr.size);
                assert_eq!(all.insert(name.name.into(), size), None, "listed twice");
            }
        }
        unreachable!()
    }

    #[test]
    fn each_name_is_listed_once_with_attributes_where_they_are_taken() {
        let temporary = tempfile::tempdir().unwrap();
        for size in 0..200 {
            let file = std::fs::File::create(temporary.path().join(format!("file {size}")));
            file.unwrap().set_len(size).unwrap();
        }
        let directory = Directory::new(temporary.path()).unwrap();
        let stream = directory.stream("/".as_ref()).unwrap();
        for plus in [false, true] {
            let (mut names, count) = parts(&stream, 4096, plus);
            assert!(count > 1, "{count}");
            for dots in [".", ".."] {
                assert_eq!(names.remove(dots.as_bytes()), Some(None));
            }
            assert_eq!(names.len(), 200);
            for size in 0..200 {
                let name = format!("file {size}").into_bytes();
                assert_eq!(names[&name], plus.then_some(size));
            }
        }
    }

    #[test]
    fn what_is_removed_and_made_meanwhile_moves_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |number| temporary.path().join(format!("file {number}"));
        for number in 0..400 {
            std::fs::write(path(number), "").unwrap();
        }
        let directory = Directory::new(temporary.path()).unwrap();
        let stream = directory.stream("/".as_ref()).unwrap();
        let (mut offset, mut removed) = (0, 0);
        loop {
            let mut listing = Listing::new(offset, 4096, false);
            stream.list(&mut listing).unwrap();
            let names = listing.into_names();
            let Some(last) = names.last() else { break };
            offset = last.offset;
            for name in names.iter().filter(|name| name.name.starts_with(b"file")) {
                let name = std::str::from_utf8(&name.name).unwrap();
                std::fs::remove_file(temporary.path().join(name)).unwrap();
                removed += 1;
            }
        }
        assert_eq!(removed, 400);
        assert!(temporary.path().read_dir().unwrap().next().is_none());
    }
}
