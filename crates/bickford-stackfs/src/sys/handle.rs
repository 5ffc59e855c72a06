//! `name_to_handle_at(2)` and `open_by_handle_at(2)`.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::last_error;

/// The kernel's `MAX_HANDLE_SZ`.
pub(crate) const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the largest handle there is.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct LowerHandle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

/// What tells handles of a file system apart: kind and bytes.
pub(crate) type HandleParts<'a> = (i32, &'a [u8]);

impl LowerHandle {
    /// A handle of `kind` with these bytes; `None` when they are more than the kernel takes.
    pub(crate) fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut handle = Self {
            length: u32::try_from(bytes.len()).ok()?,
            kind,
            bytes: [0; HANDLE_BYTES_MAX],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The lower file system's own name for this layout of handle.
    pub(crate) fn kind(&self) -> i32 {
        self.kind
    }

    /// The opaque bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or_default()
    }

    pub(crate) fn parts(&self) -> HandleParts<'_> {
        (self.kind, self.bytes())
    }
}

/// The handle of `name` below `dir`, and the id of the mount it was found on. An empty name with
/// [`AtFlags::EMPTY_PATH`] means `dir` itself. A final symbolic link is not followed.
pub(crate) fn name_to_handle(
    dir: BorrowedFd<'_>,
    name: &CStr,
    flags: AtFlags,
) -> Result<(LowerHandle, i32), Errno> {
    let mut handle = LowerHandle {
        length: HANDLE_BYTES_MAX as u32,
        kind: 0,
        bytes: [0; HANDLE_BYTES_MAX],
    };
    let mut mount_id = 0;
    // SAFETY: `handle` is laid out as struct file_handle followed by as many bytes as its
    // `length` says, both out pointers outlive the call, `name` ends with NUL.
    let result = unsafe {
        libc::name_to_handle_at(
            dir.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &mut mount_id,
            flags.bits() as libc::c_int,
        )
    };
    if result < 0 {
        return Err(last_error());
    }
    Ok((handle, mount_id))
}

/// How often an inode that is just being made is asked for again, each time after twice the pause: for two thirds of a
/// second, since whoever makes it may have lost its CPU.
const TRIES: u32 = 15;
const PAUSE: Duration = Duration::from_micros(20);

/// `FILEID_INO32_GEN` of the kernel: inode number and generation, 32 bits each.
pub(crate) const HANDLE_INODE_GENERATION: i32 = 1;

/// Whether file systems such as ext4 take the handle for that of any inode with its number: generation 0, which files
/// have that mke2fs(8) put into an image.
fn names_any(handle: &LowerHandle) -> bool {
    handle.kind() == HANDLE_INODE_GENERATION && handle.bytes().get(4..) == Some(&[0; 4])
}

/// Opens what `handle` names on the file system that `mount` (not an `O_PATH` descriptor) is on. ESTALE where
/// it is gone, be it that another file has its inode number by now.
pub(crate) fn open_by_handle(
    mount: BorrowedFd<'_>,
    handle: &LowerHandle,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut opened = open_once(mount, handle, flags);
    for attempt in 0..TRIES {
        // Also what the kernel says while the inode's number is being given to another file: the handle is
        // stale, and is said to be in a moment.
        if opened.as_ref().err() != Some(&Errno::NOMEM) {
            break;
        }
        std::thread::sleep(PAUSE * (1 << attempt));
        opened = open_once(mount, handle, flags);
    }
    let opened = opened?;
    if names_any(handle) {
        let (now, _) = name_to_handle(opened.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        if now.parts() != handle.parts() {
            return Err(Errno::STALE);
        }
    }
    Ok(opened)
}

fn open_once(mount: BorrowedFd<'_>, handle: &LowerHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut handle = handle.clone();
    let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
    // SAFETY: as above; the kernel only reads the handle.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Its number goes to other files, which are being made while it is asked for.
    #[test]
    fn the_handle_of_a_removed_file_is_stale_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::File::open(directory.path()).unwrap();
        let path = directory.path().join("f");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    fs::write(directory.path().join("other"), "").unwrap();
                    fs::remove_file(directory.path().join("other")).unwrap();
                }
            });
            'files: for _ in 0..2000 {
                fs::write(&path, "").unwrap();
                let Ok((handle, _)) = name_to_handle(root.as_fd(), c"f", AtFlags::empty()) else {
                    crate::say(format_args!("skipped: no file handles here"));
                    break;
                };
                fs::remove_file(&path).unwrap();
                for _ in 0..10 {
                    match open_by_handle(root.as_fd(), &handle, OFlags::PATH) {
                        Err(Errno::STALE) => {}
                        Err(Errno::PERM) => {
                            crate::say(format_args!("skipped: CAP_DAC_READ_SEARCH is missing"));
                            break 'files;
                        }
                        other => {
                            over.store(true, Ordering::Relaxed);
                            panic!("{other:?}");
                        }
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_handle_of_generation_0_is_not_that_of_a_later_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::File::open(directory.path()).unwrap();
        fs::write(directory.path().join("later"), "").unwrap();
        let named = name_to_handle(root.as_fd(), c"later", AtFlags::empty());
        let Ok((later, _)) = named else {
            crate::say(format_args!("skipped: no file handles here"));
            return;
        };
        match open_by_handle(root.as_fd(), &later, OFlags::PATH) {
            Err(Errno::PERM) => {
                return crate::say(format_args!("skipped: CAP_DAC_READ_SEARCH is missing"));
            }
            opened => drop(opened.unwrap()),
        }
        if later.kind() != HANDLE_INODE_GENERATION || names_any(&later) {
            crate::say(format_args!(
                "skipped: handles have no generation here, or 0"
            ));
            return;
        }
        let mut bytes = later.bytes().to_vec();
        bytes[4..].fill(0);
        let earlier = LowerHandle::new(HANDLE_INODE_GENERATION, &bytes).unwrap();
        let opened = open_by_handle(root.as_fd(), &earlier, OFlags::PATH);
        assert_eq!(opened.unwrap_err(), Errno::STALE);
    }
}
