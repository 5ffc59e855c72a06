//! What an operation is carried out on.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{self, AtFlags, Dev, FallocateFlags, Gid, Mode, OFlags, Stat, Uid, XattrFlags};

use super::Place;
use crate::ops::{Attr, Data, Payload};
use crate::path::{Allocation, Owner, SetXattr, Times};
use crate::{Errno, Result};

/// Bytes of the longest extended attribute of Linux, and of the longest list of their names.
pub const XATTR_BYTES_MAX: usize = 1 << 16;

/// A file, directory or anything else below: what it is, whatever becomes of its names. Open for
/// reading and writing as [`super::Directory::open`] was asked for; from
/// [`super::Directory::file`] not open for its contents, but for all else. Clones are the same
/// open file.
#[derive(Clone, Debug)]
pub struct File {
    descriptor: Arc<OwnedFd>,
    /// The device whose inode numbers are told; that of any where there is none.
    device: Option<Dev>,
}

impl From<OwnedFd> for File {
    /// A file whose inode number is told whatever device it is on.
    fn from(descriptor: OwnedFd) -> Self {
        Self {
            descriptor: Arc::new(descriptor),
            device: None,
        }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl File {
    /// A file whose inode number is told on this device alone.
    pub(super) fn numbered_on(device: Dev, descriptor: OwnedFd) -> Self {
        Self {
            device: Some(device),
            ..Self::from(descriptor)
        }
    }

    /// A path of the machine that leads to this file and to nothing else while it is open, for calls
    /// that take no descriptor or none that is open by O_PATH. It goes through /proc.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()).into()
    }

    /// Gives it another name (link(2)), or its first where it has none (O_TMPFILE).
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, place: &Place<'_>) -> Result<()> {
        fs::linkat(
            fs::CWD,
            self.path(),
            place,
            place.name(),
            AtFlags::SYMLINK_FOLLOW,
        )
    }

    /// Its attributes. The inode number is zero, which tells nothing, where the file is on another device than the
    /// [`super::Directory`] that led to it: files of both may have the same number.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn attr(&self) -> Result<Attr> {
        Ok(attr_on(&fs::fstat(&self.descriptor)?, self.device))
    }

    /// The answer to READ. Nothing is read here: the transport moves the range.
    #[must_use]
    pub fn read(&self, offset: u64, size: u32) -> Data {
        Data::range(Arc::clone(&self.descriptor), offset, size)
    }

    /// Writes what WRITE brings, and answers how many bytes were written.
    ///
    /// # Errors
    /// As pwrite(2), if nothing was written before.
    pub fn write(&self, offset: u64, data: Payload<'_>) -> Result<u32> {
        match data.write_to(&self.descriptor, Some(offset)) {
            Ok(written) => Ok(u32::try_from(written).unwrap_or(u32::MAX)),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Sets the length, however the file is open.
    ///
    /// # Errors
    /// As truncate(2).
    pub fn truncate(&self, size: u64) -> Result<()> {
        match fs::ftruncate(&self.descriptor, size) {
            // Not open for writing, or not for its contents.
            Err(Errno::INVAL | Errno::BADF) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                fs::ftruncate(fs::open(self.path(), flags, Mode::empty())?, size)
            }
            other => other,
        }
    }

    /// Allocates, frees, zeroes or shifts a range.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn allocate(&self, range: Allocation) -> Result<()> {
        let mode = FallocateFlags::from_bits_retain(range.mode);
        fs::fallocate(&self.descriptor, mode, range.offset, range.length)
    }

    /// What a symbolic link leads to.
    ///
    /// # Errors
    /// As readlink(2); ENOENT where it is none.
    pub fn target(&self) -> Result<Vec<u8>> {
        fs::readlinkat(&self.descriptor, "", Vec::new()).map(CString::into_bytes)
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn chmod(&self, mode: u32) -> Result<()> {
        fs::chmod(self.path(), Mode::from_raw_mode(mode))
    }

    /// Sets owner and group, those that are to be set.
    ///
    /// # Errors
    /// As chown(2).
    pub fn chown(&self, owner: Owner) -> Result<()> {
        let (user, group) = (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw));
        fs::chownat(&self.descriptor, "", user, group, AtFlags::EMPTY_PATH)
    }

    /// Sets the times that are to be set.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn utimens(&self, times: Times) -> Result<()> {
        fs::utimensat(fs::CWD, self.path(), &times.into(), AtFlags::empty())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(&self, xattr: SetXattr<'_>) -> Result<()> {
        let flags = XattrFlags::from_bits_retain(xattr.flags);
        fs::setxattr(self.path(), xattr.name, xattr.value, flags)
    }

    /// The value of an extended attribute, of at most [`XATTR_BYTES_MAX`].
    ///
    /// # Errors
    /// As getxattr(2).
    pub fn get_xattr(&self, name: &CStr) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
        fs::getxattr(self.path(), name, spare_capacity(&mut value))?;
        Ok(value)
    }

    /// The names of all extended attributes, each with a zero byte after it.
    ///
    /// # Errors
    /// As listxattr(2).
    pub fn list_xattrs(&self) -> Result<Vec<u8>> {
        let mut names = Vec::with_capacity(XATTR_BYTES_MAX);
        fs::listxattr(self.path(), spare_capacity(&mut names))?;
        Ok(names)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, name: &CStr) -> Result<()> {
        fs::removexattr(self.path(), name)
    }
}

/// Attributes, with the inode number where it is of `device`, or of any where there is none.
pub(super) fn attr_on(found: &Stat, device: Option<Dev>) -> Attr {
    let mut attr = Attr::from(found);
    if device.is_some_and(|device| device != found.st_dev) {
        attr.ino = 0;
    }
    attr
}

#[cfg(test)]
mod tests {
    use bickford_abi::OpenInFlags;

    use super::*;
    use crate::ops::{SetTime, Timestamp};
    use crate::path::Open;
    use crate::path::lower::Directory;

    /// A file, not open for its contents, that has lost its name.
    fn nameless() -> (tempfile::TempDir, File) {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("file");
        std::fs::write(&path, "contents").unwrap();
        let directory = Directory::new(temporary.path()).unwrap();
        let file = directory.file("/file".as_ref()).unwrap();
        std::fs::remove_file(&path).unwrap();
        // Another one in its place, which nothing may reach.
        std::fs::write(&path, "other").unwrap();
        (temporary, file)
    }

    #[test]
    fn changes_go_to_the_file_and_not_to_its_name() {
        let (temporary, file) = nameless();
        file.truncate(3).unwrap();
        file.chmod(0o4750).unwrap();
        let modified = Timestamp {
            seconds: 5,
            nanoseconds: 6,
        };
        let times = Times::new(None, Some(SetTime::At(modified)));
        file.utimens(times.unwrap()).unwrap();
        let attr = file.attr().unwrap();
        assert_eq!((attr.size, attr.links), (3, 0));
        assert_eq!(attr.mode, 0o104_750);
        assert_eq!(attr.modified, modified);
        let owner = Owner::new(Some(attr.uid), None);
        file.chown(owner.unwrap()).unwrap();
        let other = std::fs::read(temporary.path().join("file")).unwrap();
        assert_eq!(other, b"other");
    }

    #[test]
    fn what_is_open_for_writing_is_truncated_whatever_its_mode() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let unprivileged = || {
            let mut fewer = capabilities(None).unwrap();
            fewer.effective.remove(CapabilitySet::DAC_OVERRIDE);
            set_capabilities(None, fewer).unwrap();
            let temporary = tempfile::tempdir().unwrap();
            std::fs::write(temporary.path().join("file"), "contents").unwrap();
            let directory = Directory::new(temporary.path()).unwrap();
            let [reading, writing] = [OFlags::RDONLY, OFlags::RDWR].map(|flags| {
                let open = Open::new(flags.bits(), OpenInFlags::empty());
                directory.open("/file".as_ref(), open).unwrap()
            });
            reading.truncate(5).unwrap();
            writing.chmod(0o444).unwrap();
            writing.truncate(3).unwrap();
            assert_eq!(reading.truncate(2), Err(Errno::ACCESS));
            assert_eq!(reading.attr().unwrap().size, 3);
        };
        std::thread::scope(|scope| scope.spawn(unprivileged).join().unwrap());
    }

    #[test]
    fn ranges_are_allocated_and_links_read() {
        let temporary = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("else/where", temporary.path().join("link")).unwrap();
        std::fs::write(temporary.path().join("file"), "").unwrap();
        let directory = Directory::new(temporary.path()).unwrap();
        let link = directory.file("/link".as_ref()).unwrap();
        assert_eq!(link.target().unwrap(), b"else/where");
        let writing = Open::new(OFlags::RDWR.bits(), OpenInFlags::empty());
        let file = directory.open("/file".as_ref(), writing).unwrap();
        assert_eq!(file.target(), Err(Errno::NOENT));
        file.allocate(Allocation::new(0, 0, 8192)).unwrap();
        assert_eq!(file.attr().unwrap().size, 8192);
    }

    #[test]
    fn xattrs_are_kept() {
        let (_temporary, file) = nameless();
        let (first, second) = (c"user.first", c"user.second");
        match file.set_xattr(SetXattr::new(first, b"1")) {
            Err(Errno::OPNOTSUPP) => {
                crate::watchdog::say(format_args!(
                    "SKIPPED: the temporary directory has no extended attributes"
                ));
                return;
            }
            set => set.unwrap(),
        }
        let again = SetXattr::with_flags(first, b"2", XattrFlags::CREATE.bits());
        assert_eq!(file.set_xattr(again), Err(Errno::EXIST));
        file.set_xattr(SetXattr::new(second, &[7; 300])).unwrap();
        assert_eq!(file.get_xattr(first).unwrap(), b"1");
        assert_eq!(file.get_xattr(second).unwrap(), [7; 300]);
        let names = file.list_xattrs().unwrap();
        let mut names: Vec<_> = names.split_inclusive(|byte| *byte == 0).collect();
        names.retain(|name| name.starts_with(b"user."));
        names.sort_unstable();
        assert_eq!(
            names,
            [first.to_bytes_with_nul(), second.to_bytes_with_nul()]
        );
        file.remove_xattr(first).unwrap();
        assert_eq!(file.get_xattr(first), Err(Errno::NODATA));
    }
}
