//! A tar archive as a directory, read-only: `archive FILE.tar MOUNTPOINT`. Contents are read from
//! the archive when they are asked for; the kernel takes them from there without a copy of ours.

mod index;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bickford::mount::GenericFlags;
use bickford::ops::{Attr, Data, FileRange};
use bickford::path::{Adapter, FileSystem, Listing, Options, Subject};
use bickford::{Context, Errno, MountOptions};
use bickford_examples::{Outcome, arguments, serve_with};

use index::Tar;

impl FileSystem for Tar {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        Ok(self.member(subject.path()?)?.attr)
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>, Errno> {
        Ok(self.member(path)?.target.clone())
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        directory: Subject<'_>,
        _: u64,
        listing: &mut Listing,
    ) -> Result<(), Errno> {
        for (name, mode) in self.children.get(directory.path()?).into_iter().flatten() {
            listing.add(name, *mode);
        }
        Ok(())
    }

    fn read(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        size: u32,
    ) -> Result<Data, Errno> {
        let member = self.member(file.path()?)?;
        let length = member.attr.size.saturating_sub(offset).min(u64::from(size)) as usize;
        let file = Arc::clone(&self.file);
        Ok(FileRange {
            file,
            offset: member.offset.saturating_add(offset),
            length,
        }
        .into())
    }
}

fn main() -> Outcome {
    let [archive, mountpoint] = arguments("archive FILE.tar MOUNTPOINT")?;
    let tar = Tar::open(archive.as_ref())?;
    // Nothing changes, so that the kernel may remember all it has seen.
    let always = Duration::from_secs(u64::from(u32::MAX));
    let options = Options {
        entry_timeout: always,
        attr_timeout: always,
        negative_timeout: always,
        kernel_cache: true,
        use_ino: true,
        ..Options::default()
    };
    let mount = MountOptions::new()
        .fsname("archive")
        .subtype("archive")
        .flags(GenericFlags::READ_ONLY);
    serve_with(Adapter::new(tar, options), mountpoint, &mount, |_| {})
}
