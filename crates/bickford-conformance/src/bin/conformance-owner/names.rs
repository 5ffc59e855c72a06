//! Steps that make, change and remove names.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::model::{Id, Key, Kind, Owner, at, wrong};

const DIRECTORIES_MAX: usize = 8;
/// The shared directories alone have room for more.
const NAMES_MAX: usize = 50;
pub const OPEN_MAX: usize = 6;

impl Owner {
    pub fn step(&mut self) -> io::Result<()> {
        // Those that make names come first: with many there are few free ones.
        let first = if self.names.len() < NAMES_MAX { 0 } else { 25 };
        match self.rng.u8(first..100) {
            0..10 => self.create(),
            10..12 => self.make_unnamed(),
            12..16 => self.mkdir(),
            16..19 => self.symlink(),
            19..25 => self.link(),
            25..28 => self.rmdir(),
            28..38 => self.unlink(),
            38..50 => self.rename(),
            50..64 => self.write(),
            64..66 => self.copy(),
            66..72 => self.change(),
            72..80 => self.use_open_file(),
            80..84 => self.check_listing(),
            84..88 => self.check_missing(),
            _ => self.check_any(),
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let key = self.free();
        let path = self.path(&key);
        let mode = if self.rng.bool() { 0o640 } else { 0o755 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        let mut file = at("create", &path, options.open(&path))?;
        let data = if self.rng.bool() {
            self.bytes(20_000)
        } else {
            Vec::new()
        };
        file.write_all(&data)?;
        let id = self.add(key, Kind::File, mode, file.metadata()?.ino());
        self.note(
            id,
            format!("create {}, {} bytes", path.display(), data.len()),
        );
        self.inode(id).data = data;
        if self.open.len() < OPEN_MAX && self.rng.u8(..6) == 0 {
            self.inode(id).opens += 1;
            self.open.push((file, id));
        }
        Ok(())
    }

    /// A file gets its first name when it has been written (O_TMPFILE).
    fn make_unnamed(&mut self) -> io::Result<()> {
        let key = self.free();
        let (directory, path) = (self.directory(key.0), self.path(&key));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = rustix::fs::open(&directory, flags, Mode::RUSR | Mode::WUSR);
        let mut file = fs::File::from(at("make unnamed", &directory, made)?);
        let data = self.bytes(9_000);
        file.write_all(&data)?;
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        let named = rustix::fs::linkat(CWD, unnamed, CWD, &path, AtFlags::SYMLINK_FOLLOW);
        at("name", &path, named)?;
        let id = self.add(key, Kind::File, 0o600, file.metadata()?.ino());
        self.note(id, format!("name {}, {} bytes", path.display(), data.len()));
        self.inode(id).data = data;
        Ok(())
    }

    fn mkdir(&mut self) -> io::Result<()> {
        if self.directories().len() < DIRECTORIES_MAX {
            let key = self.free();
            let path = self.path(&key);
            at(
                "mkdir",
                &path,
                rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)),
            )?;
            let number = fs::metadata(&path)?.ino();
            let id = self.add(key, Kind::Directory, 0o755, number);
            self.note(id, format!("mkdir {}", path.display()));
        }
        Ok(())
    }

    fn rmdir(&mut self) -> io::Result<()> {
        let Some((key, id)) = self.any(|inode| inode.kind == Kind::Directory) else {
            return Ok(());
        };
        let path = self.path(&key);
        self.note(id, format!("rmdir {}", path.display()));
        match (rustix::fs::rmdir(&path), self.is_empty(id)) {
            (Ok(()), true) => self.lose(&key),
            (Err(Errno::NOTEMPTY), false) => {}
            (removed, empty) => {
                return wrong(format_args!(
                    "rmdir {}, empty {empty}: {removed:?}",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    fn symlink(&mut self) -> io::Result<()> {
        let key = self.free();
        let path = self.path(&key);
        let target = format!("target/{}", self.rng.u32(..));
        at("symlink", &path, std::os::unix::fs::symlink(&target, &path))?;
        let number = fs::symlink_metadata(&path)?.ino();
        let id = self.add(key, Kind::Link(target), 0o777, number);
        self.note(id, format!("symlink {}", path.display()));
        Ok(())
    }

    fn link(&mut self) -> io::Result<()> {
        if let Some((key, id)) = self.any(|inode| inode.kind != Kind::Directory) {
            let to = self.free();
            let (from, new) = (self.path(&key), self.path(&to));
            self.note(id, format!("link {} {}", from.display(), new.display()));
            at("link", &from, fs::hard_link(&from, &new))?;
            self.names.insert(to, id);
            self.inode(id).links += 1;
        }
        Ok(())
    }

    fn unlink(&mut self) -> io::Result<()> {
        if let Some((key, id)) = self.any(|inode| inode.kind != Kind::Directory) {
            let path = self.path(&key);
            self.note(id, format!("unlink {}", path.display()));
            at("unlink", &path, fs::remove_file(&path))?;
            self.lose(&key);
        }
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some((from, id)) = self.any(|_| true) else {
            return Ok(());
        };
        let to = match self.rng.u8(..3) {
            0 => self
                .any(|_| true)
                .map_or_else(|| from.clone(), |(key, _)| key),
            _ => self.free(),
        };
        // A directory does not go into itself.
        if from == to || self.is_below(to.0, id) {
            return Ok(());
        }
        let flags = match self.rng.u8(..4) {
            0 => RenameFlags::EXCHANGE,
            1 => RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        let (old, new) = (self.path(&from), self.path(&to));
        self.note(
            id,
            format!("rename {} {} {flags:?}", old.display(), new.display()),
        );
        let refused = self.rename_refused(&from, id, &to, flags);
        match (
            rustix::fs::renameat_with(CWD, &old, CWD, &new, flags),
            refused,
        ) {
            (Ok(()), None) => self.renamed(from, id, to, flags),
            (Err(errno), Some(wanted)) if wanted.contains(&errno) => {}
            (renamed, wanted) => {
                return wrong(format_args!("{renamed:?} instead of {wanted:?}"));
            }
        }
        Ok(())
    }

    /// What a rename is refused with, if it is.
    fn rename_refused(
        &self,
        from: &Key,
        id: Id,
        to: &Key,
        flags: RenameFlags,
    ) -> Option<&'static [Errno]> {
        let target = self.names.get(to).copied();
        let into_itself = target.is_some_and(|target| self.is_below(from.0, target));
        let is_directory = |id| self.inodes[&id].kind == Kind::Directory;
        match (flags, target) {
            (RenameFlags::EXCHANGE, None) => Some(&[Errno::NOENT]),
            (RenameFlags::EXCHANGE, Some(_)) => into_itself.then_some(&[Errno::INVAL]),
            (RenameFlags::NOREPLACE, Some(_)) => Some(&[Errno::EXIST]),
            (_, Some(_)) if into_itself => Some(&[Errno::NOTEMPTY, Errno::EXIST, Errno::ISDIR]),
            (_, Some(target)) if target != id => match (is_directory(id), is_directory(target)) {
                (true, false) => Some(&[Errno::NOTDIR]),
                (false, true) => Some(&[Errno::ISDIR]),
                (true, true) if !self.is_empty(target) => Some(&[Errno::NOTEMPTY, Errno::EXIST]),
                _ => None,
            },
            _ => None,
        }
    }

    fn renamed(&mut self, from: Key, id: Id, to: Key, flags: RenameFlags) {
        match self.names.get(&to).copied() {
            // Two names of one file: nothing happens.
            Some(target) if target == id => return,
            Some(target) if flags == RenameFlags::EXCHANGE => {
                self.names.insert(from, target);
            }
            target => {
                if target.is_some() {
                    self.lose(&to);
                }
                self.names.remove(&from);
            }
        }
        self.names.insert(to, id);
    }
}
