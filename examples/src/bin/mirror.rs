//! A directory passed through, over paths: `mirror SOURCE MOUNTPOINT`. Reads and writes are moved
//! between descriptors by the transport.

use std::ffi::CStr;
use std::path::Path;
use std::process::ExitCode;

use bickford::abi::InitFlags;
use bickford::ops::{Attr, Data, Opened, Payload, StatfsAnswer};
use bickford::path::lower::{Directory, File, Place, Stream};
use bickford::path::{
    Adapter, Allocation, FileSystem, Handles, Listing, New, Open, Options, Owner,
};
use bickford::path::{SetXattr, Subject, Times};
use bickford::{Context, Errno, Negotiation, Result};
use bickford_examples::for_all;
use bickford_program::Program;
use rustix::fs::{self, AtFlags, Mode, RenameFlags};

/// The directory, and open files by handle.
struct Mirror {
    source: Directory,
    open: Handles<File>,
    listed: Handles<Stream>,
}

impl Mirror {
    /// What an operation is about: an open file, or what is at a path, symbolic links included.
    fn at(&self, subject: Subject<'_>) -> Result<File> {
        self.source.find(&self.open, subject)
    }
}

/// Gives what was just made to the caller, or removes it, as unlinkat(2) does with `how`: who is told of an error finds
/// nothing made.
fn give(cx: &Context<'_>, place: &Place<'_>, new: Option<New>, how: AtFlags) -> Result<()> {
    place.give(cx, new).inspect_err(|_| {
        if let Err(error) = fs::unlinkat(place, place.name(), how) {
            tracing::warn!("{:?} stays below: {error}", place.name());
        }
    })
}

impl FileSystem for Mirror {
    fn is_prompt(&self) -> bool {
        // No method waits for another request of the mount.
        true
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        // The source's ACLs are obeyed, and not only kept; a default ACL takes the place of the umask.
        negotiation.want(InitFlags::POSIX_ACL | InitFlags::DONT_MASK);
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        self.at(subject)?.attr()
    }

    fn opendir(&self, _: &Context<'_>, path: &Path) -> Result<Opened> {
        Ok(Opened::new(self.listed.insert(self.source.stream(path)?)))
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        self.listed.get(at)?.ok_or(Errno::BADF)?.list(listing)
    }

    fn releasedir(&self, _: &Context<'_>, at: Subject<'_>) -> Result<()> {
        self.listed.remove(at).map(drop).ok_or(Errno::BADF)
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>> {
        self.source.file(path)?.target()
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let place = self.source.place(path)?;
        place.mknod(new)?;
        give(cx, &place, Some(new), AtFlags::empty())
    }

    fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let place = self.source.place(path)?;
        place.mkdir(new)?;
        give(cx, &place, None, AtFlags::REMOVEDIR)
    }

    fn symlink(&self, cx: &Context<'_>, path: &Path, target: &CStr) -> Result<()> {
        let place = self.source.place(path)?;
        fs::symlinkat(target, &place, place.name())?;
        give(cx, &place, None, AtFlags::empty())
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        let place = self.source.place(path)?;
        fs::unlinkat(&place, place.name(), AtFlags::empty())
    }

    fn rmdir(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        let place = self.source.place(path)?;
        fs::unlinkat(&place, place.name(), AtFlags::REMOVEDIR)
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        let (from, to) = (self.source.place(from)?, self.source.place(to)?);
        fs::renameat_with(&from, from.name(), &to, to.name(), flags)
    }

    fn link(&self, _: &Context<'_>, existing: Subject<'_>, new: &Path) -> Result<()> {
        self.at(existing)?.link(&self.source.place(new)?)
    }

    fn chmod(&self, _: &Context<'_>, subject: Subject<'_>, mode: u32) -> Result<()> {
        self.at(subject)?.chmod(mode)
    }

    fn chown(&self, _: &Context<'_>, subject: Subject<'_>, owner: Owner) -> Result<()> {
        self.at(subject)?.chown(owner)
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        self.at(subject)?.truncate(size)
    }

    fn utimens(&self, _: &Context<'_>, subject: Subject<'_>, times: Times) -> Result<()> {
        self.at(subject)?.utimens(times)
    }

    fn open(&self, _: &Context<'_>, path: &Path, open: Open) -> Result<Opened> {
        let file = self.source.open(path, open)?;
        Ok(Opened::new(self.open.insert(file)))
    }

    fn create(&self, cx: &Context<'_>, path: &Path, new: New, open: Open) -> Result<Opened> {
        let file = self.source.place(path)?.create(cx, new, open)?;
        Ok(Opened::new(self.open.insert(file)))
    }

    fn tmpfile(&self, cx: &Context<'_>, path: &Path, new: New, open: Open) -> Result<Opened> {
        let file = self.source.unnamed(cx, path, new, open)?;
        Ok(Opened::new(self.open.insert(file)))
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        self.open.remove(file).map(drop).ok_or(Errno::BADF)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(self.at(file)?.read(offset, size))
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        self.at(file)?.write(at, data)
    }

    fn fsync(&self, _: &Context<'_>, file: Subject<'_>, _: bool) -> Result<()> {
        fs::fsync(self.at(file)?)
    }

    fn fsyncdir(&self, _: &Context<'_>, at: Subject<'_>, _: bool) -> Result<()> {
        fs::fsync(self.listed.get(at)?.ok_or(Errno::BADF)?)
    }

    fn fallocate(&self, _: &Context<'_>, file: Subject<'_>, range: Allocation) -> Result<()> {
        self.at(file)?.allocate(range)
    }

    fn statfs(&self, _: &Context<'_>, _: &Path) -> Result<StatfsAnswer> {
        Ok(StatfsAnswer::from(&fs::fstatvfs(&self.source)?))
    }

    fn setxattr(&self, _: &Context<'_>, at: Subject<'_>, xattr: SetXattr<'_>) -> Result<()> {
        self.at(at)?.set_xattr(xattr)
    }

    fn getxattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<Vec<u8>> {
        self.at(subject)?.get_xattr(name)
    }

    fn listxattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Vec<u8>> {
        self.at(subject)?.list_xattrs()
    }

    fn removexattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<()> {
        self.at(subject)?.remove_xattr(name)
    }
}

fn main() -> ExitCode {
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    Program::new("mirror")
        .about("A directory passed through")
        .source_path("SOURCE")
        .mount_options(for_all())
        .path_options(options)
        .run(|given| {
            let source = Directory::new(&given.source)?.mount_flags(given.mount_options.flags);
            // The callers' counts.
            rustix::process::umask(Mode::empty());
            let mirror = Mirror {
                source,
                open: Handles::default(),
                listed: Handles::default(),
            };
            Ok(Adapter::new(mirror, given.path_options))
        })
}
