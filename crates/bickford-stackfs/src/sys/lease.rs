//! Leases of fcntl(2), which tell whether a file is open for writing.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{F_RDLCK, F_SETLEASE, F_UNLCK, SIGURG, c_int};
use rustix::io::Errno;

use super::last_error;

/// From `asm-generic/fcntl.h`.
const F_SETSIG: c_int = 10;

/// Whether anything has the file of `fd`, which is open for reading, open for writing: a descriptor, or
/// a mapping that outlived it. A lease for reading is granted where nothing has, and given back at once.
///
/// Needs `CAP_LEASE` or the owner's user id, and a file system that has leases.
pub(crate) fn is_open_for_writing(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let call = |command: c_int, argument: c_int| {
        // SAFETY: these commands take plain numbers; the descriptor is borrowed for the call.
        match unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    };
    // Whoever opens the file meanwhile has a signal sent to this process: not SIGIO, which would end it,
    // but one that is ignored where nobody asked for it.
    call(F_SETSIG, SIGURG)?;
    match call(F_SETLEASE, F_RDLCK) {
        Ok(()) => call(F_SETLEASE, F_UNLCK).map(|()| false),
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn writers_are_seen_until_they_close() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let reader = File::open(&path).unwrap();
        let asked = || is_open_for_writing(reader.as_fd());
        if asked() == Err(Errno::INVAL) {
            return crate::say(format_args!(
                "skipped: no leases on the file system of {}",
                path.display()
            ));
        }
        assert_eq!(asked(), Ok(false));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(asked(), Ok(true));
        drop(writer);
        assert_eq!(asked(), Ok(false));
        drop(OpenOptions::new().write(true).open(&path).unwrap());
    }
}
