//! Where lines go: standard error, or a file, which is rotated when it is a regular one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::files::append;

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
    path: PathBuf,
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
        Ok(Self::File(LogFile {
            // A symbolic link goes on naming the log, and the process may change its directory.
            path: path.canonicalize().or_else(|_| std::path::absolute(path))?,
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
        let file = append(&self.path, MODE)?;
        let metadata = file.metadata()?;
        self.written = metadata.len();
        self.rotation = metadata.is_file().then_some(rotation);
        self.file = file;
        self.torn = false;
        Ok(())
    }

    /// Whether the path still names this file: logrotate(8), or another daemon, may have begun a
    /// new one.
    fn is_named(&self) -> io::Result<bool> {
        let here = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (here.dev(), here.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, rotation: Rotation) -> io::Result<()> {
        let path = &self.path;
        if rotation.keep == 0 {
            return std::fs::remove_file(path);
        }
        for number in (1..rotation.keep).rev() {
            match std::fs::rename(numbered(path, number), numbered(path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(path, numbered(path, 1))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

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
