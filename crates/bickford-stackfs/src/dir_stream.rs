//! The entries of a lower directory from any of its offsets on.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;

const READ_BYTES: usize = 16 * 1024;

/// One entry as the lower file system has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowerEntry<'a> {
    pub(crate) inode: u64,
    /// Where to go on after this entry: the lower `d_off`.
    pub(crate) next_offset: u64,
    /// `DT_*`.
    pub(crate) kind: u8,
    pub(crate) name: &'a CStr,
}

struct Record {
    inode: u64,
    next_offset: u64,
    kind: u8,
    name: std::ops::Range<usize>,
}

/// A reading position in one open directory. The descriptor's own position belongs to it.
pub(crate) struct DirStream {
    fd: Arc<OwnedFd>,
    records: Vec<Record>,
    names: Vec<u8>,
    next: usize,
    offset: u64,
}

impl DirStream {
    /// Starts at the beginning of `fd`, a directory just opened for reading.
    pub(crate) fn new(fd: Arc<OwnedFd>) -> Self {
        Self {
            fd,
            records: Vec::new(),
            names: Vec::new(),
            next: 0,
            offset: 0,
        }
    }

    /// Where it stands.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to `offset`: 0, or what some entry said comes next.
    pub(crate) fn seek(&mut self, offset: u64) -> Result<(), Errno> {
        // Offset 0 is rewinddir, which must show what changed since.
        if offset != self.offset || offset == 0 {
            self.clear();
            rustix::fs::seek(&self.fd, SeekFrom::Start(offset))?;
            self.offset = offset;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.records.clear();
        self.names.clear();
        self.next = 0;
    }

    /// The entry at the position, which stays; `None` at the end.
    pub(crate) fn peek(&mut self) -> Result<Option<LowerEntry<'_>>, Errno> {
        if self.next >= self.records.len() {
            self.fill()?;
        }
        Ok(self.records.get(self.next).and_then(|record| {
            let name = self.names.get(record.name.clone())?;
            Some(LowerEntry {
                inode: record.inode,
                next_offset: record.next_offset,
                kind: record.kind,
                name: CStr::from_bytes_with_nul(name).ok()?,
            })
        }))
    }

    /// Steps over the entry at the position.
    pub(crate) fn advance(&mut self) {
        if let Some(record) = self.records.get(self.next) {
            self.offset = record.next_offset;
            self.next += 1;
        }
    }

    fn fill(&mut self) -> Result<(), Errno> {
        self.clear();
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut lower = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = lower.next() {
            let entry = entry?;
            let start = self.names.len();
            self.names
                .extend_from_slice(entry.file_name().to_bytes_with_nul());
            self.records.push(Record {
                inode: entry.ino(),
                next_offset: entry.next_entry_cookie(),
                kind: dirent_kind(entry.file_type()),
                name: start..self.names.len(),
            });
            if lower.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// `DT_*` of a file type; 0 (`DT_UNKNOWN`) when the lower file system does not say.
fn dirent_kind(kind: FileType) -> u8 {
    match kind {
        FileType::Unknown => 0,
        kind => (kind.as_raw_mode() >> 12) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn stream(path: &std::path::Path) -> DirStream {
        DirStream::new(Arc::new(OwnedFd::from(std::fs::File::open(path).unwrap())))
    }

    fn read_all(stream: &mut DirStream) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        while let Some(entry) = stream.peek().unwrap() {
            found.push((entry.name.to_str().unwrap().to_owned(), entry.next_offset));
            stream.advance();
        }
        found
    }

    #[test]
    fn every_entry_comes_once_and_every_offset_leads_on() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..1500 {
            std::fs::write(dir.path().join(format!("file-with-a-name-{number}")), "").unwrap();
        }
        let mut stream = stream(dir.path());
        let all = read_all(&mut stream);
        let names: BTreeSet<&String> = all.iter().map(|(name, _)| name).collect();
        assert_eq!((names.len(), all.len()), (1502, 1502));
        for at in [0, 1, 700, 1500, 1501] {
            stream.seek(all[at].1).unwrap();
            assert_eq!(read_all(&mut stream), all[at + 1..]);
        }
    }

    #[test]
    fn rewinding_shows_new_entries() {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = stream(dir.path());
        assert_eq!(read_all(&mut stream).len(), 2);
        std::fs::write(dir.path().join("new"), "").unwrap();
        stream.seek(0).unwrap();
        assert_eq!(read_all(&mut stream).len(), 3);
    }

    #[test]
    fn kinds_are_those_of_readdir() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("x", dir.path().join("link")).unwrap();
        let mut stream = stream(dir.path());
        while let Some(entry) = stream.peek().unwrap() {
            let wanted = if entry.name == c"link" { 10 } else { 4 };
            assert!(entry.kind == wanted || entry.kind == 0, "{entry:?}");
            stream.advance();
        }
    }
}
