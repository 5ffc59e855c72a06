//! Inodes, and the tree of names over them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::path::Path;

use bickford::Errno;
use bickford::ops::{Attr, Timestamp};

use crate::contents::{BLOCK, Contents};

pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const REGULAR: u32 = 0o100_000;
pub(crate) const SYMLINK: u32 = 0o120_000;
const ROOT: u64 = 1;

/// What an inode holds beside its attributes.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    pub(crate) attr: Attr,
    pub(crate) born: Timestamp,
    pub(crate) contents: Contents,
    pub(crate) children: BTreeMap<OsString, u64>,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: BTreeMap<CString, Vec<u8>>,
    pub(crate) opens: u32,
}

fn check_length(name: &OsStr) -> Result<(), Errno> {
    match name.len() {
        ..=255 => Ok(()),
        _ => Err(Errno::NAMETOOLONG),
    }
}

/// All inodes by number.
#[derive(Debug)]
pub(crate) struct Store {
    inodes: HashMap<u64, Inode>,
    last: u64,
    /// Blocks that files hold.
    pub(crate) used: u64,
}

impl Store {
    pub(crate) fn new(uid: u32, gid: u32) -> Self {
        let mut store = Self {
            inodes: HashMap::new(),
            last: ROOT - 1,
            used: 0,
        };
        store.insert(DIRECTORY | 0o755, uid, gid);
        store
    }

    pub(crate) fn len(&self) -> usize {
        self.inodes.len()
    }

    pub(crate) fn insert(&mut self, mode: u32, uid: u32, gid: u32) -> u64 {
        self.last += 1;
        let now = Timestamp::now();
        let attr = match mode & 0o170_000 {
            DIRECTORY => Attr::directory(self.last, mode),
            _ => Attr {
                mode,
                ..Attr::file(self.last, mode, 0)
            },
        };
        let attr = Attr {
            uid,
            gid,
            accessed: now,
            modified: now,
            changed: now,
            ..attr
        };
        self.inodes.insert(
            self.last,
            Inode {
                attr,
                born: now,
                ..Inode::default()
            },
        );
        self.last
    }

    pub(crate) fn get(&self, ino: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).ok_or(Errno::NOENT)
    }

    pub(crate) fn get_mut(&mut self, ino: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::NOENT)
    }

    /// The inode at a path.
    pub(crate) fn find(&self, path: &Path) -> Result<u64, Errno> {
        path.iter().skip(1).try_fold(ROOT, |at, name| {
            let node = self.get(at)?;
            check_length(name)?;
            match node.attr.is_directory() {
                true => node.children.get(name).copied().ok_or(Errno::NOENT),
                false => Err(Errno::NOTDIR),
            }
        })
    }

    /// The directory of a path, and the name in it.
    pub(crate) fn place<'a>(&self, path: &'a Path) -> Result<(u64, &'a OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        check_length(name)?;
        Ok((self.find(path.parent().ok_or(Errno::INVAL)?)?, name))
    }

    pub(crate) fn child(&self, (parent, name): (u64, &OsStr)) -> Option<u64> {
        self.get(parent).ok()?.children.get(name).copied()
    }

    /// Puts an inode at a free name.
    pub(crate) fn attach(&mut self, (parent, name): (u64, &OsStr), ino: u64) -> Result<(), Errno> {
        let directory = self.get(ino)?.attr.is_directory();
        let node = self.get_mut(parent)?;
        node.children.insert(name.into(), ino);
        node.attr.links += u32::from(directory);
        self.changed(parent, true)
    }

    /// Takes the inode at a name away from it.
    pub(crate) fn detach(&mut self, (parent, name): (u64, &OsStr)) -> Result<u64, Errno> {
        let ino = self.child((parent, name)).ok_or(Errno::NOENT)?;
        let directory = self.get(ino)?.attr.is_directory();
        let node = self.get_mut(parent)?;
        node.children.remove(name);
        node.attr.links -= u32::from(directory);
        self.changed(parent, true)?;
        Ok(ino)
    }

    /// An inode has lost a name.
    pub(crate) fn unlink(&mut self, ino: u64) -> Result<(), Errno> {
        let attr = &mut self.get_mut(ino)?.attr;
        attr.links = if attr.is_directory() {
            0
        } else {
            attr.links - 1
        };
        self.changed(ino, false)?;
        self.free_if_unused(ino)
    }

    pub(crate) fn free_if_unused(&mut self, ino: u64) -> Result<(), Errno> {
        let node = self.get(ino)?;
        if node.attr.links == 0 && node.opens == 0 {
            self.used -= node.contents.blocks();
            self.inodes.remove(&ino);
        }
        Ok(())
    }

    /// Sets the time of change, and with `contents` that of modification.
    pub(crate) fn changed(&mut self, ino: u64, contents: bool) -> Result<(), Errno> {
        let attr = &mut self.get_mut(ino)?.attr;
        attr.changed = Timestamp::now();
        if contents {
            attr.modified = attr.changed;
        }
        Ok(())
    }

    /// Changes the contents of a file, and counts its blocks.
    pub(crate) fn edit(&mut self, ino: u64, edit: impl FnOnce(&mut Contents)) -> Result<(), Errno> {
        let node = self.get_mut(ino)?;
        let before = node.contents.blocks();
        edit(&mut node.contents);
        let after = node.contents.blocks();
        node.attr.blocks = after * (BLOCK / 512);
        self.used = self.used + after - before;
        self.changed(ino, true)
    }
}
