//! Work on names.

use std::io;

use rustix::fs::{self, AtFlags, Mode, RawDir};
use rustix::io::Errno;

use super::Client;

/// How many files the rows use that go over the same ones again.
pub(crate) const AGAIN: u64 = 64;

/// The name of a small file.
pub(crate) fn file(index: u64) -> String {
    format!("f{index:05}")
}

/// A name that does not exist.
pub(crate) fn missing_file(index: u64) -> String {
    format!("m{index:05}")
}

fn stat(client: &Client, name: &str) -> rustix::io::Result<()> {
    fs::statat(&client.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(drop)
}

fn stat_missing(client: &Client, name: &str) -> io::Result<()> {
    match stat(client, name) {
        Err(Errno::NOENT) => Ok(()),
        Ok(()) => Err(io::Error::other(format!("{name} exists"))),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn lookup(client: &Client) -> io::Result<u64> {
    let count = client.ops.min(client.files);
    for index in 0..count {
        stat(client, &file(index))?;
    }
    Ok(count)
}

pub(super) fn lookup_missing(client: &Client) -> io::Result<u64> {
    for index in 0..client.ops {
        stat_missing(client, &missing_file(index))?;
    }
    Ok(client.ops)
}

pub(super) fn stat_all(client: &Client, most: u64) -> io::Result<()> {
    for index in 0..client.files.min(most) {
        stat(client, &file(index))?;
    }
    Ok(())
}

pub(super) fn stat_again(client: &Client) -> io::Result<u64> {
    let names: Vec<String> = (0..client.files.min(AGAIN)).map(file).collect();
    for name in names.iter().cycle().take(client.ops as usize) {
        stat(client, name)?;
    }
    Ok(client.ops)
}

pub(super) fn missing(client: &Client, count: u64) -> io::Result<u64> {
    for _ in 0..count {
        stat_missing(client, "missing")?;
    }
    Ok(count)
}

pub(super) fn unlink(client: &Client) -> io::Result<u64> {
    let count = client.ops.min(client.files);
    for index in 0..count {
        fs::unlinkat(&client.directory, file(index), AtFlags::empty())?;
    }
    Ok(count)
}

pub(super) fn mkdir(client: &Client) -> io::Result<u64> {
    for index in 0..client.ops {
        let name = format!("d{index:05}");
        fs::mkdirat(&client.directory, &name, Mode::RWXU)?;
        fs::unlinkat(&client.directory, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(client.ops)
}

pub(super) fn rename(client: &Client) -> io::Result<u64> {
    let count = client.ops.min(client.files);
    for index in 0..count {
        let (old, new) = (file(index), format!("r{index:05}"));
        fs::renameat(&client.directory, &old, &client.directory, &new)?;
    }
    Ok(count)
}

pub(super) fn symlink(client: &Client) -> io::Result<u64> {
    let mut target = Vec::with_capacity(256);
    for index in 0..client.ops {
        let name = format!("s{index:05}");
        fs::symlinkat("somewhere/else", &client.directory, &name)?;
        target = fs::readlinkat(&client.directory, &name, target)?.into_bytes();
    }
    Ok(client.ops)
}

/// Goes through the directory once; as many operations as it has entries.
pub(super) fn list(client: &Client, with_stat: bool) -> io::Result<u64> {
    let directory = fs::openat(
        &client.directory,
        ".",
        fs::OFlags::RDONLY | fs::OFlags::DIRECTORY | fs::OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // As large as the C library's.
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut stream = RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut count = 0;
    while let Some(entry) = stream.next() {
        let entry = entry?;
        if with_stat {
            fs::statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        count += 1;
    }
    Ok(count)
}
