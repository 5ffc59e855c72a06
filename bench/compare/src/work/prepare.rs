//! The files that rows find, made natively before anything is mounted.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{client_directory, data, names};
use crate::rows::{CLIENTS, Row, Scale, Set};

const PAGE: [u8; 4096] = [1; 4096];

/// The directory of a row's files below `root`; `configuration` has one of its own where the row writes.
pub(crate) fn base(row: &Row, root: &Path, configuration: &str) -> PathBuf {
    match row.set {
        Set::Names => root.join("names"),
        Set::List => root.to_owned(),
        Set::Large => root.join("large"),
        Set::Fresh | Set::FreshFiles => root.join(format!("{}-{configuration}", row.id)),
    }
}

fn small_files(directory: &Path, count: u64) -> io::Result<()> {
    for index in 0..count {
        File::create(directory.join(names::file(index)))?.write_all(&PAGE)?;
    }
    Ok(())
}

/// The sets that rows share.
pub(crate) fn shared(root: &Path, scale: &Scale) -> io::Result<()> {
    let list = root.join("list");
    fs::create_dir_all(&list)?;
    for index in 0..scale.entries {
        File::create(list.join(names::file(index)))?;
    }
    let block = vec![1_u8; 1 << 20];
    for &clients in CLIENTS {
        for index in 0..clients {
            let directory = client_directory(&root.join("names"), clients, index);
            fs::create_dir_all(&directory)?;
            small_files(&directory, scale.files(clients))?;
            let directory = client_directory(&root.join("large"), clients, index);
            fs::create_dir_all(&directory)?;
            let mut file = File::create(directory.join(data::LARGE))?;
            for _ in 0..scale.bytes(clients) >> 20 {
                file.write_all(&block)?;
            }
        }
    }
    Ok(())
}

/// Has the lower file system learnt which names are missing, as it has for whoever asks second.
pub(crate) fn ask_for_missing(
    row: &Row,
    clients: &[usize],
    scale: &Scale,
    base: &Path,
) -> io::Result<()> {
    for clients in clients {
        for index in 0..*clients {
            let directory = client_directory(base, *clients, index);
            for number in 0..scale.share(row.ops, *clients) {
                if directory.join(names::missing_file(number)).try_exists()? {
                    return Err(io::Error::other("a name exists that must not"));
                }
            }
        }
    }
    Ok(())
}

/// What one configuration needs of its own for `row`.
pub(crate) fn own(row: &Row, clients: &[usize], scale: &Scale, base: &Path) -> io::Result<()> {
    if !matches!(row.set, Set::Fresh | Set::FreshFiles) {
        return Ok(());
    }
    for clients in clients {
        for index in 0..*clients {
            let directory = client_directory(base, *clients, index);
            fs::create_dir_all(&directory)?;
            if row.set == Set::FreshFiles {
                small_files(&directory, scale.share(row.ops, *clients))?;
            }
        }
    }
    Ok(())
}

/// Reads everything below `directory`, so that the lower file system has it in its caches.
pub(crate) fn read_below(directory: &Path, buffer: &mut [u8]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read_below(&entry.path(), buffer)?;
        } else {
            let mut file = File::open(entry.path())?;
            while file.read(buffer)? > 0 {}
        }
    }
    Ok(())
}
