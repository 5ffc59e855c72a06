//! A tar archive as a directory, read-only: `archive FILE.tar MOUNTPOINT`. Contents are read from
//! the archive when they are asked for; the kernel takes them from there without a copy of ours.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bickford::mount::GenericFlags;
use bickford::ops::{Attr, Data};
use bickford::path::memory::Tree;
use bickford::path::{Adapter, FileSystem, Listing, Options, Subject};
use bickford::{Context, Errno, Result};
use bickford_program::{Opened, Program};
use tar::{Archive, Entry, EntryType};

/// Files that are kept of one archive.
const FILES_MAX: usize = 1 << 22;

/// An archive, and where in it the contents of each file begin.
struct Tar {
    file: Arc<OwnedFd>,
    tree: Tree<u64>,
}

impl FileSystem for Tar {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        Ok(self.tree.get(subject)?.attr)
    }

    fn readlink(&self, _: &Context<'_>, path: &Path) -> Result<Vec<u8>> {
        Ok(self.tree.get(path)?.target.clone())
    }

    fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
        self.tree.list(at, listing)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        let inode = self.tree.get(file)?;
        let length = inode.attr.size.saturating_sub(offset).min(size.into());
        let begin = inode.data.saturating_add(offset);
        Ok(Data::range(Arc::clone(&self.file), begin, length as u32))
    }
}

/// A member's path below the root; `None` for what leads outside, or is the root.
fn clean(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => return None,
        }
    }
    clean.parent().is_some().then_some(clean)
}

/// Whether a member begins with the places of its data, as GNU tar writes sparse files in pax archives.
fn is_sparse(entry: &mut Entry<'_, File>) -> Opened<bool> {
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(false);
    };
    for extension in extensions {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Attributes of a member, but for its number and links.
fn attr(entry: &Entry<'_, File>, kind: u32) -> Opened<Attr> {
    let header = entry.header();
    let mut attr = Attr::of_mode(0, kind | (header.mode()? & 0o7777));
    let target = entry.link_name_bytes().unwrap_or_default();
    attr.size = entry.size().max(target.len() as u64);
    attr.blocks = attr.size.div_ceil(512);
    (attr.uid, attr.gid) = (header.uid()?.try_into()?, header.gid()?.try_into()?);
    attr.modified.seconds = header.mtime()?.try_into()?;
    attr.changed = attr.modified;
    Ok(attr)
}

impl Tar {
    fn open(path: &Path) -> Opened<Self> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut archive = Archive::new(file.try_clone()?);
        let mut tar = Self {
            file: Arc::new(file.into()),
            tree: Tree::new(Attr::directory(1, 0o755), 0),
        };
        for entry in archive.entries()? {
            let mut entry = entry.map_err(|error| format!("{}: {error}", path.display()))?;
            if tar.tree.inodes() > FILES_MAX {
                return Err(format!("more than {FILES_MAX} files, too many for memory").into());
            }
            if let Some(path) = clean(&entry.path()?)
                && let Err(error) = tar.add(&path, &mut entry)
            {
                tracing::warn!("{} is left out: {error}", path.display());
            }
        }
        Ok(tar)
    }

    /// Adds a member, and the directories above it that the archive has not named yet. Of members
    /// with one name the last counts.
    fn add(&mut self, path: &Path, entry: &mut Entry<'_, File>) -> Opened<()> {
        if is_sparse(entry)? {
            return Err("a sparse file of a pax archive cannot be shown".into());
        }
        for above in path.ancestors().skip(1).collect::<Vec<_>>().iter().rev() {
            if self.tree.get(*above).is_err() {
                self.tree.insert(above, Attr::directory(0, 0o755), 0)?;
            }
        }
        let kind = match entry.header().entry_type() {
            EntryType::Link => {
                let existing = entry.link_name()?.and_then(|to| clean(&to));
                let existing = existing.ok_or(Errno::NOENT)?;
                let linked = self.tree.get(existing.as_path())?.attr.ino;
                match self.tree.get(path) {
                    Ok(known) if known.attr.ino == linked => return Ok(()),
                    Ok(known) if !known.attr.is_directory() => self.tree.remove(path)?,
                    _ => {}
                }
                return Ok(self.tree.link(existing.as_path(), path)?);
            }
            EntryType::Directory => 0o040_000,
            EntryType::Symlink => 0o120_000,
            EntryType::Regular | EntryType::Continuous => 0o100_000,
            other => return Err(format!("{other:?} cannot be shown").into()),
        };
        let mut attr = attr(entry, kind)?;
        match self.tree.get_mut(path) {
            Ok(known) if known.attr.is_directory() && attr.is_directory() => {
                (attr.ino, attr.links) = (known.attr.ino, known.attr.links);
                known.attr = attr;
                return Ok(());
            }
            Ok(_) => self.tree.remove(path)?,
            Err(_) => {}
        }
        let inode = self.tree.insert(path, attr, entry.raw_file_position())?;
        inode.target = entry.link_name_bytes().unwrap_or_default().into_owned();
        Ok(())
    }
}

fn main() -> ExitCode {
    // Nothing changes, so that the kernel may remember all it has seen.
    let options = Options {
        kernel_cache: true,
        use_ino: true,
        ..Options::valid_for(Duration::from_secs(u32::MAX.into()))
    };
    Program::new("archive")
        .about("A tar archive as a read-only directory")
        .source_path("FILE.tar")
        .path_options(options)
        .run(|given| {
            // Whatever the command line says; mount(8) says rw.
            given.mount_options.flags |= GenericFlags::READ_ONLY;
            let tar = Tar::open(given.source.as_ref())?;
            Ok(Adapter::new(tar, given.path_options))
        })
}
