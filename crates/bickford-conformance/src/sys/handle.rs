//! File handles: `name_to_handle_at(2)`, `open_by_handle_at(2)`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel's `MAX_HANDLE_SZ`.
const BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the largest there is.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct FileHandle {
    length: u32,
    kind: i32,
    bytes: [u8; BYTES_MAX],
}

impl FileHandle {
    /// The handle of what `path` names; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// Those of name_to_handle_at(2).
    pub fn of(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut handle = Self {
            length: BYTES_MAX as u32,
            kind: 0,
            bytes: [0; BYTES_MAX],
        };
        let mut mount = 0;
        // SAFETY: the handle has as many bytes as its length says, both out pointers and the path
        // outlive the call, the path ends with NUL.
        let result = unsafe {
            libc::name_to_handle_at(
                libc::AT_FDCWD,
                path.as_ptr(),
                (&raw mut handle).cast(),
                &mut mount,
                0,
            )
        };
        match result {
            0 => Ok(handle),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Opens it for reading on the mount that `place` is on.
    ///
    /// # Errors
    /// Those of open_by_handle_at(2); ESTALE when it means nothing there.
    pub fn open(&self, place: &File) -> io::Result<File> {
        let mut handle = self.clone();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: as above; the kernel only reads the handle.
        let opened =
            unsafe { libc::open_by_handle_at(place.as_raw_fd(), (&raw mut handle).cast(), flags) };
        match opened {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
            opened => Ok(unsafe { File::from_raw_fd(opened) }),
        }
    }
}
