//! A directory passed through with fuse3, for comparison. With the fastest settings that its documentation
//! offers: a multi-threaded runtime, names and attributes cached for good, negative entries, cached
//! directories and data, requests of 1 MiB. Lower calls are made where the handler runs: handing them to
//! the runtime's threads for blocking work costs more than they do.

mod attributes;
mod files;

use std::ffi::OsStr;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fuse3::raw::prelude::*;
use fuse3::{Errno, Inode, MountOptions, Result, SetAttr};
use futures_util::stream::{self, Stream};
use peer_lower::{Change, Entry, Lower, Options};
use rustix::fs::{self, AtFlags, CWD, Mode, Timespec};

use attributes::{attributes, kind, nothing};
use files::Files;

const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_KEEP_CACHE: u32 = 1 << 1;
const FOPEN_CACHE_DIR: u32 = 1 << 3;
const FOPEN_NOFLUSH: u32 = 1 << 5;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

struct PassThrough {
    lower: Lower,
    options: Options,
    timeout: Duration,
    files: Files<std::os::fd::OwnedFd>,
    listings: Files<Vec<Entry>>,
}

fn system(error: rustix::io::Errno) -> Errno {
    error.raw_os_error().into()
}

impl PassThrough {
    fn entry(&self, parent: Inode, name: &OsStr) -> Result<ReplyEntry> {
        let stat = self.lower.lookup(parent, name)?;
        Ok(ReplyEntry {
            ttl: self.timeout,
            attr: attributes(&stat),
            generation: 0,
        })
    }

    fn attr(&self, stat: &fs::Stat) -> ReplyAttr {
        ReplyAttr {
            ttl: self.timeout,
            attr: attributes(stat),
        }
    }

    fn open_flags(&self) -> u32 {
        FOPEN_NOFLUSH
            | match self.options.direct {
                true => FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES,
                false => FOPEN_KEEP_CACHE,
            }
    }

    /// Uses the file of a handle, or the node's own descriptor where there is none.
    fn with_file<T>(
        &self,
        inode: Inode,
        handle: u64,
        use_it: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Result<T> {
        if handle == 0 {
            let node = self.lower.node(inode)?;
            return use_it(node.data()?).map_err(system);
        }
        let file = self.files.get(handle)?;
        use_it(file.as_fd()).map_err(system)
    }

    fn rename_it(&self, old: (Inode, &OsStr), new: (Inode, &OsStr), flags: u32) -> Result<()> {
        let from = self.lower.node(old.0)?;
        let to = self.lower.node(new.0)?;
        let flags = fs::RenameFlags::from_bits_retain(flags);
        fs::renameat_with(&from.path, old.1, &to.path, new.1, flags).map_err(system)
    }

    fn plus(&self, parent: Inode, at: usize, entry: &Entry) -> DirectoryEntryPlus {
        let dots = entry.name == "." || entry.name == "..";
        let found = match dots {
            true => None,
            false => self.lower.lookup(parent, &entry.name).ok(),
        };
        DirectoryEntryPlus {
            inode: entry.ino,
            generation: 0,
            kind: kind(entry.kind),
            name: entry.name.clone(),
            offset: at as i64 + 1,
            attr: found.as_ref().map_or_else(nothing, attributes),
            entry_ttl: self.timeout,
            attr_ttl: self.timeout,
        }
    }
}

impl Filesystem for PassThrough {
    async fn init(&self, _: Request) -> Result<ReplyInit> {
        let mut reply = ReplyInit::new(NonZeroU32::MIN.saturating_add((1 << 20) - 1));
        reply.max_background = Some(64);
        Ok(reply)
    }

    async fn destroy(&self, _: Request) {}

    async fn lookup(&self, _: Request, parent: Inode, name: &OsStr) -> Result<ReplyEntry> {
        match self.entry(parent, name) {
            // Node id 0 makes the kernel remember that there is no such name.
            Err(error) if error == Errno::from(libc::ENOENT) => Ok(ReplyEntry {
                ttl: self.timeout,
                attr: nothing(),
                generation: 0,
            }),
            other => other,
        }
    }

    async fn forget(&self, _: Request, inode: Inode, count: u64) {
        self.lower.forget(inode, count);
    }

    async fn batch_forget(&self, _: Request, inodes: &[(Inode, u64)]) {
        for (inode, count) in inodes {
            self.lower.forget(*inode, *count);
        }
    }

    async fn getattr(&self, _: Request, inode: Inode, _: Option<u64>, _: u32) -> Result<ReplyAttr> {
        Ok(self.attr(&self.lower.node(inode)?.stat()?))
    }

    async fn setattr(
        &self,
        _: Request,
        inode: Inode,
        _: Option<u64>,
        set: SetAttr,
    ) -> Result<ReplyAttr> {
        let moment = |at: fuse3::Timestamp| Timespec {
            tv_sec: at.sec,
            tv_nsec: at.nsec.into(),
        };
        let change = Change {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            times: [set.atime.map(moment), set.mtime.map(moment)],
        };
        Ok(self.attr(&self.lower.set(inode, &change)?))
    }

    async fn readlink(&self, _: Request, inode: Inode) -> Result<ReplyData> {
        let node = self.lower.node(inode)?;
        let target = fs::readlinkat(&node.path, "", Vec::new()).map_err(system)?;
        Ok(Bytes::from(target.into_bytes()).into())
    }

    async fn symlink(
        &self,
        _: Request,
        parent: Inode,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<ReplyEntry> {
        let node = self.lower.node(parent)?;
        fs::symlinkat(target, &node.path, name).map_err(system)?;
        self.entry(parent, name)
    }

    async fn mknod(
        &self,
        _: Request,
        parent: Inode,
        name: &OsStr,
        mode: u32,
        rdev: u32,
    ) -> Result<ReplyEntry> {
        let node = self.lower.node(parent)?;
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        let kind = fs::FileType::from_raw_mode(mode);
        fs::mknodat(&node.path, name, kind, permissions, rdev.into()).map_err(system)?;
        self.entry(parent, name)
    }

    async fn mkdir(
        &self,
        _: Request,
        parent: Inode,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Result<ReplyEntry> {
        let node = self.lower.node(parent)?;
        let permissions = Mode::from_raw_mode(mode & 0o7777 & !umask);
        fs::mkdirat(&node.path, name, permissions).map_err(system)?;
        self.entry(parent, name)
    }

    async fn unlink(&self, _: Request, parent: Inode, name: &OsStr) -> Result<()> {
        let node = self.lower.node(parent)?;
        fs::unlinkat(&node.path, name, AtFlags::empty()).map_err(system)
    }

    async fn rmdir(&self, _: Request, parent: Inode, name: &OsStr) -> Result<()> {
        let node = self.lower.node(parent)?;
        fs::unlinkat(&node.path, name, AtFlags::REMOVEDIR).map_err(system)
    }

    async fn rename(
        &self,
        _: Request,
        parent: Inode,
        name: &OsStr,
        new_parent: Inode,
        new_name: &OsStr,
    ) -> Result<()> {
        self.rename_it((parent, name), (new_parent, new_name), 0)
    }

    async fn rename2(
        &self,
        _: Request,
        parent: Inode,
        name: &OsStr,
        new_parent: Inode,
        new_name: &OsStr,
        flags: u32,
    ) -> Result<()> {
        self.rename_it((parent, name), (new_parent, new_name), flags)
    }

    async fn link(
        &self,
        _: Request,
        inode: Inode,
        parent: Inode,
        name: &OsStr,
    ) -> Result<ReplyEntry> {
        let old = self.lower.node(inode)?;
        let new = self.lower.node(parent)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        fs::linkat(CWD, old.magic_link(), &new.path, name, flags).map_err(system)?;
        self.entry(parent, name)
    }

    async fn open(&self, _: Request, inode: Inode, flags: u32) -> Result<ReplyOpen> {
        if self.options.zero_open {
            return Err(libc::ENOSYS.into());
        }
        let flags = self.options.lower_flags(flags.cast_signed());
        let fd = self.lower.node(inode)?.reopen(flags)?;
        Ok(ReplyOpen {
            fh: self.files.keep(fd),
            flags: self.open_flags(),
        })
    }

    async fn create(
        &self,
        _: Request,
        parent: Inode,
        name: &OsStr,
        mode: u32,
        flags: u32,
    ) -> Result<ReplyCreated> {
        let flags = self
            .options
            .lower_flags(flags.cast_signed())
            .cast_unsigned();
        let flags = fs::OFlags::from_bits_retain(flags)
            | fs::OFlags::CREATE
            | fs::OFlags::CLOEXEC
            | fs::OFlags::NOFOLLOW;
        let node = self.lower.node(parent)?;
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        let fd = fs::openat(&node.path, name, flags, permissions).map_err(system)?;
        let entry = self.entry(parent, name)?;
        Ok(ReplyCreated {
            ttl: entry.ttl,
            attr: entry.attr,
            generation: entry.generation,
            fh: self.files.keep(fd),
            flags: self.open_flags(),
        })
    }

    async fn read(
        &self,
        _: Request,
        inode: Inode,
        fh: u64,
        offset: u64,
        size: u32,
    ) -> Result<ReplyData> {
        let mut data = Vec::with_capacity(size as usize);
        self.with_file(inode, fh, |fd| {
            rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut data), offset)
        })?;
        Ok(Bytes::from(data).into())
    }

    async fn write(
        &self,
        _: Request,
        inode: Inode,
        fh: u64,
        offset: u64,
        data: &[u8],
        _: u32,
        _: u32,
    ) -> Result<ReplyWrite> {
        let written = self.with_file(inode, fh, |fd| rustix::io::pwrite(fd, data, offset))?;
        Ok(ReplyWrite {
            written: u32::try_from(written).unwrap_or(u32::MAX),
        })
    }

    async fn release(&self, _: Request, _: Inode, fh: u64, _: u32, _: u64, _: bool) -> Result<()> {
        self.files.drop(fh);
        Ok(())
    }

    async fn fsync(&self, _: Request, inode: Inode, fh: u64, data: bool) -> Result<()> {
        self.with_file(inode, fh, |fd| match data {
            true => fs::fdatasync(fd),
            false => fs::fsync(fd),
        })
    }

    async fn opendir(&self, _: Request, inode: Inode, _: u32) -> Result<ReplyOpen> {
        Ok(ReplyOpen {
            fh: self.listings.keep(self.lower.list(inode)?),
            flags: FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE,
        })
    }

    async fn readdir<'a>(
        &'a self,
        _: Request,
        _: Inode,
        fh: u64,
        offset: i64,
    ) -> Result<ReplyDirectory<impl Stream<Item = Result<DirectoryEntry>> + Send + 'a>> {
        let listing: Arc<Vec<Entry>> = self.listings.get(fh)?;
        let from = usize::try_from(offset).unwrap_or(0);
        let entries = (from..listing.len()).filter_map(move |at| {
            let entry = listing.get(at)?;
            Some(Ok(DirectoryEntry {
                inode: entry.ino,
                kind: kind(entry.kind),
                name: entry.name.clone(),
                offset: at as i64 + 1,
            }))
        });
        Ok(ReplyDirectory {
            entries: stream::iter(entries),
        })
    }

    async fn readdirplus<'a>(
        &'a self,
        _: Request,
        parent: Inode,
        fh: u64,
        offset: u64,
        _: u64,
    ) -> Result<ReplyDirectoryPlus<impl Stream<Item = Result<DirectoryEntryPlus>> + Send + 'a>>
    {
        let listing: Arc<Vec<Entry>> = self.listings.get(fh)?;
        let from = usize::try_from(offset).unwrap_or(0);
        let entries = (from..listing.len())
            .filter_map(move |at| Some(Ok(self.plus(parent, at, listing.get(at)?))));
        Ok(ReplyDirectoryPlus {
            entries: stream::iter(entries),
        })
    }

    async fn releasedir(&self, _: Request, _: Inode, fh: u64, _: u32) -> Result<()> {
        self.listings.drop(fh);
        Ok(())
    }

    async fn statfs(&self, _: Request, inode: Inode) -> Result<ReplyStatFs> {
        let node = self.lower.node(inode)?;
        let stat = fs::fstatvfs(&node.path).map_err(system)?;
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(ReplyStatFs {
            blocks: stat.f_blocks,
            bfree: stat.f_bfree,
            bavail: stat.f_bavail,
            files: stat.f_files,
            ffree: stat.f_ffree,
            bsize: size(stat.f_bsize),
            namelen: size(stat.f_namemax),
            frsize: size(stat.f_frsize),
        })
    }
}

async fn serve(options: Options) -> io::Result<()> {
    let mut mount = MountOptions::default();
    mount
        .fs_name("fuse3")
        .no_open_support(options.zero_open)
        .write_back(options.writeback);
    let mountpoint = options.mountpoint.clone();
    let file_system = PassThrough {
        lower: Lower::open(&options.source)?,
        timeout: options.timeout(),
        files: Files::default(),
        listings: Files::default(),
        options,
    };
    let handle = Session::new(mount).mount(file_system, mountpoint).await?;
    handle.await
}

fn main() -> io::Result<()> {
    let options = peer_lower::parse();
    if options.passthrough {
        eprintln!("fuse3 has no kernel pass-through");
        std::process::exit(3);
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_all()
        .build()?
        .block_on(serve(options))
}
