//! A directory passed through, over paths: `mirror SOURCE MOUNTPOINT`. Reads and writes are moved
//! between descriptors by the transport.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bickford::ops::{Attr, Data, Opened, Payload, StatfsAnswer, decode_device};
use bickford::path::{Allocation, FileSystem, Handles, Listing, New, Open, Owner};
use bickford::path::{SetXattr, Subject, Times};
use bickford::{Context, Errno, Result};
use bickford_examples::{Outcome, arguments, serve_for_all};
use rustix::buffer::spare_capacity;
use rustix::fs::{self, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags};
use rustix::fs::{RenameFlags, Uid, XattrFlags};

/// Bytes of the longest extended attribute, and of the longest list of their names.
const XATTR_MAX: usize = 1 << 16;

/// Open files by handle. Paths are those below the working directory.
#[derive(Default)]
struct Mirror {
    open: Handles<OwnedFd>,
}

/// A path of the mount as one below the working directory.
fn below(path: &Path) -> PathBuf {
    Path::new(".").join(path.strip_prefix("/").unwrap_or(path))
}

/// A path that leads to what a descriptor is open on, and to nothing else.
fn through(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

impl Mirror {
    /// What an operation is about: an open file, or what is at a path, symbolic links included.
    fn at(&self, subject: Subject<'_>) -> Result<Arc<OwnedFd>> {
        if let Some(file) = self.open.get(subject)? {
            return Ok(file);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::open(below(subject.path()?), flags, Mode::empty()).map(Arc::new)
    }
}

/// Gives something that was just made to the caller, but for the group in a directory that gives
/// its own. A change of owner takes set-id bits of files away, so that they are put back.
fn own(cx: &Context<'_>, path: &Path, new: Option<New>) -> Result<()> {
    let path = below(path);
    let parent = fs::stat(path.parent().ok_or(Errno::INVAL)?)?;
    let inherits = parent.st_mode & 0o2000 != 0;
    let group = Some(Gid::from_raw(cx.gid())).filter(|_| !inherits);
    let user = Some(Uid::from_raw(cx.uid()));
    fs::chownat(CWD, &path, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    match new {
        Some(new) if new.mode & 0o6000 != 0 => fs::chmod(path, Mode::from_raw_mode(new.mode)),
        _ => Ok(()),
    }
}

impl FileSystem for Mirror {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        Ok(Attr::from(&fs::fstat(self.at(subject)?)?))
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in fs::Dir::new(fs::open(below(at.path()?), flags, Mode::empty())?)? {
            let entry = entry?;
            let kind = entry.file_type().as_raw_mode();
            listing.add(entry.file_name().to_bytes(), kind);
        }
        Ok(())
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>> {
        fs::readlink(below(path), Vec::new()).map(CString::into_bytes)
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let mode = Mode::from_raw_mode(new.mode);
        let (major, minor) = decode_device(new.rdev);
        let (kind, device) = (FileType::from_raw_mode(new.mode), fs::makedev(major, minor));
        fs::mknodat(CWD, below(path), kind, mode, device)?;
        own(cx, path, Some(new))
    }

    fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        fs::mkdir(below(path), Mode::from_raw_mode(new.mode))?;
        own(cx, path, None)
    }

    fn symlink(&self, cx: &Context<'_>, path: &Path, target: &CStr) -> Result<()> {
        fs::symlink(target, below(path))?;
        own(cx, path, None)
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        fs::unlink(below(path))
    }

    fn rmdir(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        fs::rmdir(below(path))
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        fs::renameat_with(CWD, below(from), CWD, below(to), flags)
    }

    fn link(&self, _: &Context<'_>, existing: &Path, new: &Path) -> Result<()> {
        fs::link(below(existing), below(new))
    }

    fn chmod(&self, _: &Context<'_>, subject: Subject<'_>, mode: u32) -> Result<()> {
        fs::chmod(through(&*self.at(subject)?), Mode::from_raw_mode(mode))
    }

    fn chown(&self, _: &Context<'_>, subject: Subject<'_>, owner: Owner) -> Result<()> {
        let (user, group) = (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw));
        fs::chownat(self.at(subject)?, "", user, group, AtFlags::EMPTY_PATH)
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        let (file, flags) = (self.at(subject)?, OFlags::WRONLY | OFlags::CLOEXEC);
        let writable = fs::open(through(&file), flags, Mode::empty())?;
        fs::ftruncate(writable, size)
    }

    fn utimens(&self, _: &Context<'_>, subject: Subject<'_>, times: Times) -> Result<()> {
        let file = self.at(subject)?;
        fs::utimensat(CWD, through(&file), &times.into(), AtFlags::empty())
    }

    fn open(&self, _: &Context<'_>, path: &Path, open: Open) -> Result<Opened> {
        // The kernel appends at the offset that it knows, and has no buffers for direct I/O.
        let without = OFlags::APPEND | OFlags::DIRECT;
        let flags = OFlags::from_bits_retain(open.flags).difference(without) | OFlags::CLOEXEC;
        let file = fs::open(below(path), flags, Mode::empty())?;
        Ok(Opened::new(self.open.insert(file)))
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        self.open.remove(file).map(drop).ok_or(Errno::BADF)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(Data::range(self.at(file)?, offset, size))
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        let written = data
            .write_to(&*self.at(file)?, Some(at))
            .map(|count| count as u32);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn fsync(&self, _: &Context<'_>, file: Subject<'_>, _: bool) -> Result<()> {
        fs::fsync(self.at(file)?)
    }

    fn fallocate(&self, _: &Context<'_>, file: Subject<'_>, range: Allocation) -> Result<()> {
        let mode = FallocateFlags::from_bits_retain(range.mode);
        fs::fallocate(self.at(file)?, mode, range.offset, range.length)
    }

    fn statfs(&self, _: &Context<'_>, _: &Path) -> Result<StatfsAnswer> {
        Ok(StatfsAnswer::from(&fs::statvfs(".")?))
    }

    fn setxattr(&self, _: &Context<'_>, at: Subject<'_>, xattr: SetXattr<'_>) -> Result<()> {
        let flags = XattrFlags::from_bits_retain(xattr.flags);
        fs::setxattr(through(&*self.at(at)?), xattr.name, xattr.value, flags)
    }

    fn getxattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity(XATTR_MAX);
        fs::getxattr(
            through(&*self.at(subject)?),
            name,
            spare_capacity(&mut value),
        )?;
        Ok(value)
    }

    fn listxattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity(XATTR_MAX);
        fs::listxattr(through(&*self.at(subject)?), spare_capacity(&mut value))?;
        Ok(value)
    }

    fn removexattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<()> {
        fs::removexattr(through(&*self.at(subject)?), name)
    }
}

fn main() -> Outcome {
    let [source, mountpoint] = arguments("mirror SOURCE MOUNTPOINT")?;
    let mountpoint = std::path::absolute(mountpoint)?;
    std::env::set_current_dir(source)?;
    // The callers' is applied already.
    rustix::process::umask(Mode::empty());
    serve_for_all(Mirror::default(), mountpoint, "mirror")
}
