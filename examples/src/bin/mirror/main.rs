//! A directory passed through, over paths: `mirror SOURCE MOUNTPOINT`. Reads and writes are moved
//! between descriptors by the transport.

mod filesystem;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bickford::mount::AccessPolicy;
use bickford::ops::Opened;
use bickford::path::{Adapter, New, Options, Subject};
use bickford::{Context, Errno, FileHandle, MountOptions, Result};
use bickford_examples::{Outcome, arguments, serve_with};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chmod, chownat, statat};

/// Open files by handle. Paths are those below the working directory.
#[derive(Default)]
struct Mirror {
    open: Mutex<(u64, HashMap<u64, Arc<OwnedFd>>)>,
}

/// A path of the mount as one below the working directory.
fn below(path: &Path) -> &Path {
    match path.strip_prefix("/") {
        Ok(below) if below != Path::new("") => below,
        _ => Path::new("."),
    }
}

/// A path that leads to what a descriptor is open on, and to nothing else.
fn through(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A value that a system call puts into a buffer, as long as any extended attribute may be.
fn filled(fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut room = vec![0; 1 << 16];
    let length = fill(&mut room)?;
    room.truncate(length);
    Ok(room)
}

impl Mirror {
    fn files(&self) -> MutexGuard<'_, (u64, HashMap<u64, Arc<OwnedFd>>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an operation is about: an open file, or what is at a path, symbolic links included.
    fn at(&self, subject: Subject<'_>) -> Result<Arc<OwnedFd>> {
        if let Some(handle) = subject.handle().filter(|handle| handle.0 != 0) {
            return self.files().1.get(&handle.0).cloned().ok_or(Errno::BADF);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(below(subject.path()?), flags, Mode::empty()).map(Arc::new)
    }

    fn open_file(&self, path: &Path, flags: u32) -> Result<Opened> {
        // The kernel appends at the offset that it knows, and has no buffers for direct I/O.
        let without = OFlags::APPEND | OFlags::DIRECT;
        let flags = OFlags::from_bits_retain(flags).difference(without) | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let (last, files) = &mut *self.files();
        *last += 1;
        files.insert(*last, Arc::new(file));
        Ok(Opened::new(FileHandle(*last)))
    }

    fn close(&self, handle: Option<FileHandle>) {
        let file = handle.and_then(|handle| self.files().1.remove(&handle.0));
        // Closed here, without the lock.
        drop(file);
    }
}

/// Gives something that was just made to the caller, but for the group in a directory that gives
/// its own. A change of owner takes set-id bits of files away, so that they are put back.
fn own(cx: &Context<'_>, path: &Path, new: Option<New>) -> Result<()> {
    let path = below(path);
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = statat(CWD, parent.unwrap_or(Path::new(".")), AtFlags::empty())?;
    let inherits = parent.st_mode & 0o2000 != 0;
    let group = Some(Gid::from_raw(cx.gid())).filter(|_| !inherits);
    let user = Some(Uid::from_raw(cx.uid()));
    chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    match new {
        Some(new) if new.mode & 0o6000 != 0 => chmod(path, Mode::from_raw_mode(new.mode)),
        _ => Ok(()),
    }
}

fn main() -> Outcome {
    let [source, mountpoint] = arguments("mirror SOURCE MOUNTPOINT")?;
    let mountpoint = std::path::absolute(mountpoint)?;
    std::env::set_current_dir(source)?;
    // The callers' is applied already.
    rustix::process::umask(Mode::empty());
    // The kernel checks permissions, so everybody may come in where that is allowed.
    let mut mount = MountOptions::new()
        .fsname("mirror")
        .subtype("mirror")
        .default_permissions(true);
    if rustix::process::getuid().is_root() {
        mount = mount.access(AccessPolicy::Everyone);
    }
    // Inode numbers are those below, and tell hard links.
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    let mirror = Adapter::new(Mirror::default(), options);
    serve_with(mirror, mountpoint, &mount, |_| {})
}
