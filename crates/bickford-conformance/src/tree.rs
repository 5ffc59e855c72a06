//! Directory trees, compared bit by bit.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

use crate::machine::tells_holes;

/// Longest list of names and longest value of extended attributes on Linux, see xattr(7).
const XATTR_BYTES: usize = 64 << 10;

/// Everything a tree says about itself: a line for each name below `directory`.
///
/// # Errors
/// When something in it cannot be read.
pub fn describe(directory: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let mut lines = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory_path) = pending.pop() {
        for entry in fs::read_dir(&directory_path)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            let line = describe_one(&path, &metadata)?;
            let name = path.strip_prefix(directory).unwrap_or(&path).to_owned();
            lines.insert(name, line);
        }
    }
    Ok(lines)
}

fn describe_one(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
    let mut line = format!(
        "mode {:o} owner {}:{} device {:x} mtime {}.{:09}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.rdev(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    if metadata.is_file() {
        line += &format!(" links {} size {}", metadata.nlink(), metadata.len(),);
        if tells_holes() {
            line += &format!(" data {:?}", data_ranges(&File::open(path)?)?);
        }
    }
    if metadata.is_symlink() {
        line += &format!(" to {:?}", fs::read_link(path)?);
    }
    for (name, value) in attributes(path)? {
        line += &format!(" {}={value:x?}", name.display());
    }
    Ok(line)
}

/// Start and end of each range of a file that holds data.
fn data_ranges(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut offset = 0;
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            // No data from here to the end.
            Err(rustix::io::Errno::NXIO) => return Ok(ranges),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        ranges.push((start, end));
        offset = end;
    }
}

fn attributes(path: &Path) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let mut list = vec![0; XATTR_BYTES];
    let length = rustix::fs::llistxattr(path, &mut list)?;
    list.truncate(length);
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; XATTR_BYTES];
            let length = rustix::fs::lgetxattr(path, name, &mut value)?;
            value.truncate(length);
            Ok((OsString::from_vec(name.to_vec()), value))
        })
        .collect()
}

/// Fails with the first difference of two trees, in names, metadata, attributes, holes or contents.
///
/// # Errors
/// The difference, as a sentence, or what could not be read.
pub fn same_tree(left: &Path, right: &Path) -> Result<(), String> {
    let read = |path: &Path| describe(path).map_err(|error| format!("{}: {error}", path.display()));
    let (left_lines, right_lines) = (read(left)?, read(right)?);
    for (name, line) in &left_lines {
        match right_lines.get(name) {
            None => return Err(format!("{}: only in the first", name.display())),
            Some(other) if other != line => {
                return Err(format!("{}: {line} is not {other}", name.display()));
            }
            Some(_) => same_contents(&left.join(name), &right.join(name))?,
        }
    }
    match right_lines
        .keys()
        .find(|name| !left_lines.contains_key(*name))
    {
        Some(name) => Err(format!("{}: only in the second", name.display())),
        None => Ok(()),
    }
}

fn same_contents(left: &Path, right: &Path) -> Result<(), String> {
    if !fs::symlink_metadata(left).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    if read(left)? == read(right)? {
        return Ok(());
    }
    Err(format!("{} and {} differ", left.display(), right.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(contents: &str, link: &str) -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("directory");
        let file = top.path().join("file");
        fs::write(&file, contents).expect("file");
        let epoch = std::time::SystemTime::UNIX_EPOCH;
        let opened = File::options().write(true).open(&file).expect("open");
        opened.set_modified(epoch).expect("time");
        symlink(link, top.path().join("link")).expect("link");
        rustix::fs::utimensat(
            rustix::fs::CWD,
            top.path().join("link"),
            &rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                last_modification: rustix::fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
            },
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .expect("time");
        top
    }

    #[test]
    fn equal_trees_are_the_same_and_others_are_not() {
        let one = tree("abc", "x");
        assert_eq!(same_tree(one.path(), tree("abc", "x").path()), Ok(()));
        let contents = same_tree(one.path(), tree("abd", "x").path());
        assert!(contents.expect_err("contents").contains("differ"));
        let link = same_tree(one.path(), tree("abc", "y").path());
        assert!(link.expect_err("target").contains("to \"y\""));
        let more = tree("abc", "x");
        fs::write(more.path().join("more"), "").expect("file");
        assert_eq!(
            same_tree(one.path(), more.path()),
            Err("more: only in the second".to_owned())
        );
    }

    #[test]
    fn holes_are_seen() {
        let top = tempfile::tempdir_in("/var/tmp").expect("directory");
        let file = File::create(top.path().join("sparse")).expect("file");
        file.set_len(1 << 20).expect("length");
        assert_eq!(data_ranges(&file).expect("ranges"), []);
        std::os::unix::fs::FileExt::write_at(&file, b"x", 512 << 10).expect("write");
        let ranges = data_ranges(&file).expect("ranges");
        assert_eq!(ranges.first().map(|range| range.0), Some(512 << 10));
    }
}
