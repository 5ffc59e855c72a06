//! Open directories.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{self, AtFlags, Dev, RawDir, SeekFrom};

use super::file::attr_on;
use crate::Result;
use crate::ops::Attr;
use crate::path::Listing;

/// Bytes of the smallest buffer for getdents(2), which holds the longest name.
const BUFFER_MIN: usize = 4096;

/// For a listing in one piece: as readdir(3) has it.
const BUFFER_WHOLE: usize = 32 << 10;

/// One name as getdents(2) gives it.
#[derive(Debug)]
struct Entry {
    name: CString,
    /// The type alone.
    mode: u32,
    ino: u64,
    /// Where the directory goes on after it.
    offset: u64,
}

/// What was read for a part of the listing, and beyond it. It is kept so that nobody seeks who reads on: where offsets count
/// names, as on tmpfs before Linux 6.6, each one that was removed would have another left out.
#[derive(Debug)]
struct Part {
    /// Where it begins.
    offset: u64,
    entries: Vec<Entry>,
}

impl Part {
    /// What comes from an offset on, if that is one of these. The kernel may ask again for what its caller had no room for.
    fn after(mut self, offset: u64) -> Option<Vec<Entry>> {
        // Offset 0 is rewinddir(3), which must show what changed since.
        if offset == 0 {
            return None;
        }
        if offset != self.offset {
            let last = self.entries.iter().rposition(|one| one.offset == offset)?;
            self.entries.drain(..=last);
        }
        Some(self.entries)
    }
}

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
    /// `None` while a part is being listed, and where the directory stands elsewhere.
    last: Mutex<Option<Part>>,
}

impl Stream {
    pub(super) fn new(directory: OwnedFd, device: Dev) -> Result<Self> {
        let numbered = fs::fstat(&directory)?.st_dev == device;
        Ok(Self {
            directory,
            device,
            numbered,
            last: Mutex::new(None),
        })
    }

    /// Adds what comes from the listing's offset on, as much as there is room for, with the inode numbers and attributes that
    /// [`File::attr`](super::File::attr) tells. Not for two at a time, which the kernel does not ask for: they share one position.
    ///
    /// # Errors
    /// As lseek(2) and getdents(2).
    pub fn list(&self, listing: &mut Listing) -> Result<()> {
        let offset = listing.offset();
        let last = self.last().take();
        let mut next = match last.and_then(|last| last.after(offset)) {
            Some(next) => next,
            None => {
                fs::seek(&self.directory, SeekFrom::Start(offset))?;
                Vec::new()
            }
        };
        let bytes = listing.dirent_bytes().max(BUFFER_MIN);
        let mut entries = Vec::new();
        loop {
            let fit = next.iter().all(|entry| self.add_at(listing, entry));
            entries.append(&mut next);
            if fit {
                next = self.read(bytes)?;
            }
            if next.is_empty() {
                break;
            }
        }
        *self.last() = Some(Part { offset, entries });
        Ok(())
    }

    /// Adds everything, in one piece. For a directory that was just opened.
    pub(super) fn list_whole(&self, listing: &mut Listing) -> Result<()> {
        loop {
            let entries = self.read(BUFFER_WHOLE)?;
            if entries.is_empty() {
                return Ok(());
            }
            for Entry {
                name, mode, ino, ..
            } in entries
            {
                match self.attr_for(listing, &name) {
                    Some(attr) => listing.add_attr(name.to_bytes(), attr),
                    None => listing.add_numbered(name.to_bytes(), mode, ino),
                }
            }
        }
    }

    /// What getdents(2) gives next into so many bytes: nothing at the end.
    fn read(&self, bytes: usize) -> Result<Vec<Entry>> {
        let mut buffer = Vec::with_capacity(bytes);
        let mut names = RawDir::new(&self.directory, buffer.spare_capacity_mut());
        let mut entries = Vec::new();
        while let Some(name) = names.next() {
            let name = name?;
            entries.push(Entry {
                name: name.file_name().to_owned(),
                mode: name.file_type().as_raw_mode(),
                ino: if self.numbered { name.ino() } else { 0 },
                offset: name.next_entry_cookie(),
            });
            if names.is_buffer_empty() {
                break;
            }
        }
        Ok(entries)
    }

    fn add_at(&self, listing: &mut Listing, entry: &Entry) -> bool {
        let name = entry.name.to_bytes();
        match self.attr_for(listing, &entry.name) {
            Some(attr) => listing.add_attr_at(name, attr, entry.offset),
            None => listing.add_numbered_at(name, entry.mode, entry.ino, entry.offset),
        }
    }

    /// The attributes of a name, if the kernel takes them and it is there still.
    fn attr_for(&self, listing: &Listing, name: &CStr) -> Option<Attr> {
        if !listing.wants_attributes() || matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let found = fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|found| attr_on(&found, Some(self.device)))
    }

    fn last(&self) -> MutexGuard<'_, Option<Part>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use rustix::mount::{MountFlags, UnmountFlags};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

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

    /// Removes what each part lists, as far as `takes` says of how many names, and makes some others; the next part
    /// comes after the last of these.
    fn what_is_listed_is_all(above: &Path, plus: bool, takes: fn(usize) -> usize) {
        let temporary = tempfile::tempdir_in(above).unwrap();
        for number in 0..400 {
            std::fs::write(temporary.path().join(format!("file {number}")), "").unwrap();
        }
        let directory = Directory::new(temporary.path()).unwrap();
        let stream = directory.stream("/".as_ref()).unwrap();
        let (mut offset, mut removed) = (0, 0);
        loop {
            let mut listing = Listing::new(offset, 4096, plus);
            stream.list(&mut listing).unwrap();
            let mut names = listing.into_names();
            names.truncate(takes(names.len()));
            let Some(last) = names.last() else { break };
            offset = last.offset;
            for name in names.iter().filter(|name| name.name.starts_with(b"file")) {
                let name = std::str::from_utf8(&name.name).unwrap();
                std::fs::remove_file(temporary.path().join(name)).unwrap();
                removed += 1;
                if removed % 3 == 0 {
                    let made = temporary.path().join(format!("made {removed}"));
                    std::fs::write(made, "").unwrap();
                }
            }
        }
        assert_eq!(removed, 400);
    }

    fn what_is_removed_and_made_moves_nothing(above: &Path) {
        for plus in [false, true] {
            what_is_listed_is_all(above, plus, |all| all);
            what_is_listed_is_all(above, plus, |all| all.div_ceil(2));
        }
    }

    #[test]
    fn what_is_removed_and_made_meanwhile_moves_nothing() {
        what_is_removed_and_made_moves_nothing(&std::env::temp_dir());
    }

    /// Unmounts what is there.
    struct Mounted<'a>(&'a Path);

    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
        }
    }

    #[test]
    fn nor_where_offsets_count_names() {
        let point = tempfile::tempdir().unwrap();
        let (path, none) = (point.path(), MountFlags::empty());
        if let Err(error) = rustix::mount::mount("ramfs", path, "ramfs", none, None) {
            crate::watchdog::say(format_args!("SKIPPED: mount ramfs: {error}"));
            return;
        }
        let _mounted = Mounted(path);
        what_is_removed_and_made_moves_nothing(path);
    }

    #[test]
    fn what_is_listed_again_shows_what_is_new() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(temporary.path()).unwrap();
        let stream = directory.stream("/".as_ref()).unwrap();
        assert_eq!(parts(&stream, 4096, false).0.len(), 2);
        std::fs::write(temporary.path().join("new"), "").unwrap();
        assert_eq!(parts(&stream, 4096, false).0.len(), 3);
    }

    #[test]
    fn a_directory_that_may_be_read_alone_is_listed() {
        let temporary = tempfile::tempdir().unwrap();
        let lower = temporary.path().join("readable");
        std::fs::create_dir(&lower).unwrap();
        std::fs::write(lower.join("file"), "").unwrap();
        let directory = Directory::new(temporary.path()).unwrap();
        std::fs::set_permissions(&lower, PermissionsExt::from_mode(0o400)).unwrap();
        let list = || {
            let mut own = capabilities(None).unwrap();
            own.effective = CapabilitySet::empty();
            set_capabilities(None, own).unwrap();
            let mut listing = Listing::new(0, 4096, true);
            directory.list("/readable".as_ref(), &mut listing).unwrap();
            let names = listing.into_names();
            assert_eq!(names.len(), 1);
            assert_eq!(&*names[0].name, b"file");
        };
        let listed = std::thread::scope(|threads| threads.spawn(list).join());
        std::fs::set_permissions(&lower, PermissionsExt::from_mode(0o700)).unwrap();
        listed.unwrap();
    }
}
