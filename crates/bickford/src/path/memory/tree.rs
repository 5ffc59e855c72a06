//! Inodes by number, and the names that lead to them.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::path::Path;

use rustix::fs::RenameFlags;

use super::Inode;
use crate::ops::{Attr, Opened, Timestamp};
use crate::path::{Listing, New, Subject};
use crate::{Context, Errno, FileHandle, Result};

const ROOT: u64 = 1;
const SET_GID: u32 = 0o2000;
const NAME_MAX: usize = 255;

/// A directory, and a name in it.
type Place<'a> = (u64, &'a OsStr);

/// A tree of inodes in memory; see the [module](super). Serve it with
/// [`crate::path::Options::use_ino`], for it knows which names are one inode.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    inodes: HashMap<u64, Inode<T>>,
    last: u64,
    names: u64,
    names_max: u64,
}

fn checked(name: &OsStr) -> Result<&OsStr> {
    match name.len() {
        ..=NAME_MAX => Ok(name),
        _ => Err(Errno::NAMETOOLONG),
    }
}

impl<T> Tree<T> {
    /// A tree whose root, inode 1, has these attributes.
    #[must_use]
    pub fn new(root: Attr, data: T) -> Self {
        let root = Attr { ino: ROOT, ..root };
        Self {
            inodes: HashMap::from([(ROOT, Inode::new(root, data))]),
            last: ROOT,
            names: 0,
            names_max: u64::MAX,
        }
    }

    /// The same with at most so many names. Whoever bounds inodes alone does not bound memory: a file may have
    /// any number of names (link(2)), of up to 255 bytes each.
    #[must_use]
    pub fn with_names_max(mut self, names: u64) -> Self {
        self.names_max = names;
        self
    }

    /// How many inodes there are.
    #[must_use]
    pub fn inodes(&self) -> usize {
        self.inodes.len()
    }

    fn at(&self, ino: u64) -> Result<&Inode<T>> {
        self.inodes.get(&ino).ok_or(Errno::NOENT)
    }

    fn at_mut(&mut self, ino: u64) -> Result<&mut Inode<T>> {
        self.inodes.get_mut(&ino).ok_or(Errno::NOENT)
    }

    fn find(&self, path: &Path) -> Result<u64> {
        path.iter().skip(1).try_fold(ROOT, |at, name| {
            let inode = self.at(at)?;
            if !inode.attr.is_directory() {
                return Err(Errno::NOTDIR);
            }
            let child = inode.children.get(checked(name)?);
            child.copied().ok_or(Errno::NOENT)
        })
    }

    fn number(&self, subject: Subject<'_>) -> Result<u64> {
        match subject.handle() {
            Some(handle) if handle.0 != 0 => Ok(handle.0),
            _ => self.find(subject.path()?),
        }
    }

    /// The inode that an operation is about: of an open file, or at a path.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR or ENAMETOOLONG.
    pub fn get<'a>(&self, subject: impl Into<Subject<'a>>) -> Result<&Inode<T>> {
        self.at(self.number(subject.into())?)
    }

    /// The same, to change it.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR or ENAMETOOLONG.
    pub fn get_mut<'a>(&mut self, subject: impl Into<Subject<'a>>) -> Result<&mut Inode<T>> {
        self.at_mut(self.number(subject.into())?)
    }

    fn place<'a>(&self, path: &'a Path) -> Result<Place<'a>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL);
        };
        let parent = self.find(parent)?;
        match self.at(parent)?.attr.is_directory() {
            true => Ok((parent, checked(name)?)),
            false => Err(Errno::NOTDIR),
        }
    }

    /// A name that leads nowhere yet, and for which there is room.
    fn free_place<'a>(&self, path: &'a Path) -> Result<Place<'a>> {
        let place = self.place(path)?;
        match self.child(place) {
            Some(_) => Err(Errno::EXIST),
            None if self.names >= self.names_max => Err(Errno::NOSPC),
            None => Ok(place),
        }
    }

    fn child(&self, (parent, name): Place<'_>) -> Option<u64> {
        self.at(parent).ok()?.children.get(name).copied()
    }

    fn add(&mut self, attr: Attr, data: T) -> u64 {
        self.last += 1;
        let attr = Attr {
            ino: self.last,
            ..attr
        };
        self.inodes.insert(self.last, Inode::new(attr, data));
        self.last
    }

    /// Adds an inode with these attributes, but for its number, whose directory keeps its times.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR or ENAMETOOLONG; ENOSPC beyond [`Tree::with_names_max`].
    pub fn insert(&mut self, path: impl AsRef<Path>, attr: Attr, data: T) -> Result<&mut Inode<T>> {
        let place = self.free_place(path.as_ref())?;
        let ino = self.add(attr, data);
        self.attach(place, ino)?;
        self.at_mut(ino)
    }

    /// Attributes of something new: of now, and of the caller, or in a directory that has the
    /// set-group-id bit of its group.
    fn attr_of(&self, cx: &Context<'_>, parent: u64, new: New) -> Result<Attr> {
        let parent = self.at(parent)?.attr;
        let inherits = parent.mode & SET_GID != 0;
        let mut attr = Attr::of_mode(0, new.mode);
        if inherits && attr.is_directory() {
            attr.mode |= SET_GID;
        }
        let now = Timestamp::now();
        Ok(Attr {
            uid: cx.uid(),
            gid: if inherits { parent.gid } else { cx.gid() },
            rdev: new.rdev,
            accessed: now,
            modified: now,
            changed: now,
            ..attr
        })
    }

    /// Makes a file, directory or device node for the caller (mknod(2), mkdir(2)).
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub fn make(
        &mut self,
        cx: &Context<'_>,
        path: &Path,
        new: New,
        data: T,
    ) -> Result<&mut Inode<T>> {
        let place = self.free_place(path)?;
        let attr = self.attr_of(cx, place.0, new)?;
        self.at_mut(place.0)?.touch_contents();
        self.insert(path, attr, data)
    }

    /// Makes a symbolic link for the caller (symlink(2)).
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub fn symlink(&mut self, cx: &Context<'_>, path: &Path, to: &CStr, data: T) -> Result<()> {
        let inode = self.make(cx, path, New::of_mode(0o120_777), data)?;
        inode.attr.size = to.count_bytes() as u64;
        inode.target = to.to_bytes().to_vec();
        Ok(())
    }

    /// Makes a regular file without a name in the directory `path`, and opens it (O_TMPFILE).
    ///
    /// # Errors
    /// ENOENT, ENOTDIR or ENAMETOOLONG.
    pub fn make_unnamed(
        &mut self,
        cx: &Context<'_>,
        path: &Path,
        new: New,
        data: T,
    ) -> Result<Opened> {
        let mut attr = self.attr_of(cx, self.find(path)?, new)?;
        attr.mode = (attr.mode & 0o7777) | 0o100_000;
        attr.links = 0;
        let ino = self.add(attr, data);
        self.open_inode(ino)
    }

    /// Gives a file another name (link(2)), or an open one without a name its first.
    ///
    /// # Errors
    /// EPERM for a directory, and as [`Tree::insert`].
    pub fn link<'a>(
        &mut self,
        existing: impl Into<Subject<'a>>,
        new: impl AsRef<Path>,
    ) -> Result<()> {
        let ino = self.number(existing.into())?;
        let place = self.free_place(new.as_ref())?;
        let inode = self.at_mut(ino)?;
        if inode.attr.is_directory() {
            return Err(Errno::PERM);
        }
        inode.attr.links += 1;
        inode.touch();
        self.at_mut(place.0)?.touch_contents();
        self.attach(place, ino)
    }

    /// Removes a name of a file, or an empty directory (unlink(2), rmdir(2)). A file ends with its
    /// last name and the last [`Tree::release`].
    ///
    /// # Errors
    /// ENOTEMPTY, ENOENT, ENOTDIR or ENAMETOOLONG.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.place(path.as_ref())?;
        let ino = self.child(place).ok_or(Errno::NOENT)?;
        if !self.at(ino)?.children.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.detach(place, ino)?;
        self.at_mut(place.0)?.touch_contents();
        self.lost_name(ino)
    }

    /// Renames, or exchanges (rename(2), renameat2(2)).
    ///
    /// # Errors
    /// EINVAL for flags that are not known and a directory into itself, and what rename(2) says.
    pub fn rename(&mut self, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        let exchange = flags == RenameFlags::EXCHANGE;
        let known = exchange || flags.is_empty() || flags == RenameFlags::NOREPLACE;
        if !known || (to != from && (to.starts_with(from) || exchange && from.starts_with(to))) {
            return Err(Errno::INVAL);
        }
        let (source, target) = (self.place(from)?, self.place(to)?);
        let ino = self.child(source).ok_or(Errno::NOENT)?;
        let other = self.child(target);
        match other {
            None if exchange => return Err(Errno::NOENT),
            Some(_) if flags == RenameFlags::NOREPLACE => return Err(Errno::EXIST),
            Some(other) if other == ino => return Ok(()),
            Some(other) if !exchange => self.check_replace(ino, other)?,
            _ => {}
        }
        self.detach(source, ino)?;
        if let Some(other) = other {
            self.detach(target, other)?;
            if exchange {
                self.attach(source, other)?;
                self.at_mut(other)?.touch();
            } else {
                self.lost_name(other)?;
            }
        }
        self.attach(target, ino)?;
        self.at_mut(source.0)?.touch_contents();
        self.at_mut(target.0)?.touch_contents();
        self.at_mut(ino)?.touch();
        Ok(())
    }

    fn check_replace(&self, ino: u64, other: u64) -> Result<()> {
        let (new, old) = (self.at(ino)?, self.at(other)?);
        match (new.attr.is_directory(), old.attr.is_directory()) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            _ if !old.children.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Puts an inode at a free name. A directory has its `..` in another.
    fn attach(&mut self, (parent, name): Place<'_>, ino: u64) -> Result<()> {
        let directory = self.at(ino)?.attr.is_directory();
        let parent = self.at_mut(parent)?;
        parent.children.insert(name.into(), ino);
        parent.attr.links += u32::from(directory);
        self.names += 1;
        Ok(())
    }

    /// Takes an inode away from its name.
    fn detach(&mut self, (parent, name): Place<'_>, ino: u64) -> Result<()> {
        let directory = self.at(ino)?.attr.is_directory();
        let parent = self.at_mut(parent)?;
        parent.children.remove(name);
        parent.attr.links -= u32::from(directory);
        self.names -= 1;
        Ok(())
    }

    fn lost_name(&mut self, ino: u64) -> Result<()> {
        let inode = self.at_mut(ino)?;
        inode.attr.links = match inode.attr.is_directory() {
            true => 0,
            false => inode.attr.links.saturating_sub(1),
        };
        inode.touch();
        self.free_if_unused(ino);
        Ok(())
    }

    fn free_if_unused(&mut self, ino: u64) {
        let unused = |inode: &Inode<T>| inode.attr.links == 0 && inode.opens == 0;
        if self.inodes.get(&ino).is_some_and(unused) {
            self.inodes.remove(&ino);
        }
    }

    fn open_inode(&mut self, ino: u64) -> Result<Opened> {
        self.at_mut(ino)?.opens += 1;
        Ok(Opened::new(FileHandle(ino)))
    }

    /// Opens a file: it stays until it is released as often. Its handle is its number.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR or ENAMETOOLONG.
    pub fn open(&mut self, path: &Path) -> Result<Opened> {
        let ino = self.find(path)?;
        self.open_inode(ino)
    }

    /// An open file ends.
    ///
    /// # Errors
    /// ENOENT when it was not open.
    pub fn release(&mut self, file: Subject<'_>) -> Result<()> {
        let ino = self.number(file)?;
        let inode = self.at_mut(ino)?;
        inode.opens = inode.opens.checked_sub(1).ok_or(Errno::NOENT)?;
        self.free_if_unused(ino);
        Ok(())
    }

    /// Lists a directory, with attributes.
    ///
    /// # Errors
    /// ENOENT.
    pub fn list(&self, directory: Subject<'_>, listing: &mut Listing) -> Result<()> {
        for (name, ino) in &self.get(directory)?.children {
            listing.add_attr(name.as_encoded_bytes(), self.at(*ino)?.attr);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree<u32> {
        let mut tree = Tree::new(Attr::directory(9, 0o755), 0);
        for (number, path) in ["/d", "/d/e", "/other"].iter().enumerate() {
            let directory = Attr::directory(0, 0o755);
            tree.insert(path, directory, number as u32).unwrap();
        }
        tree.insert("/d/f", Attr::file(0, 0o644, 5), 7).unwrap();
        tree
    }

    fn rename(tree: &mut Tree<u32>, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        tree.rename(from.as_ref(), to.as_ref(), flags)
    }

    #[test]
    fn links_are_counted() {
        let mut tree = tree();
        assert_eq!(tree.get(Path::new("/")).unwrap().attr.ino, ROOT);
        assert_eq!(tree.get("/").unwrap().attr.links, 4);
        assert_eq!(tree.get("/d").unwrap().attr.links, 3);
        tree.link("/d/f", "/g").unwrap();
        assert_eq!(tree.link("/d", "/h"), Err(Errno::PERM));
        assert_eq!(tree.link("/d/f", "/g"), Err(Errno::EXIST));
        assert_eq!(tree.get("/g").unwrap().attr.links, 2);
        assert_eq!(tree.remove("/d"), Err(Errno::NOTEMPTY));
        tree.remove("/d/f").unwrap();
        assert_eq!(tree.get("/g").unwrap().attr.links, 1);
        tree.remove("/d/e").unwrap();
        tree.remove("/d").unwrap();
        assert_eq!(tree.get("/").unwrap().attr.links, 3);
        assert_eq!(tree.inodes(), 3);
    }

    #[test]
    fn open_files_stay_without_names() {
        let mut tree = tree();
        let opened = tree.open("/d/f".as_ref()).unwrap();
        let again = tree.open("/d/f".as_ref()).unwrap();
        assert_eq!(opened, again);
        tree.remove("/d/f").unwrap();
        let file = Subject::new(None, Some(opened.handle));
        assert_eq!(tree.get(file).unwrap().data, 7);
        assert_eq!(tree.get(file).unwrap().attr.links, 0);
        tree.release(file).unwrap();
        assert_eq!(tree.get(file).unwrap().data, 7);
        tree.release(file).unwrap();
        assert_eq!(tree.get(file).map(|inode| inode.data), Err(Errno::NOENT));
    }

    #[test]
    fn renames_are_those_of_linux() {
        let (none, noreplace) = (RenameFlags::empty(), RenameFlags::NOREPLACE);
        let exchange = RenameFlags::EXCHANGE;
        let mut tree = tree();
        let all = |tree: &Tree<u32>| tree.inodes();
        let before = all(&tree);
        for (from, to, flags, errno) in [
            ("/d", "/d/e/x", none, Errno::INVAL),
            ("/d", "/d/e", exchange, Errno::INVAL),
            ("/d/e", "/d", exchange, Errno::INVAL),
            ("/d", "/nothing", exchange, Errno::NOENT),
            ("/nothing", "/d", none, Errno::NOENT),
            ("/d/f", "/d/e", none, Errno::ISDIR),
            ("/d/e", "/d/f", none, Errno::NOTDIR),
            ("/other", "/d", none, Errno::NOTEMPTY),
            ("/other", "/d", noreplace, Errno::EXIST),
            ("/d", "/x", RenameFlags::WHITEOUT, Errno::INVAL),
            ("/d", "/d/f/x", none, Errno::INVAL),
            ("/other", "/d/f/x", none, Errno::NOTDIR),
        ] {
            assert_eq!(
                rename(&mut tree, from, to, flags),
                Err(errno),
                "{from} {to}"
            );
        }
        rename(&mut tree, "/d/f", "/other", exchange).unwrap();
        assert_eq!(tree.get("/other").unwrap().data, 7);
        assert_eq!(tree.get("/d").unwrap().attr.links, 4);
        assert_eq!(tree.get("/").unwrap().attr.links, 3);
        rename(&mut tree, "/d/f", "/d/e", none).unwrap();
        assert_eq!(all(&tree), before - 1);
        assert_eq!(tree.get("/d/e").unwrap().data, 2);
        tree.link("/other", "/same").unwrap();
        // Two names of one file: nothing happens.
        rename(&mut tree, "/other", "/same", none).unwrap();
        assert_eq!(tree.get("/other").unwrap().attr.links, 2);
    }

    #[test]
    fn names_have_a_bound() {
        let mut tree = tree();
        let name = format!("/{}", "x".repeat(256));
        let made = tree.insert(&name, Attr::file(0, 0o644, 0), 0);
        assert_eq!(made.map(drop), Err(Errno::NAMETOOLONG));
        assert_eq!(tree.get(&*name).map(drop), Err(Errno::NAMETOOLONG));
        let made = tree.insert("/d/f/x", Attr::file(0, 0o644, 0), 0);
        assert_eq!(made.map(drop), Err(Errno::NOTDIR));
    }

    #[test]
    fn no_more_names_than_their_bound() {
        let mut tree = Tree::new(Attr::directory(1, 0o755), 0).with_names_max(2);
        let file = || Attr::file(0, 0o644, 0);
        let rename = |tree: &mut Tree<u32>, from: &str, to: &str, flags| {
            tree.rename(from.as_ref(), to.as_ref(), flags)
        };
        tree.insert("/a", file(), 0).unwrap();
        tree.link("/a", "/b").unwrap();
        for _ in 0..3 {
            assert_eq!(tree.link("/a", "/c"), Err(Errno::NOSPC));
            let made = tree.insert("/c", file(), 0);
            assert_eq!(made.map(drop), Err(Errno::NOSPC));
            assert_eq!(tree.get("/a").unwrap().attr.links, 2);
            // Neither takes a name nor leaves one.
            rename(&mut tree, "/a", "/c", RenameFlags::empty()).unwrap();
            rename(&mut tree, "/c", "/a", RenameFlags::empty()).unwrap();
            rename(&mut tree, "/a", "/b", RenameFlags::EXCHANGE).unwrap();
            tree.remove("/b").unwrap();
            tree.insert("/b", file(), 0).unwrap();
            rename(&mut tree, "/a", "/b", RenameFlags::empty()).unwrap();
            tree.link("/b", "/a").unwrap();
        }
    }
}
