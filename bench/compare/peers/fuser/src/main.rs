//! A directory passed through with fuser, for comparison. With the fastest settings that its documentation
//! offers: several event loops with cloned descriptors, names and attributes cached for good, negative
//! entries, cached directories, FOPEN_KEEP_CACHE and FOPEN_NOFLUSH, requests of 1 MiB.

mod files;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use peer_lower::{Change, Entry, Lower, Options};
use rustix::fs::{self, AtFlags, CWD, Mode, Stat, Timespec};

use files::Files;

const GENERATION: Generation = Generation(0);

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH
        + Duration::new(
            seconds.max(0).cast_unsigned(),
            u32::try_from(nanoseconds).unwrap_or(0),
        )
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attributes(stat: &Stat) -> FileAttr {
    let changed = time(stat.st_ctime, stat.st_ctime_nsec);
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: changed,
        crtime: changed,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// What stands for a name that does not exist: the kernel remembers node id 0.
fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

struct PassThrough {
    lower: Lower,
    options: Options,
    timeout: Duration,
    files: Files,
    listings: Mutex<HashMap<u64, Arc<Vec<Entry>>>>,
}

impl PassThrough {
    /// Does something in a directory, and answers with the entry of the name.
    fn made(&self, parent: INodeNo, name: &OsStr, done: rustix::io::Result<()>, reply: ReplyEntry) {
        let made = done.map_err(io::Error::from);
        match made.and_then(|()| self.lower.lookup(parent.0, name)) {
            Ok(stat) => reply.entry(&self.timeout, &attributes(&stat), GENERATION),
            Err(error) => reply.error(error.into()),
        }
    }

    fn listing(&self, handle: FileHandle) -> io::Result<Arc<Vec<Entry>>> {
        let listings = self.listings.lock().map_err(|_| io::ErrorKind::Other)?;
        let found = listings.get(&handle.0).cloned();
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

fn empty(result: rustix::io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from_i32(error.raw_os_error())),
    }
}

macro_rules! or_error {
    ($result:expr, $reply:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $reply.error(io::Error::from(error).into()),
        }
    };
}

impl Filesystem for PassThrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_ASYNC_DIO;
        if self.options.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        if self.options.zero_open {
            wanted |= InitFlags::FUSE_NO_OPEN_SUPPORT;
        }
        if self.options.passthrough {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
            let _ = config.set_max_stack_depth(1);
        }
        config.add_capabilities(wanted).map_err(|missing| {
            let text = format!("the kernel does not offer {missing:?}");
            io::Error::new(io::ErrorKind::Unsupported, text)
        })?;
        let _ = config.set_max_background(64);
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.lower.lookup(parent.0, name) {
            Ok(stat) => reply.entry(&self.timeout, &attributes(&stat), GENERATION),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                reply.entry(&self.timeout, &nothing(), GENERATION);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.lower.forget(ino.0, count);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let stat = or_error!(self.lower.node(ino.0).and_then(|node| node.stat()), reply);
        reply.attr(&self.timeout, &attributes(&stat));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let moment = |given: TimeOrNow| match given {
            TimeOrNow::Now => Timespec {
                tv_sec: 0,
                tv_nsec: libc::UTIME_NOW,
            },
            TimeOrNow::SpecificTime(at) => {
                let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                Timespec {
                    tv_sec: since.as_secs().cast_signed(),
                    tv_nsec: since.subsec_nanos().into(),
                }
            }
        };
        let change = Change {
            mode,
            uid,
            gid,
            size,
            times: [atime.map(moment), mtime.map(moment)],
        };
        let stat = or_error!(self.lower.set(ino.0, &change), reply);
        reply.attr(&self.timeout, &attributes(&stat));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let node = or_error!(self.lower.node(ino.0), reply);
        let target = or_error!(fs::readlinkat(&node.path, "", Vec::new()), reply);
        reply.data(target.as_bytes());
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let node = or_error!(self.lower.node(parent.0), reply);
        let permissions = Mode::from_raw_mode(mode & 0o7777 & !umask);
        let kind = fs::FileType::from_raw_mode(mode);
        self.made(
            parent,
            name,
            fs::mknodat(&node.path, name, kind, permissions, rdev.into()),
            reply,
        );
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let node = or_error!(self.lower.node(parent.0), reply);
        let permissions = Mode::from_raw_mode(mode & 0o7777 & !umask);
        self.made(
            parent,
            name,
            fs::mkdirat(&node.path, name, permissions),
            reply,
        );
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let node = or_error!(self.lower.node(parent.0), reply);
        self.made(parent, name, fs::symlinkat(target, &node.path, name), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let old = or_error!(self.lower.node(ino.0), reply);
        let new = or_error!(self.lower.node(parent.0), reply);
        let linked = fs::linkat(
            CWD,
            old.magic_link(),
            &new.path,
            name,
            AtFlags::SYMLINK_FOLLOW,
        );
        self.made(parent, name, linked, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let node = or_error!(self.lower.node(parent.0), reply);
        empty(fs::unlinkat(&node.path, name, AtFlags::empty()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let node = or_error!(self.lower.node(parent.0), reply);
        empty(fs::unlinkat(&node.path, name, AtFlags::REMOVEDIR), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let old = or_error!(self.lower.node(parent.0), reply);
        let new = or_error!(self.lower.node(new_parent.0), reply);
        let flags = fs::RenameFlags::from_bits_retain(flags.bits());
        empty(
            fs::renameat_with(&old.path, name, &new.path, new_name, flags),
            reply,
        );
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_file(ino, flags.0, reply);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.create_file(parent, name, mode & 0o7777 & !umask, flags, reply);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read_file(ino, handle, offset, size, reply);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.with_file(ino, handle, |fd| rustix::io::pwrite(fd, data, offset));
        let written = or_error!(written, reply);
        reply.written(u32::try_from(written).unwrap_or(u32::MAX));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is kept here that a flush could write; after ENOSYS the kernel asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        let done = self.with_file(ino, handle, |fd| {
            if data {
                fs::fdatasync(fd)
            } else {
                fs::fsync(fd)
            }
        });
        or_error!(done, reply);
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.release(handle);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let entries = Arc::new(or_error!(self.lower.list(ino.0), reply));
        let handle = self.files.number();
        if let Ok(mut listings) = self.listings.lock() {
            listings.insert(handle, entries);
        }
        let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        reply.opened(FileHandle(handle), flags);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = or_error!(self.listing(handle), reply);
        for (at, entry) in listing.iter().enumerate().skip(offset as usize) {
            if reply.add(
                INodeNo(entry.ino),
                at as u64 + 1,
                kind(entry.kind),
                &entry.name,
            ) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listing = or_error!(self.listing(handle), reply);
        for (at, entry) in listing.iter().enumerate().skip(offset as usize) {
            let dots = entry.name == "." || entry.name == "..";
            let found = if dots {
                None
            } else {
                self.lower.lookup(ino.0, &entry.name).ok()
            };
            let mut attr = found.as_ref().map_or_else(nothing, attributes);
            let id = attr.ino;
            attr.ino = INodeNo(entry.ino);
            if reply.add(
                id,
                at as u64 + 1,
                &entry.name,
                &self.timeout,
                &attr,
                GENERATION,
            ) {
                self.lower.forget(id.0, u64::from(found.is_some()));
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        if let Ok(mut listings) = self.listings.lock() {
            listings.remove(&handle.0);
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let node = or_error!(self.lower.node(ino.0), reply);
        let stat = or_error!(fs::fstatvfs(&node.path), reply);
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        reply.statfs(
            stat.f_blocks,
            stat.f_bfree,
            stat.f_bavail,
            stat.f_files,
            stat.f_ffree,
            size(stat.f_bsize),
            size(stat.f_namemax),
            size(stat.f_frsize),
        );
    }
}

fn main() -> io::Result<()> {
    let options = peer_lower::parse();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("fuser".to_owned()),
        MountOption::Subtype("fuser".to_owned()),
    ];
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    let mountpoint = options.mountpoint.clone();
    let file_system = PassThrough {
        lower: Lower::open(&options.source)?,
        timeout: options.timeout(),
        files: Files::default(),
        listings: Mutex::default(),
        options,
    };
    fuser::mount(file_system, mountpoint, &config)
}
