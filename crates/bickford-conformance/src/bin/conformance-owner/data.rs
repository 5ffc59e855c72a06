//! Steps that change what is in files, and their attributes.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bickford_conformance::SharedMap;
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};

use crate::checks::same;
use crate::model::{Id, Kind, Owner, at, wrong};
use crate::names::OPEN_MAX;

const BLOCK: usize = 4096;

/// As O_DIRECT wants it.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn put(data: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[offset..end].copy_from_slice(bytes);
}

fn writable(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    at("open", path, opened)
}

impl Owner {
    fn file(&mut self) -> Option<(std::path::PathBuf, Id)> {
        let (key, id) = self.any(|inode| inode.kind == Kind::File)?;
        Some((self.path(&key), id))
    }

    pub fn write(&mut self) -> io::Result<()> {
        let Some((path, id)) = self.file() else {
            return Ok(());
        };
        let (how, bytes, offset) = (
            self.rng.u8(..7),
            self.bytes(12_000),
            self.rng.usize(..30_000),
        );
        let length = self.inode(id).data.len();
        let what = [
            "pwrite", "append", "truncate", "replace", "map", "direct", "punch",
        ][usize::from(how)];
        self.note(
            id,
            format!(
                "{what} {} at {offset}, {} bytes, of {length}",
                path.display(),
                bytes.len()
            ),
        );
        self.inode(id).modified = None;
        let within = offset % length.max(1);
        let end = length.min(within + bytes.len());
        match how {
            0 => {
                writable(&path)?.write_all_at(&bytes, offset as u64)?;
                put(&mut self.inode(id).data, offset, &bytes);
            }
            1 => {
                OpenOptions::new()
                    .append(true)
                    .open(&path)?
                    .write_all(&bytes)?;
                put(&mut self.inode(id).data, length, &bytes);
            }
            2 => {
                writable(&path)?.set_len(offset as u64)?;
                self.inode(id).data.resize(offset, 0);
            }
            3 => {
                fs::write(&path, &bytes)?;
                self.inode(id).data = bytes;
            }
            4 if length > 0 && self.maps => {
                let map = SharedMap::new(&writable(&path)?, length)?;
                same("map", &map.read(0, length), &self.inode(id).data)?;
                map.fill(within, end - within, bytes[0]);
                self.inode(id).data[within..end].fill(bytes[0]);
            }
            5 => {
                let (block, offset) = (Box::new(Block([bytes[0]; BLOCK])), offset / BLOCK * BLOCK);
                let direct = OFlags::DIRECT.bits().cast_signed();
                let file = OpenOptions::new()
                    .write(true)
                    .custom_flags(direct)
                    .open(&path)?;
                file.write_all_at(&block.0, offset as u64)?;
                put(&mut self.inode(id).data, offset, &block.0);
            }
            6 if length > 0 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let file = writable(&path)?;
                rustix::fs::fallocate(&file, punch, within as u64, bytes.len() as u64)?;
                self.inode(id).data[within..end].fill(0);
            }
            _ => {}
        }
        Ok(())
    }

    pub fn copy(&mut self) -> io::Result<()> {
        let (Some((from, source)), Some((to, id))) = (self.file(), self.file()) else {
            return Ok(());
        };
        if source != id {
            self.note(id, format!("copy {} {}", from.display(), to.display()));
            // By copy_file_range(2).
            at(
                "copy",
                &from,
                io::copy(&mut File::open(&from)?, &mut File::create(&to)?),
            )?;
            self.inode(id).data = self.inode(source).data.clone();
            self.inode(id).modified = None;
        }
        Ok(())
    }

    pub fn change(&mut self) -> io::Result<()> {
        let Some((key, id)) = self.any(|inode| !matches!(inode.kind, Kind::Link(_))) else {
            return Ok(());
        };
        let path = self.path(&key);
        let name = format!("user.{}", self.rng.u8(..4));
        match self.rng.u8(..4) {
            0 => {
                let mode = if self.rng.bool() { 0o700 } else { 0o755 };
                self.note(id, format!("chmod {mode:o} {}", path.display()));
                at(
                    "chmod",
                    &path,
                    fs::set_permissions(&path, Permissions::from_mode(mode)),
                )?;
                self.inode(id).mode = mode;
            }
            1 => {
                let (seconds, nanoseconds) =
                    (self.rng.u32(1..1 << 30), self.rng.u32(..1_000_000_000));
                self.note(id, format!("set times of {}", path.display()));
                let time = UNIX_EPOCH + Duration::new(seconds.into(), nanoseconds);
                let set = File::open(&path)?.set_times(FileTimes::new().set_modified(time));
                at("set times", &path, set)?;
                self.inode(id).modified = Some((seconds.into(), nanoseconds.into()));
            }
            2 => {
                let value = self.bytes(60);
                self.note(id, format!("setxattr {} {name}", path.display()));
                let set = rustix::fs::setxattr(&path, name.as_str(), &value, XattrFlags::empty());
                at("setxattr", &path, set)?;
                self.inode(id).xattrs.insert(name, value);
            }
            _ => {
                self.note(id, format!("removexattr {} {name}", path.display()));
                let removed = rustix::fs::removexattr(&path, name.as_str()).is_ok();
                if removed != self.inode(id).xattrs.remove(&name).is_some() {
                    return wrong(format_args!("removexattr {name}: {removed}"));
                }
            }
        }
        // A directory's changes with its names.
        if self.inode(id).kind == Kind::Directory {
            self.inode(id).modified = None;
        }
        Ok(())
    }

    pub fn use_open_file(&mut self) -> io::Result<()> {
        if self.open.is_empty() || (self.open.len() < OPEN_MAX && self.rng.bool()) {
            let Some((path, id)) = self.file() else {
                return Ok(());
            };
            self.note(id, format!("open {}", path.display()));
            self.open.push((writable(&path)?, id));
            self.inode(id).opens += 1;
            return Ok(());
        }
        let index = self.rng.usize(..self.open.len());
        let id = self.open[index].1;
        match self.rng.u8(..4) {
            0 => {
                self.note(id, "close".to_owned());
                self.open.swap_remove(index);
                self.inode(id).opens -= 1;
                self.drop_if_gone(id);
            }
            1 => {
                let (bytes, offset) = (self.bytes(9_000), self.rng.usize(..20_000));
                self.note(
                    id,
                    format!("write what is open at {offset}, {} bytes", bytes.len()),
                );
                self.open[index].0.write_all_at(&bytes, offset as u64)?;
                put(&mut self.inode(id).data, offset, &bytes);
                self.inode(id).modified = None;
            }
            _ => {
                self.note(id, "check what is open".to_owned());
                let told = self.open[index].0.metadata()?;
                self.check_attributes(&told, id)?;
                let (file, _) = &mut self.open[index];
                let mut data = Vec::new();
                file.rewind()?;
                file.read_to_end(&mut data)?;
                same("read what is open", &data, &self.inode(id).data)?;
            }
        }
        Ok(())
    }
}
