//! From paths to what is below.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dev, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};

use super::{File, Stream};
use crate::mount::GenericFlags;
use crate::ops::decode_device;
use crate::path::{Handles, Listing, New, Open, Subject};
use crate::{Context, Errno, Result};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// What opening takes over. The kernel sends others, too, which openat2(2) would refuse.
const OPEN: OFlags = OFlags::RWMODE
    .union(OFlags::TRUNC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::SYNC)
    .union(OFlags::NOATIME);

/// A directory of the machine that paths of the mount lead into. As a descriptor it is the directory
/// itself, for instance for fstatvfs(2).
#[derive(Debug)]
pub struct Directory {
    root: OwnedFd,
    device: Dev,
    /// Of the mount, those that say which access times stay.
    flags: GenericFlags,
}

impl Directory {
    /// The directory at a path of the machine, wherever it is moved later.
    ///
    /// # Errors
    /// When it cannot be opened, or is no directory; with the path.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let opened = fs::open(path, DIRECTORY | OFlags::PATH, Mode::empty())
            .and_then(|root| Ok((fs::fstat(&root)?.st_dev, root)));
        match opened {
            Ok((device, root)) => Ok(Self {
                root,
                device,
                flags: GenericFlags::empty(),
            }),
            Err(errno) => {
                let what = format!("open directory {}: {errno}", path.display());
                Err(io::Error::new(io::Error::from(errno).kind(), what))
            }
        }
    }

    /// With `noatime` and `nodiratime` reading through a mount with these flags leaves access times here as they are,
    /// too, where this process may ask for that (O_NOATIME).
    #[must_use]
    pub fn mount_flags(mut self, flags: GenericFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Opens what is below a path, without changing its access time when it is read if the mount has one of `flags`.
    fn resolve_to_read(&self, path: &Path, how: OFlags, flags: GenericFlags) -> Result<OwnedFd> {
        if !self.flags.intersects(flags) {
            return self.resolve(path, how);
        }
        match self.resolve(path, how | OFlags::NOATIME) {
            // Neither the owner of the file nor root.
            Err(Errno::PERM) => self.resolve(path, how),
            opened => opened,
        }
    }

    /// Opens what is below a path of the mount, following no symbolic link.
    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() {
            Path::new(".")
        } else {
            below
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat2(&self.root, below, flags, Mode::empty(), resolve)
    }

    /// What is at a path, a symbolic link included: to be asked for and changed, not for its contents.
    ///
    /// # Errors
    /// As open(2); ELOOP where a symbolic link is in the middle of the path.
    pub fn file(&self, path: &Path) -> Result<File> {
        let found = self.resolve(path, OFlags::PATH);
        found.map(|found| File::numbered_on(self.device, found))
    }

    /// What an operation is about: the open file that its handle stands for, or else what is at its
    /// path.
    ///
    /// # Errors
    /// EBADF for a handle that is not open; else as [`Directory::file`].
    pub fn find(&self, open: &Handles<File>, subject: Subject<'_>) -> Result<File> {
        match open.get(subject)? {
            Some(file) => Ok(File::clone(&file)),
            None => self.file(subject.path()?),
        }
    }

    /// Opens a file as the kernel asks for it. Not with O_APPEND, since the kernel appends at the
    /// offset that it knows, and not with O_DIRECT, since its buffers are not aligned.
    ///
    /// # Errors
    /// As open(2); ELOOP where a symbolic link is in the path.
    pub fn open(&self, path: &Path, open: Open) -> Result<File> {
        let flags = OFlags::from_bits_retain(open.flags).intersection(OPEN);
        let opened = self.resolve_to_read(path, flags, GenericFlags::NO_ATIME);
        opened.map(|opened| File::numbered_on(self.device, opened))
    }

    /// Makes a file without a name in a directory, the caller's as [`Place::give`] has it, and opens it
    /// (O_TMPFILE).
    ///
    /// # Errors
    /// As open(2).
    pub fn unnamed(&self, cx: &Context<'_>, path: &Path, new: New, open: Open) -> Result<File> {
        let directory = self.resolve(path, DIRECTORY)?;
        let flags = OFlags::from_bits_retain(open.flags).intersection(OPEN);
        let flags = flags | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = masked(&directory, new);
        let made = fs::openat(&directory, ".", flags, mode)?;
        let made = File::numbered_on(self.device, made);
        give_to(&made, &directory, cx.uid(), cx.gid(), Some(new))?;
        Ok(made)
    }

    /// The name that a path ends in, within the directory that it is in.
    ///
    /// # Errors
    /// As open(2) of that directory; ENOTDIR where it is a symbolic link. EBUSY for the root, which
    /// has no name.
    pub fn place<'a>(&self, path: &'a Path) -> Result<Place<'a>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::BUSY);
        };
        let parent = self.resolve(parent, DIRECTORY | OFlags::PATH)?;
        let device = self.device;
        Ok(Place {
            parent,
            name,
            device,
        })
    }

    /// Adds what a directory holds to a listing, in one piece, with the inode numbers that [`File::attr`] tells, and with
    /// attributes where the kernel takes them, which it does of the first names alone: [`Directory::stream`] has them all.
    ///
    /// # Errors
    /// As open(2) and getdents(2); ENOTDIR for a symbolic link.
    pub fn list(&self, path: &Path, listing: &mut Listing) -> Result<()> {
        self.stream(path)?.list_whole(listing)
    }

    /// Opens a directory, to be listed.
    ///
    /// # Errors
    /// As open(2); ENOTDIR for a symbolic link.
    pub fn stream(&self, path: &Path) -> Result<Stream> {
        let quiet = GenericFlags::NO_ATIME | GenericFlags::NO_DIR_ATIME;
        let directory = self.resolve_to_read(path, DIRECTORY, quiet)?;
        Stream::new(directory, self.device)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// A name in a directory, whether there is something of that name or not. As a descriptor it is the
/// directory, so that both are what the `*at` calls ask for.
#[derive(Debug)]
pub struct Place<'a> {
    parent: OwnedFd,
    name: &'a OsStr,
    /// Of the [`Directory`] that led to it.
    device: Dev,
}

impl Place<'_> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        self.name
    }

    /// Makes an empty file, a device, a socket or a pipe of this name, as MKNOD asks for it.
    ///
    /// # Errors
    /// As mknod(2).
    pub fn mknod(&self, new: New) -> Result<()> {
        let mode = masked(&self.parent, new);
        let kind = FileType::from_raw_mode(new.mode);
        let (major, minor) = decode_device(new.rdev);
        let device = fs::makedev(major, minor);
        fs::mknodat(&self.parent, self.name, kind, mode, device)
    }

    /// Makes a file of this name, the caller's as [`Place::give`] has it, and opens it, as CREATE asks for it: for
    /// writing, too, where its permissions let nobody write it.
    ///
    /// # Errors
    /// As open(2) with O_EXCL: EEXIST for a name that is taken, since the kernel asks nobody whether the caller may
    /// open what CREATE opens. As [`Place::give`]: the file is removed again then.
    pub fn create(&self, cx: &Context<'_>, new: New, open: Open) -> Result<File> {
        self.create_for(cx.uid(), cx.gid(), new, open)
    }

    fn create_for(&self, user: u32, group: u32, new: New, open: Open) -> Result<File> {
        let made = self.make_open(new, open)?;
        if let Err(errno) = give_to(&made, &self.parent, user, group, Some(new)) {
            // Who is told of an error cannot know that there is something to be removed.
            if let Err(error) = fs::unlinkat(&self.parent, self.name, AtFlags::empty()) {
                let name = self.name;
                tracing::warn!("{name:?} stays, though it cannot be given to user {user}: {error}");
            }
            return Err(errno);
        }
        Ok(made)
    }

    fn make_open(&self, new: New, open: Open) -> Result<File> {
        let flags = OFlags::from_bits_retain(open.flags).intersection(OPEN);
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = masked(&self.parent, new);
        let made = fs::openat(&self.parent, self.name, flags, mode);
        made.map(|made| File::numbered_on(self.device, made))
    }

    /// Makes a directory of this name, as MKDIR asks for it.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, new: New) -> Result<()> {
        fs::mkdirat(&self.parent, self.name, masked(&self.parent, new))
    }

    /// Gives what was just made here to the caller, but for the group in a directory that gives its
    /// own (set-group-id). `new` are the permissions of what is no symbolic link: a change of owner
    /// takes set-id bits away, so that those of a file are put back.
    ///
    /// # Errors
    /// As chown(2) and chmod(2).
    pub fn give(&self, cx: &Context<'_>, new: Option<New>) -> Result<()> {
        self.give_to(cx.uid(), cx.gid(), new)
    }

    fn give_to(&self, user: u32, group: u32, new: Option<New>) -> Result<()> {
        // By its descriptor from here on: the name may be a symbolic link by now.
        let itself = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = File::from(fs::openat(&self.parent, self.name, itself, Mode::empty())?);
        give_to(&made, &self.parent, user, group, new)
    }
}

/// The permissions of what is made in a directory: without the umask, unless there is a default ACL.
fn masked(directory: &OwnedFd, new: New) -> Mode {
    if new.mode & new.umask & 0o777 == 0 {
        return Mode::from_raw_mode(new.mode);
    }
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mut room = [0; 1];
    let umask = match fs::getxattr(path, c"system.posix_acl_default", &mut room) {
        // Too long for the room is long enough to be one.
        Ok(_) | Err(Errno::RANGE) => 0,
        Err(_) => new.umask & 0o777,
    };
    Mode::from_raw_mode(new.mode & !umask)
}

fn give_to(made: &File, parent: &OwnedFd, user: u32, group: u32, new: Option<New>) -> Result<()> {
    let before = fs::fstat(made)?;
    if (before.st_uid, before.st_gid) == (user, group) {
        return Ok(());
    }
    let inherits = fs::fstat(parent)?.st_mode & 0o2000 != 0;
    let group = Some(Gid::from_raw(group)).filter(|_| !inherits);
    let user = Some(Uid::from_raw(user));
    fs::chownat(made, "", user, group, AtFlags::EMPTY_PATH)?;
    match new {
        Some(new) if new.mode & 0o6000 != 0 => made.chmod(before.st_mode),
        _ => Ok(()),
    }
}

impl AsFd for Place<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use bickford_abi::OpenInFlags;
    use tempfile::TempDir;

    use super::*;
    use crate::ops::Payload;

    /// `dir/file`, and `secret` beside the directory that is shown.
    fn shown() -> (TempDir, Directory) {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        std::fs::create_dir_all(at("shown/dir")).unwrap();
        std::fs::create_dir(at("outside")).unwrap();
        std::fs::write(at("shown/dir/file"), "text").unwrap();
        std::fs::write(at("outside/file"), "secret").unwrap();
        let directory = Directory::new(at("shown")).unwrap();
        (temporary, directory)
    }

    fn open(flags: OFlags) -> Open {
        Open::new(flags.bits(), OpenInFlags::empty())
    }

    fn names(directory: &Directory, path: &str) -> Result<Vec<Vec<u8>>> {
        let mut listing = Listing::new(0, 4096, false);
        directory.list(path.as_ref(), &mut listing)?;
        let names = listing.into_names().into_iter();
        Ok(names.map(|name| name.name.into()).collect())
    }

    #[test]
    fn paths_lead_to_what_is_below() {
        let (temporary, directory) = shown();
        let file = directory.file("/dir/file".as_ref()).unwrap();
        assert_eq!(file.attr().unwrap().size, 4);
        let root = directory.file("/".as_ref()).unwrap().attr().unwrap();
        let metadata = temporary.path().join("shown").metadata().unwrap();
        assert_eq!(root.ino, metadata.ino());
        assert_eq!(names(&directory, "/").unwrap(), [b"dir"]);
        assert_eq!(names(&directory, "/dir").unwrap(), [b"file"]);
        let missing = directory.file("/dir/none".as_ref());
        assert_eq!(missing.err(), Some(Errno::NOENT));
        assert_eq!(names(&directory, "/dir/file"), Err(Errno::NOTDIR));
    }

    /// Files of two devices may have one number.
    #[test]
    fn numbers_are_those_of_one_device() {
        let top = Directory::new("/").unwrap();
        let attr = |path: &str| top.file(path.as_ref()).unwrap().attr().unwrap();
        let numbers = |path: &str| {
            let mut listing = Listing::new(0, 4096, false);
            top.list(path.as_ref(), &mut listing).unwrap();
            let names = listing.into_names().into_iter();
            names.map(|name| name.ino).collect::<Vec<_>>()
        };
        assert_ne!(attr("/").ino, 0);
        assert!(numbers("/").iter().any(|ino| *ino != 0));
        // Another device, wherever tests run.
        assert_eq!([attr("/proc").ino, attr("/proc/version").ino], [0, 0]);
        assert!(numbers("/proc").iter().all(|ino| *ino == 0));
        let reading = open(OFlags::RDONLY);
        let file = top.open("/proc/version".as_ref(), reading).unwrap();
        assert_eq!(file.attr().unwrap().ino, 0);
    }

    #[test]
    fn nothing_leads_out() {
        let (temporary, directory) = shown();
        let at = |name: &str| temporary.path().join(name);
        std::fs::rename(at("shown/dir"), at("shown/away")).unwrap();
        symlink("../outside", at("shown/dir")).unwrap();
        symlink("away/file", at("shown/link")).unwrap();
        let path = Path::new("/dir/file");
        assert_eq!(directory.file(path).err(), Some(Errno::LOOP));
        let reading = open(OFlags::RDONLY);
        assert_eq!(directory.open(path, reading).err(), Some(Errno::LOOP));
        assert_eq!(directory.place(path).err(), Some(Errno::NOTDIR));
        let deeper = directory.place("/dir/file/new".as_ref());
        assert_eq!(deeper.err(), Some(Errno::LOOP));
        assert_eq!(names(&directory, "/dir"), Err(Errno::NOTDIR));
        let link = Path::new("/link");
        assert_eq!(directory.open(link, reading).err(), Some(Errno::LOOP));
        // The link itself is something to ask for.
        let attr = directory.file(link).unwrap().attr().unwrap();
        assert_eq!(attr.file_type(), 0o120_000);
        let above = directory.file("/../outside/file".as_ref());
        assert_eq!(above.err(), Some(Errno::XDEV));
    }

    #[test]
    fn access_times_are_what_the_mount_says() {
        let (temporary, directory) = shown();
        let lower = temporary.path().join("shown/dir");
        let read = |directory: &Directory| {
            for path in [lower.join("file"), lower.clone()] {
                let old = std::fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
                let file = std::fs::File::open(path).unwrap();
                file.set_times(old).unwrap();
            }
            let reading = open(OFlags::RDONLY);
            let file = directory.open("/dir/file".as_ref(), reading).unwrap();
            assert_eq!(file.read(0, 4).into_bytes().unwrap(), b"text");
            names(directory, "/dir").unwrap();
            [lower.join("file"), lower.clone()].map(|path| path.metadata().unwrap().atime() == 0)
        };
        if read(&directory) != [false, false] {
            crate::watchdog::say(format_args!(
                "SKIPPED: the directory of temporary files keeps no access times"
            ));
            return;
        }
        for (flags, expected) in [
            (GenericFlags::NO_ATIME, [true, true]),
            (GenericFlags::NO_DIR_ATIME, [false, true]),
            (GenericFlags::empty(), [false, false]),
        ] {
            let directory = Directory::new(temporary.path().join("shown")).unwrap();
            assert_eq!(read(&directory.mount_flags(flags)), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let error = Directory::new("/nowhere/at/all").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
        assert!(Directory::new("/proc/self/status").is_err());
    }

    #[test]
    fn places_are_names_in_directories() {
        let (temporary, directory) = shown();
        let place = directory.place("/dir/new".as_ref()).unwrap();
        fs::mkdirat(&place, place.name(), Mode::from_raw_mode(0o700)).unwrap();
        assert!(temporary.path().join("shown/dir/new").is_dir());
        let place = directory.place("/dir/masked".as_ref()).unwrap();
        place.mkdir(New::with_mode(0o040_777, 0, 0o027)).unwrap();
        let made = temporary.path().join("shown/dir/masked").metadata();
        assert_eq!(made.unwrap().mode() & 0o777, 0o750);
        let place = directory.place("/dir/pipe".as_ref()).unwrap();
        place.mknod(New::of_mode(0o010_600)).unwrap();
        assert_eq!(place.mknod(New::of_mode(0o100_600)), Err(Errno::EXIST));
        let made = temporary.path().join("shown/dir/pipe").metadata().unwrap();
        assert_eq!(made.mode() & 0o170_000, 0o010_000);
        let place = directory.place("/dir/open".as_ref()).unwrap();
        let (new, writing) = (New::with_mode(0o100_444, 0, 0o004), open(OFlags::RDWR));
        let file = place.make_open(new, writing).unwrap();
        assert_eq!(file.write(0, Payload::from_bytes(b"text")), Ok(4));
        assert_eq!(file.attr().unwrap().mode, 0o100_440);
        let again = place.make_open(new, open(OFlags::RDONLY | OFlags::CREATE));
        assert_eq!(again.err(), Some(Errno::EXIST));
        let root = directory.place("/".as_ref());
        assert_eq!(root.err(), Some(Errno::BUSY));
        let missing = directory.place("/none/new".as_ref());
        assert_eq!(missing.err(), Some(Errno::NOENT));
    }

    #[test]
    fn what_cannot_be_given_is_not_made() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let unprivileged = || {
            let mut fewer = capabilities(None).unwrap();
            fewer.effective.remove(CapabilitySet::CHOWN);
            set_capabilities(None, fewer).unwrap();
            let (_temporary, directory) = shown();
            let place = directory.place("/dir/new".as_ref()).unwrap();
            let other = rustix::process::geteuid().as_raw() + 1;
            let group = rustix::process::getegid().as_raw();
            let made = place.create_for(other, group, New::of_mode(0o100_600), open(OFlags::RDWR));
            assert_eq!(made.err(), Some(Errno::PERM));
            assert_eq!(names(&directory, "/dir").unwrap(), [b"file"]);
        };
        std::thread::scope(|scope| scope.spawn(unprivileged).join().unwrap());
    }

    #[test]
    fn a_handle_goes_before_a_path() {
        let (temporary, directory) = shown();
        let path = Path::new("/dir/file");
        let file = directory.open(path, open(OFlags::RDONLY)).unwrap();
        let files = Handles::default();
        let handle = files.insert(file);
        std::fs::remove_file(temporary.path().join("shown/dir/file")).unwrap();
        let subject = Subject::new(Some(path), Some(handle));
        let found = directory.find(&files, subject).unwrap();
        assert_eq!(found.attr().unwrap().links, 0);
        let by_path = directory.find(&files, path.into());
        assert_eq!(by_path.err(), Some(Errno::NOENT));
        drop(files.remove(subject));
        let closed = directory.find(&files, subject);
        assert_eq!(closed.err(), Some(Errno::BADF));
    }

    #[test]
    fn the_flags_of_the_kernel_open() {
        let (temporary, directory) = shown();
        let path = Path::new("/dir/file");
        // 0x20 is what execve(2) opens with.
        for other in [
            OFlags::APPEND,
            OFlags::DIRECT,
            OFlags::from_bits_retain(0x20),
        ] {
            let file = directory.open(path, open(OFlags::RDWR | other)).unwrap();
            let written = file.write(1, Payload::from_bytes(b"i"));
            assert_eq!(written, Ok(1), "{other:?}");
        }
        let contents = std::fs::read(temporary.path().join("shown/dir/file")).unwrap();
        assert_eq!(contents, b"tixt");
        let reading = directory.open(path, open(OFlags::RDONLY)).unwrap();
        let written = reading.write(0, Payload::from_bytes(b"i"));
        assert_eq!(written, Err(Errno::BADF));
        assert_eq!(reading.read(1, 9).into_bytes().unwrap(), b"ixt");
    }

    #[test]
    fn what_is_made_is_given_with_its_permissions() {
        if !rustix::process::geteuid().is_root() {
            crate::watchdog::say(format_args!("SKIPPED: not root, and owners are changed"));
            return;
        }
        let (temporary, directory) = shown();
        let lower = temporary.path().join("shown/dir");
        let set_group = std::fs::Permissions::from_mode(0o2755);
        for (group, inherits) in [(8, false), (0, true)] {
            let name = format!("/dir/new{group}");
            let place = directory.place(name.as_ref()).unwrap();
            if inherits {
                std::fs::set_permissions(&lower, set_group.clone()).unwrap();
            }
            let new = New::of_mode(0o106_711);
            std::fs::write(lower.join(place.name()), "").unwrap();
            let mode = std::fs::Permissions::from_mode(new.mode);
            std::fs::set_permissions(lower.join(place.name()), mode).unwrap();
            place.give_to(7, 8, Some(new)).unwrap();
            let made = lower.join(place.name()).metadata().unwrap();
            assert_eq!((made.uid(), made.gid()), (7, group));
            assert_eq!(made.mode() & 0o7777, 0o6711);
        }
        // Not to what a symbolic link leads to.
        symlink("file", lower.join("link")).unwrap();
        let place = directory.place("/dir/link".as_ref()).unwrap();
        place.give_to(7, 8, None).unwrap();
        assert_eq!(lower.join("file").metadata().unwrap().uid(), 0);
        assert_eq!(lower.join("link").symlink_metadata().unwrap().uid(), 7);
    }
}
