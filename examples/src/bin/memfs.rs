//! A file system in memory, over paths: `memfs MOUNTPOINT`. Everything is gone when it ends.

use std::ffi::CStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bickford::ops::{Attr, Data, Opened, Payload, StatfsAnswer, Timestamp};
use bickford::path::memory::{Contents, Limits, Tree};
use bickford::path::{Adapter, Allocation, FileSystem, Listing, New, Open, Options, Owner};
use bickford::path::{SetXattr, Statx, Subject, Times};
use bickford::{Context, Errno, RenameFlags, Result};
use bickford_examples::{for_all, root};
use bickford_program::{Program, parse_size};

/// Attributes with the time of birth.
type Dated = (Attr, Option<Timestamp>);

/// The file system. One lock, which no operation holds for long.
struct MemFs {
    tree: Mutex<Tree<Contents>>,
    limits: Limits,
}

impl MemFs {
    fn tree(&self) -> MutexGuard<'_, Tree<Contents>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem for MemFs {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        Ok(self.tree().get(subject)?.attr)
    }

    fn statx(&self, _: &Context<'_>, at: Subject<'_>, _: Statx) -> Result<Dated> {
        Ok(self.tree().get(at)?.dated())
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        self.tree().list(at, listing)
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>> {
        Ok(self.tree().get(path)?.target.clone())
    }

    fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        let contents = self.limits.contents()?;
        self.tree().make(cx, path, new, contents).map(drop)
    }

    fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        self.mknod(cx, path, new)
    }

    fn symlink(&self, cx: &Context<'_>, path: &Path, target: &CStr) -> Result<()> {
        self.tree()
            .symlink(cx, path, target, self.limits.contents()?)
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        self.tree().remove(path)
    }

    fn rmdir(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        self.tree().remove(path)
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        self.tree().rename(from, to, flags)
    }

    fn link(&self, _: &Context<'_>, existing: Subject<'_>, new: &Path) -> Result<()> {
        self.tree().link(existing, new)
    }

    fn chmod(&self, _: &Context<'_>, subject: Subject<'_>, mode: u32) -> Result<()> {
        self.tree().get_mut(subject).map(|inode| inode.chmod(mode))
    }

    fn chown(&self, _: &Context<'_>, subject: Subject<'_>, owner: Owner) -> Result<()> {
        self.tree().get_mut(subject).map(|inode| inode.chown(owner))
    }

    fn utimens(&self, _: &Context<'_>, at: Subject<'_>, times: Times) -> Result<()> {
        self.tree().get_mut(at).map(|inode| inode.utimens(times))
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        self.tree().get_mut(subject)?.truncate(size)
    }

    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened> {
        self.tree().open(path)
    }

    fn tmpfile(&self, cx: &Context<'_>, path: &Path, new: New, _: Open) -> Result<Opened> {
        self.tree()
            .make_unnamed(cx, path, new, self.limits.contents()?)
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        self.tree().release(file)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(self.tree().get_mut(file)?.read(offset, size).into())
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        let data = data.bytes().map_err(|_| Errno::IO)?;
        self.tree().get_mut(file)?.write(at, &data)
    }

    fn fallocate(&self, _: &Context<'_>, file: Subject<'_>, range: Allocation) -> Result<()> {
        self.tree().get_mut(file)?.allocate(range)
    }

    fn lseek(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, whence: u32) -> Result<u64> {
        self.tree().get(file)?.seek(offset, whence)
    }

    fn statfs(&self, _: &Context<'_>, _: &Path) -> Result<StatfsAnswer> {
        Ok(self.limits.statfs())
    }

    fn setxattr(&self, _: &Context<'_>, at: Subject<'_>, xattr: SetXattr<'_>) -> Result<()> {
        self.tree().get_mut(at)?.set_xattr(xattr)
    }

    fn getxattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<Vec<u8>> {
        self.tree().get(subject)?.xattrs.get(name)
    }

    fn listxattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Vec<u8>> {
        Ok(self.tree().get(subject)?.xattrs.list())
    }

    fn removexattr(&self, _: &Context<'_>, subject: Subject<'_>, name: &CStr) -> Result<()> {
        self.tree().get_mut(subject)?.remove_xattr(name)
    }
}

// ANCHOR: main
/// Limits, which `-o size=...,inodes=...` sets as well.
#[derive(Debug, Clone, clap::Args)]
struct Arguments {
    /// Most bytes of all files, such as 64M
    #[arg(long, value_parser = parse_size, default_value = "1G")]
    size: u64,

    /// Most files and directories
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    inodes: u64,
}

fn main() -> ExitCode {
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    Program::new("memfs")
        .about("A file system in memory")
        .arguments::<Arguments>()
        .mount_options(for_all())
        .path_options(options)
        .run(|given| {
            let limits = Limits::new(given.arguments.inodes, given.arguments.size);
            let tree = Tree::new(root(), limits.contents()?).with_names_max(1 << 20);
            let tree = Mutex::new(tree);
            Ok(Adapter::new(MemFs { tree, limits }, given.path_options))
        })
}
// ANCHOR_END: main
