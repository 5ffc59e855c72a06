//! Where lines go: standard error, or a file, which is rotated when it is a regular one.
//!
//! The file may be below the mount that the layer is part of. It is opened before that is mounted, and rotated in the
//! directory that was there then: by its path its lines would come through the mount, each another line.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::files::{append, append_in};

/// When a file is rotated, and what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// Bytes after which a new file is begun.
    pub(super) size: u64,
    /// How many of the old ones are kept.
    pub(super) keep: u64,
}

/// How long a FIFO that is full is waited for until it is asked again whether the session has ended.
const FULL: Duration = Duration::from_millis(100);
/// Names of files, also of those that are encrypted below, are for the daemon's user alone.
const MODE: u32 = 0o600;

#[derive(Debug)]
pub(super) enum Output {
    StandardError,
    File(LogFile),
}

#[derive(Debug)]
pub(super) struct LogFile {
    /// Where the file was when it was opened.
    directory: OwnedFd,
    name: PathBuf,
    file: File,
    written: u64,
    /// `None` where the file is no regular one: a device must keep its name.
    rotation: Option<Rotation>,
    /// Whether a part of a line was written last.
    torn: bool,
}

pub(super) fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

impl Output {
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = append(path, MODE)?;
        let metadata = file.metadata()?;
        // A symbolic link goes on naming the log, and the process may change its directory.
        let path = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        let (Some(place), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::File(LogFile {
            directory: openat(CWD, place, flags, Mode::empty())?,
            name: name.into(),
            file,
            written: metadata.len(),
            rotation: metadata.is_file().then_some(rotation),
            torn: false,
        }))
    }

    /// Writes a line. A FIFO that is full is waited for until `ended`.
    pub(super) fn write(&mut self, line: &[u8], ended: impl Fn() -> bool) -> io::Result<()> {
        match self {
            Self::StandardError => io::stderr().write_all(line),
            Self::File(file) => file.write(line, ended),
        }
    }

    /// Begins a new file where the current one is full. On failure the current one goes on, and
    /// is tried to be rotated again when it has grown by as much.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        match self {
            Self::StandardError => Ok(()),
            Self::File(file) => file.rotate(),
        }
    }
}

impl LogFile {
    fn write(&mut self, line: &[u8], ended: impl Fn() -> bool) -> io::Result<()> {
        // What follows a part of a line is a line of its own.
        let separated;
        let mut left = line;
        if self.torn {
            separated = [b"\n", line].concat();
            left = &separated;
        }
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    left = left.get(count..).unwrap_or_default();
                    self.written += count as u64;
                    self.torn = !left.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ended() => {
                    self.wait()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let limit = Timespec::try_from(FULL).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Some(rotation) = self.rotation else {
            return Ok(());
        };
        if self.written < rotation.size {
            return Ok(());
        }
        self.written = 0;
        if self.is_named()? {
            self.rename(rotation)?;
        }
        let file = append_in(self.directory.as_fd(), &self.name, MODE)?;
        let metadata = file.metadata()?;
        self.written = metadata.len();
        self.rotation = metadata.is_file().then_some(rotation);
        self.file = file;
        self.torn = false;
        Ok(())
    }

    /// Whether the name is still that of this file: logrotate(8), or another daemon, may have begun a
    /// new one.
    fn is_named(&self) -> io::Result<bool> {
        let here = self.file.metadata()?;
        match statat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (here.dev(), here.ino())),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn rename(&self, rotation: Rotation) -> io::Result<()> {
        let (directory, name) = (&self.directory, &*self.name);
        if rotation.keep == 0 {
            return Ok(unlinkat(directory, name, AtFlags::empty())?);
        }
        for number in (1..rotation.keep).rev() {
            let (from, to) = (numbered(name, number), numbered(name, number + 1));
            match renameat(directory, from, directory, to) {
                Err(errno) if errno != Errno::NOENT => return Err(errno.into()),
                _ => {}
            }
        }
        Ok(renameat(directory, name, directory, numbered(name, 1))?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    const ROTATION: Rotation = Rotation { size: 20, keep: 2 };

    fn put(output: &mut Output, line: &str) {
        output.write(line.as_bytes(), || true).unwrap();
        output.rotate().unwrap();
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn a_symbolic_link_goes_on_naming_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("log"), directory.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut output = Output::open(&link, ROTATION).unwrap();
        put(&mut output, "the first of these\n");
        put(&mut output, "the second\n");
        put(&mut output, "the third\n");
        assert_eq!(link.read_link().unwrap(), path);
        assert_eq!(read(&link), "the third\n");
        let first = read(&numbered(&path, 1));
        assert_eq!(first, "the first of these\nthe second\n");
    }

    /// As where a mount has come over it.
    #[test]
    fn it_is_rotated_in_the_directory_that_was_there() {
        let place = tempfile::tempdir().unwrap();
        let (name, below) = (place.path().join("logs"), place.path().join("below"));
        std::fs::create_dir(&name).unwrap();
        let mut output = Output::open(&name.join("log"), ROTATION).unwrap();
        std::fs::rename(&name, &below).unwrap();
        std::fs::create_dir(&name).unwrap();
        put(&mut output, "the first of these lines\n");
        put(&mut output, "the second\n");
        assert_eq!(read(&below.join("log")), "the second\n");
        assert_eq!(read(&below.join("log.1")), "the first of these lines\n");
        assert_eq!(std::fs::read_dir(&name).unwrap().count(), 0);
    }

    #[test]
    fn what_another_rotated_is_not_rotated_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut output = Output::open(&path, ROTATION).unwrap();
        put(&mut output, "before\n");
        std::fs::rename(&path, directory.path().join("theirs")).unwrap();
        std::fs::write(&path, "new\n").unwrap();
        put(&mut output, "until it is full\n");
        put(&mut output, "after\n");
        assert_eq!(read(&path), "new\nafter\n");
        let theirs = read(&directory.path().join("theirs"));
        assert_eq!(theirs, "before\nuntil it is full\n");
        assert!(!numbered(&path, 1).exists());
    }

    fn make_fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    fn reader_of(fifo: &Path) -> File {
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true);
        let options = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        options.open(fifo).unwrap()
    }

    #[test]
    fn what_is_no_regular_file_keeps_its_name() {
        let rotation = Rotation { size: 1, keep: 2 };
        for was_a_file in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let mut log = was_a_file.then(|| Output::open(&path, rotation).unwrap());
            if was_a_file {
                std::fs::remove_file(&path).unwrap();
            }
            make_fifo(&path);
            let _reader = reader_of(&path);
            let log = log.get_or_insert_with(|| Output::open(&path, rotation).unwrap());
            for _ in 0..3 {
                put(log, "line\n");
            }
            let stays = path.exists() && !numbered(&path, 1).exists();
            assert!(stays, "was a file: {was_a_file}");
        }
    }

    #[test]
    fn a_fifo_is_not_waited_for_at_the_end_and_what_follows_a_torn_line_is_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        make_fifo(&path);
        let error = Output::open(&path, ROTATION).unwrap_err();
        assert!(crate::files::advice(&error).contains("FIFO that nobody reads"));

        let mut reader = reader_of(&path);
        let mut output = Output::open(&path, ROTATION).unwrap();
        let long = vec![b'x'; 1 << 20];
        let error = output.write(&long, || true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut got = Vec::new();
        assert!(reader.read_to_end(&mut got).is_err(), "more may come");
        assert!(!got.is_empty() && got.len() < long.len());
        put(&mut output, "next\n");
        let mut next = [0; 16];
        let count = reader.read(&mut next).unwrap();
        assert_eq!(&next[..count], b"\nnext\n");
    }
}
