//! Making, renaming and removing names.

use std::path::Path;

use bickford::ops::Attr;
use bickford::path::{New, Subject};
use bickford::{Context, Errno};
use rustix::fs::RenameFlags;

use crate::store::{DIRECTORY, Store};
use crate::{INODES_MAX, MemFs};

const SET_GID: u32 = 0o2000;

impl MemFs {
    /// Runs `body` on the store.
    pub(crate) fn with<T>(
        &self,
        body: impl FnOnce(&mut Store) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        body(&mut *self.store.lock().map_err(|_| Errno::IO)?)
    }

    /// Runs `body` on the inode that an operation is about.
    pub(crate) fn about<T>(
        &self,
        subject: Subject<'_>,
        body: impl FnOnce(&mut Store, u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.with(|store| {
            let ino = match subject.handle() {
                Some(handle) if handle.0 != 0 => handle.0,
                _ => store.find(subject.path()?)?,
            };
            body(store, ino)
        })
    }
}

/// A new inode, which belongs to the caller; in a set-group-id directory to the directory's group.
pub(crate) fn new_inode(
    store: &mut Store,
    cx: &Context<'_>,
    parent: Attr,
    mut mode: u32,
) -> Result<u64, Errno> {
    if store.len() >= INODES_MAX {
        return Err(Errno::NOSPC);
    }
    let inherits = parent.mode & SET_GID != 0;
    if inherits && mode & 0o170_000 == DIRECTORY {
        mode |= SET_GID;
    }
    Ok(store.insert(mode, cx.uid(), if inherits { parent.gid } else { cx.gid() }))
}

/// Makes an inode at a path.
pub(crate) fn make(
    store: &mut Store,
    cx: &Context<'_>,
    path: &Path,
    new: New,
) -> Result<u64, Errno> {
    let place = store.place(path)?;
    if store.child(place).is_some() {
        return Err(Errno::EXIST);
    }
    let parent = store.get(place.0)?.attr;
    let ino = new_inode(store, cx, parent, new.mode)?;
    store.get_mut(ino)?.attr.rdev = new.rdev;
    store.attach(place, ino)?;
    Ok(ino)
}

pub(crate) fn link(store: &mut Store, existing: &Path, new: &Path) -> Result<(), Errno> {
    let ino = store.find(existing)?;
    let place = store.place(new)?;
    if store.child(place).is_some() {
        return Err(Errno::EXIST);
    }
    store.get_mut(ino)?.attr.links += 1;
    store.changed(ino, false)?;
    store.attach(place, ino)
}

pub(crate) fn remove(store: &mut Store, path: &Path) -> Result<(), Errno> {
    let place = store.place(path)?;
    let ino = store.child(place).ok_or(Errno::NOENT)?;
    if !store.get(ino)?.children.is_empty() {
        return Err(Errno::NOTEMPTY);
    }
    store.detach(place)?;
    store.unlink(ino)
}

pub(crate) fn rename(
    store: &mut Store,
    from: &Path,
    to: &Path,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let exchange = flags == RenameFlags::EXCHANGE;
    if !exchange && !flags.is_empty() && flags != RenameFlags::NOREPLACE {
        return Err(Errno::INVAL);
    }
    let (source, target) = (store.place(from)?, store.place(to)?);
    let ino = store.child(source).ok_or(Errno::NOENT)?;
    let other = store.child(target);
    match other {
        None if exchange => return Err(Errno::NOENT),
        Some(_) if flags == RenameFlags::NOREPLACE => return Err(Errno::EXIST),
        Some(other) if !exchange && !store.get(other)?.children.is_empty() => {
            return Err(Errno::NOTEMPTY);
        }
        _ => {}
    }
    store.detach(source)?;
    if let Some(other) = other {
        store.detach(target)?;
        match exchange {
            true => store.attach(source, other)?,
            false => store.unlink(other)?,
        }
        if exchange {
            store.changed(other, false)?;
        }
    }
    store.attach(target, ino)?;
    store.changed(ino, false)
}
