//! The operations. What changes an inode is done through a descriptor.

use std::ffi::CStr;
use std::path::Path;

use bickford::ops::{Attr, Data, FileRange, Opened, Payload, StatfsAnswer};
use bickford::path::{Allocation, FileSystem, Listing, New, Open, Owner};
use bickford::path::{SetXattr, Subject, Times};
use bickford::{Context, Errno, Result};
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags,
};

use crate::{Mirror, below, filled, own, through};

impl FileSystem for Mirror {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        Ok(Attr::from(&fs::fstat(self.at(subject)?)?))
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in fs::Dir::new(fs::open(below(at.path()?), flags, Mode::empty())?)? {
            let entry = entry?;
            listing.add(
                entry.file_name().to_bytes(),
                entry.file_type().as_raw_mode(),
            );
        }
        Ok(())
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>> {
        fs::readlink(below(path), Vec::new()).map(std::ffi::CString::into_bytes)
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let (major, minor) = bickford::ops::decode_device(new.rdev);
        let (kind, mode) = (
            FileType::from_raw_mode(new.mode),
            Mode::from_raw_mode(new.mode),
        );
        fs::mknodat(CWD, below(path), kind, mode, fs::makedev(major, minor))?;
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
        self.open_file(below(path), open.flags)
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        self.close(file.handle());
        Ok(())
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(Data::File(FileRange {
            file: self.at(file)?,
            offset,
            length: size as usize,
        }))
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        match data.write_to(&*self.at(file)?, Some(at)) {
            Ok(count) => Ok(count as u32),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
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
        let file = self.at(subject)?;
        filled(|room| fs::getxattr(through(&file), name, room))
    }

    fn listxattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Vec<u8>> {
        let file = self.at(subject)?;
        filled(|room| fs::listxattr(through(&file), room))
    }

    fn removexattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<()> {
        fs::removexattr(through(&*self.at(subject)?), name)
    }
}
