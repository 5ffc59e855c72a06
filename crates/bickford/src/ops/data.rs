//! Data that moves in and out: bytes, or ranges of descriptors that the process need not touch.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::FileType;

use super::{Answer, Encoder, Encoding};

/// Data that answers a request.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Data {
    /// Nothing: the end of a file, an empty listing.
    #[default]
    Empty,
    /// Bytes of its own.
    Bytes(Vec<u8>),
    /// Bytes shared with others.
    Shared(Arc<[u8]>),
    /// Bytes that live as long as the program.
    Static(&'static [u8]),
    /// Bytes in several pieces, sent one after the other without being joined first.
    Vectored(Vec<Data>),
    /// A range of a descriptor; the transport moves it as cheaply as it can. Where the file ends
    /// early, so does the data.
    File(FileRange),
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(range) => range.fmt(f),
            other => write!(f, "{} bytes", other.len()),
        }
    }
}

/// A range of an open file.
#[derive(Clone)]
pub struct FileRange {
    /// The file, open for reading.
    pub file: Arc<dyn AsFd + Send + Sync>,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many bytes at most.
    pub length: usize,
}

impl Data {
    /// How many bytes there are; for a range of a file, at most.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::File(range) => range.length,
            Self::Vectored(parts) => parts.iter().map(Self::len).sum(),
            other => other.bytes().map_or(0, <[u8]>::len),
        }
    }

    /// How many bytes there are; for a range of a regular file, as it is now.
    pub(crate) fn present(&self) -> usize {
        match self {
            Self::File(range) => range.present().unwrap_or(range.length),
            Self::Vectored(parts) => parts.iter().map(Self::present).sum(),
            other => other.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range of `file` that READ asks for; where the file ends early, so does the data. Of an `Arc<dyn AsFd + Send + Sync>` a
    /// [`FileRange`] is made.
    #[must_use]
    pub fn range(file: Arc<impl AsFd + Send + Sync + 'static>, offset: u64, size: u32) -> Self {
        Self::File(FileRange {
            file,
            offset,
            length: size as usize,
        })
    }

    /// A copy of the part of `bytes` that READ asks for; beyond their end there is nothing.
    #[must_use]
    pub fn part(bytes: impl AsRef<[u8]>, offset: u64, size: u32) -> Self {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = bytes.as_ref().get(offset..).unwrap_or_default();
        Self::Bytes(rest.get(..size as usize).unwrap_or(rest).to_vec())
    }

    /// The bytes, unless they are in a file or in several pieces.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(bytes) => Some(bytes),
            Self::Static(bytes) => Some(bytes),
            Self::File(_) | Self::Vectored(_) => None,
        }
    }

    /// Reads what is in a file, so that all of it is bytes.
    ///
    /// # Errors
    /// What pread(2) answers.
    pub fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File(range) => {
                let mut bytes = vec![0; range.length];
                let length = range.read_into(&mut bytes)?;
                bytes.truncate(length);
                Ok(bytes)
            }
            Self::Vectored(parts) => {
                let mut bytes = Vec::new();
                for part in parts {
                    bytes.extend(part.into_bytes()?);
                }
                Ok(bytes)
            }
            other => Ok(other.bytes().unwrap_or_default().to_vec()),
        }
    }

    /// Copies what there is to the front of `room`, as far as it goes; the end of a file ends it.
    pub(crate) fn copy_into(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(range) => range.read_into(room),
            Self::Vectored(parts) => {
                let mut done = 0;
                for part in parts {
                    done += part.copy_into(room.get_mut(done..).unwrap_or_default())?;
                }
                Ok(done)
            }
            other => {
                let bytes = other.bytes().unwrap_or_default();
                let length = bytes.len().min(room.len());
                if let (Some(to), Some(from)) = (room.get_mut(..length), bytes.get(..length)) {
                    to.copy_from_slice(from);
                }
                Ok(length)
            }
        }
    }

    /// The pieces, where each of them is bytes.
    pub(crate) fn slices(&self) -> Option<Vec<&[u8]>> {
        match self {
            Self::Vectored(parts) => parts.iter().map(Self::bytes).collect(),
            other => other.bytes().map(|bytes| vec![bytes]),
        }
    }
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, offset, file) = (self.length, self.offset, self.file.as_fd());
        write!(f, "{length} bytes from {offset} on of {file:?}")
    }
}

impl FileRange {
    /// How much of it lies before the end of the file, where that is a regular one.
    pub(crate) fn present(&self) -> Option<usize> {
        let stat = rustix::fs::fstat(&self.file).ok()?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return None;
        }
        let rest = u64::try_from(stat.st_size)
            .ok()?
            .saturating_sub(self.offset);
        Some(usize::try_from(rest).map_or(self.length, |rest| rest.min(self.length)))
    }

    /// Reads the range to its end, or the end of the file, into the front of `buffer`.
    ///
    /// # Errors
    /// What pread(2) answers, if nothing was read before.
    pub fn read_into(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.length.min(buffer.len());
        let mut done = 0;
        while let Some(room) = buffer.get_mut(done..length).filter(|room| !room.is_empty()) {
            match rustix::io::pread(&self.file, room, self.offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Arc<[u8]>> for Data {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Shared(bytes)
    }
}

impl From<&'static [u8]> for Data {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

impl From<FileRange> for Data {
    fn from(range: FileRange) -> Self {
        Self::File(range)
    }
}

impl Answer for Data {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.data(self);
    }
}

/// Data that a request brings: bytes, or a pipe that holds them.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a>(Source<'a>);

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Bytes(&'a [u8]),
    Pipe {
        pipe: BorrowedFd<'a>,
        length: usize,
    },
    /// Kept from who looks.
    Hidden {
        length: usize,
    },
}

impl<'a> Payload<'a> {
    /// Over bytes.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(Source::Bytes(bytes))
    }

    /// Over a pipe whose next `length` bytes are the data. Whoever takes it must take it once; the
    /// transport empties the pipe afterwards.
    #[must_use]
    pub fn from_pipe(pipe: BorrowedFd<'a>, length: usize) -> Self {
        Self(Source::Pipe { pipe, length })
    }

    /// The same length without the bytes.
    pub(crate) fn hidden(&self) -> Payload<'static> {
        let length = self.len();
        Payload(Source::Hidden { length })
    }

    /// How many bytes there are, also where a layer gets none of them to see.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Bytes(bytes) => bytes.len(),
            Source::Pipe { length, .. } | Source::Hidden { length } => length,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes. Borrowed, unless the file system asked for pipes when the session began.
    ///
    /// # Errors
    /// What read(2) of the pipe answers.
    pub fn bytes(&self) -> io::Result<Cow<'a, [u8]>> {
        match self.0 {
            Source::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Source::Hidden { .. } => Ok(Cow::default()),
            Source::Pipe { pipe, length } => {
                let mut bytes = vec![0; length];
                let mut done = 0;
                while let Some(room) = bytes.get_mut(done..).filter(|room| !room.is_empty()) {
                    match rustix::io::read(pipe, room) {
                        Ok(0) => break,
                        Ok(count) => done += count,
                        Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                bytes.truncate(done);
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Writes the data to a file, moving pages where it is a pipe and the file takes them. With `offset`
    /// `None` the file's own offset is used. To a file that is open with O_APPEND it is appended.
    ///
    /// # Errors
    /// What pwrite(2) or splice(2) answers, if nothing was written before.
    pub fn write_to(&self, file: impl AsFd, offset: Option<u64>) -> io::Result<usize> {
        match self.write_until_error(file.as_fd(), offset) {
            (0, Some(error)) => Err(error.into()),
            (done, _) => Ok(done),
        }
    }

    /// The same, where fewer bytes are an error: the kernel takes what it writes back from its cache as
    /// written whole, whatever number is answered.
    ///
    /// # Errors
    /// What pwrite(2) or splice(2) answers, also if something was written before.
    pub fn write_all_to(&self, file: impl AsFd, offset: Option<u64>) -> io::Result<()> {
        match self.write_until_error(file.as_fd(), offset) {
            (_, Some(error)) => Err(error.into()),
            (done, None) if done < self.len() => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    /// How much was written, and what ended it before all was.
    fn write_until_error(
        &self,
        file: BorrowedFd<'_>,
        offset: Option<u64>,
    ) -> (usize, Option<rustix::io::Errno>) {
        let length = self.len();
        let mut done = 0;
        while done < length {
            let mut at = offset.map(|offset| offset.saturating_add(done as u64));
            let step = match (self.0, at.as_mut()) {
                (Source::Pipe { pipe, .. }, at) => {
                    let flags = rustix::pipe::SpliceFlags::empty();
                    rustix::pipe::splice(pipe, None, file, at, length - done, flags)
                }
                (Source::Bytes(bytes), Some(at)) => {
                    rustix::io::pwrite(file, bytes.get(done..).unwrap_or_default(), *at)
                }
                (Source::Hidden { .. }, _) => Ok(0),
                (Source::Bytes(bytes), None) => {
                    rustix::io::write(file, bytes.get(done..).unwrap_or_default())
                }
            };
            match step {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                // No file takes pages that is open with O_APPEND, and some do not at all.
                Err(rustix::io::Errno::INVAL) if done == 0 && self.is_pipe() => {
                    return match self.bytes() {
                        Ok(bytes) => Payload::from_bytes(&bytes).write_until_error(file, offset),
                        Err(error) => (0, rustix::io::Errno::from_io_error(&error)),
                    };
                }
                Err(error) => return (done, Some(error)),
            }
        }
        (done, None)
    }

    fn is_pipe(&self) -> bool {
        matches!(self.0, Source::Pipe { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_where_the_bytes_do() {
        for (offset, size, part) in [
            (0, 9, "text"),
            (1, 2, "ex"),
            (3, 1, "t"),
            (4, 1, ""),
            (u64::MAX, u32::MAX, ""),
        ] {
            assert_eq!(
                Data::part("text", offset, size).bytes(),
                Some(part.as_bytes())
            );
        }
    }

    #[test]
    fn a_file_that_takes_no_pages_of_a_pipe_gets_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = std::fs::OpenOptions::new();
        let path = dir.path().join("log");
        let log = options.append(true).create(true).open(&path).unwrap();
        for offset in [Some(0), None] {
            let (output, input) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&input, b"text").unwrap();
            let payload = Payload::from_pipe(output.as_fd(), 4);
            assert_eq!(payload.write_to(&log, offset).unwrap(), 4);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"texttext");
    }

    #[test]
    fn pieces_are_sent_in_order_and_files_end_early() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"file").unwrap();
        let range = FileRange {
            file: Arc::new(file),
            offset: 2,
            length: 10,
        };
        let data = Data::Vectored(vec![
            Data::Static(b"one "),
            Data::File(range),
            Data::Bytes(b" two".to_vec()),
        ]);
        assert_eq!(data.len(), 18);
        assert!(data.slices().is_none());
        let mut room = [0; 18];
        assert_eq!(data.copy_into(&mut room).unwrap(), 10);
        assert_eq!(&room[..10], b"one le two");
        assert_eq!(data.into_bytes().unwrap(), b"one le two");
    }
}
