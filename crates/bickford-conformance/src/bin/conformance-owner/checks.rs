//! What is told, against what must be so.

use std::collections::BTreeMap;
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, StatxTimestamp};

use crate::model::{Id, Kind, Owner, Place, SHARED, at, wrong};

const VALUE_MAX: usize = 4096;

pub fn same(what: &str, told: &[u8], wanted: &[u8]) -> io::Result<()> {
    if told == wanted {
        return Ok(());
    }
    let differs = told
        .iter()
        .zip(wanted)
        .position(|(one, other)| one != other);
    let place = differs.unwrap_or(told.len().min(wanted.len()));
    let (length, size) = (told.len(), wanted.len());
    wrong(format_args!(
        "{what}: {length} bytes instead of {size}, or others from {place} on"
    ))
}

fn is_of(kind: &Kind, told: FileType) -> bool {
    match kind {
        Kind::File => told.is_file(),
        Kind::Link(_) => told.is_symlink(),
        Kind::Directory => told.is_dir(),
    }
}

/// What is cached of a file is what is so below, whoever asks and changes meanwhile.
fn check_cached(path: &Path) -> io::Result<()> {
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    let told = |told: Statx| {
        let times = [time(told.stx_mtime), time(told.stx_ctime)];
        (
            told.stx_mode,
            told.stx_nlink,
            told.stx_uid,
            told.stx_size,
            times,
        )
    };
    let ask = |how| {
        let flags = AtFlags::SYMLINK_NOFOLLOW | how;
        at(
            "statx",
            path,
            rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS),
        )
        .map(told)
    };
    let cached = ask(AtFlags::empty())?;
    let asked = ask(AtFlags::STATX_FORCE_SYNC)?;
    match cached == asked {
        true => Ok(()),
        false => wrong(format_args!(
            "{}: {cached:?} is cached of {asked:?}",
            path.display()
        )),
    }
}

impl Owner {
    pub fn check_attributes(&self, told: &Metadata, id: Id) -> io::Result<()> {
        let inode = &self.inodes[&id];
        let is_file = inode.kind == Kind::File;
        let is_right = is_of(&inode.kind, told.file_type())
            && told.ino() == inode.number
            && told.mode() & 0o7777 == inode.mode
            && (!is_file || told.len() == inode.data.len() as u64)
            && (inode.kind == Kind::Directory || told.nlink() == inode.links)
            && inode
                .modified
                .is_none_or(|time| time == (told.mtime(), told.mtime_nsec()));
        match is_right {
            true => Ok(()),
            false => wrong(format_args!("{told:?} instead of {inode:?}")),
        }
    }

    pub fn check_any(&mut self) -> io::Result<()> {
        match self.any(|_| true) {
            Some((key, id)) => {
                let path = self.path(&key);
                self.note(id, format!("check {}", path.display()));
                self.check(&path, id)
            }
            None => Ok(()),
        }
    }

    pub fn check_all(&mut self) -> io::Result<()> {
        self.open.clear();
        let names: Vec<_> = self
            .names
            .iter()
            .map(|(key, id)| (self.path(key), *id))
            .collect();
        for (path, id) in names {
            self.note(id, format!("check {}", path.display()));
            self.check(&path, id)?;
        }
        Ok(())
    }

    fn check(&self, path: &Path, id: Id) -> io::Result<()> {
        self.check_attributes(&at("lstat", path, fs::symlink_metadata(path))?, id)?;
        check_cached(path)?;
        let inode = &self.inodes[&id];
        match &inode.kind {
            Kind::File => same("read", &at("read", path, fs::read(path))?, &inode.data)?,
            Kind::Link(target) => {
                let told = at("readlink", path, fs::read_link(path))?;
                return same(
                    "readlink",
                    told.as_os_str().as_encoded_bytes(),
                    target.as_bytes(),
                );
            }
            Kind::Directory => self.check_names(path, Place::Own(id), "")?,
        }
        let mut value = [0; VALUE_MAX];
        for (name, wanted) in &inode.xattrs {
            let length = at(
                "getxattr",
                path,
                rustix::fs::getxattr(path, name.as_str(), &mut value),
            )?;
            same("getxattr", &value[..length], wanted)?;
        }
        let length = at("listxattr", path, rustix::fs::listxattr(path, &mut value))?;
        let told = value[..length].split(|byte| *byte == 0);
        match told.filter(|name| name.starts_with(b"user.")).count() == inode.xattrs.len() {
            true => Ok(()),
            false => wrong(format_args!(
                "{}: other extended attributes",
                path.display()
            )),
        }
    }

    pub fn check_listing(&mut self) -> io::Result<()> {
        let place = Place::Shared(self.rng.u64(..SHARED));
        self.check_names(&self.directory(place), place, &self.prefix())
    }

    /// Of the names that begin so all are listed, once, and no others.
    fn check_names(&self, path: &Path, place: Place, prefix: &str) -> io::Result<()> {
        let mut told = BTreeMap::new();
        for entry in at("list", path, fs::read_dir(path))? {
            let entry = at("list", path, entry)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) {
                let twice = told
                    .insert(name, (entry.ino(), entry.file_type()?))
                    .is_some();
                if twice {
                    return wrong(format_args!("{} lists a name twice", path.display()));
                }
            }
        }
        let names = self.names.iter().filter(|((of, _), _)| *of == place);
        let wanted: BTreeMap<_, _> = names
            .map(|((_, name), id)| (name.clone(), &self.inodes[id]))
            .collect();
        let is_right = |name: &String, (number, kind): &(u64, FileType)| {
            let inode = wanted.get(name);
            inode.is_some_and(|inode| inode.number == *number && is_of(&inode.kind, *kind))
        };
        if told.len() != wanted.len() || !told.iter().all(|(name, entry)| is_right(name, entry)) {
            return wrong(format_args!(
                "{} lists {told:?} instead of {wanted:?}",
                path.display()
            ));
        }
        Ok(())
    }

    pub fn check_missing(&mut self) -> io::Result<()> {
        let key = self.free();
        let path = self.path(&key);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            told => wrong(format_args!(
                "{}, which is not there: {told:?}",
                path.display()
            )),
        }
    }
}
