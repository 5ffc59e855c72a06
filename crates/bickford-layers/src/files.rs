//! Files that users name for logs, figures and switches.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// Neither the start nor the end of a session waits for the reader of a FIFO.
fn nonblocking(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(mode);
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

/// Opens a file, or makes one with this mode, for writing at its end; what is in it stays. A FIFO is not waited
/// for, now and later: writes to one that is full are [`io::ErrorKind::WouldBlock`].
///
/// # Errors
/// Those of open(2); ENXIO for a FIFO that nobody reads. [`advice`] says what to do.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    append_in(CWD, path, mode)
}

/// As [`append`], with a name in a directory.
pub(crate) fn append_in(directory: BorrowedFd<'_>, name: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    Ok(openat(directory, name, flags | OFlags::NONBLOCK, mode)?.into())
}

/// A text of at most so many bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Puts text in the place of what is in the file.
pub(crate) fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut options = nonblocking(mode);
    let mut file = options.write(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// What to do about a file that [`append`] cannot open, to follow the error; may be empty.
#[must_use]
pub fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO) => {
            "; it is a FIFO that nobody reads, or a socket: start its reader before, or name a file"
        }
        Some(Errno::ISDIR) => "; name a file in it",
        _ => "",
    }
}
