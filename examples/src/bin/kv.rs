//! A key-value store as files: `kv DATABASE MOUNTPOINT`. Each key of an embedded database (redb) is
//! a file, and its value the contents. What a write(2) has written survives a crash.

use std::path::Path;
use std::process::ExitCode;

use bickford::ops::{Attr, Data, Payload};
use bickford::path::{Adapter, FileSystem, Listing, New, Options, Subject};
use bickford::{Context, Errno, RenameFlags, Result};
use bickford_program::Program;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};

const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
/// Bytes that one value may have.
const VALUE_MAX: u64 = 16 << 20;

struct Store(Database);

/// What went wrong in the database is for the log; the caller gets EIO.
fn failed(error: impl std::fmt::Display) -> Errno {
    tracing::error!("database: {error}");
    Errno::IO
}

fn key(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    let top = path.parent() == Some(Path::new("/"));
    name.filter(|_| top).ok_or(Errno::NOENT)
}

/// The key of a name to be made. Keys are UTF-8.
fn new_key(path: &Path) -> Result<&str> {
    key(path).map_err(|_| Errno::ILSEQ)
}

type Values<'t> = Table<'t, &'static str, &'static [u8]>;

fn value(table: &impl ReadableTable<&'static str, &'static [u8]>, path: &Path) -> Result<Vec<u8>> {
    let value = table.get(key(path)?).map_err(failed)?;
    Ok(value.ok_or(Errno::NOENT)?.value().to_vec())
}

impl Store {
    fn get(&self, path: &Path) -> Result<Vec<u8>> {
        let transaction = self.0.begin_read().map_err(failed)?;
        value(&transaction.open_table(VALUES).map_err(failed)?, path)
    }

    /// Changes values in a transaction; on an error nothing changes.
    fn change<T>(&self, change: impl FnOnce(&mut Values<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.0.begin_write().map_err(failed)?;
        let changed = change(&mut transaction.open_table(VALUES).map_err(failed)?)?;
        transaction.commit().map_err(failed)?;
        Ok(changed)
    }

    /// Changes the value at a path.
    fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.change(|values| {
            let mut value = value(values, path)?;
            edit(&mut value);
            values.insert(key(path)?, &*value).map(drop).map_err(failed)
        })
    }
}

/// A size that a value may have.
fn checked(size: u64) -> Result<usize> {
    let size = Some(size).filter(|size| *size <= VALUE_MAX);
    size.map(|size| size as usize).ok_or(Errno::FBIG)
}

impl FileSystem for Store {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        let path = subject.path()?;
        if path == Path::new("/") {
            return Ok(Attr::directory(1, 0o755));
        }
        Ok(Attr::file(0, 0o644, self.get(path)?.len() as u64))
    }

    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, listing: &mut Listing) -> Result<()> {
        let transaction = self.0.begin_read().map_err(failed)?;
        let values = transaction.open_table(VALUES).map_err(failed)?;
        for entry in values.iter().map_err(failed)? {
            listing.add(entry.map_err(failed)?.0.value(), 0o100_000);
        }
        Ok(())
    }

    fn mknod(&self, _: &Context<'_>, path: &Path, new: New) -> Result<()> {
        if new.mode & 0o170_000 != 0o100_000 {
            return Err(Errno::PERM);
        }
        let empty: &[u8] = &[];
        self.change(|values| match values.insert(new_key(path)?, empty) {
            Ok(Some(_)) => Err(Errno::EXIST),
            other => other.map(drop).map_err(failed),
        })
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Result<()> {
        self.change(|values| {
            let removed = values.remove(key(path)?).map_err(failed)?;
            removed.map(drop).ok_or(Errno::NOENT)
        })
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        let exchange = flags == RenameFlags::EXCHANGE;
        if !exchange && !flags.is_empty() {
            return Err(Errno::INVAL);
        }
        self.change(|values| {
            let moved = value(values, from)?;
            let left = match exchange {
                true => {
                    let other = value(values, to)?;
                    values.insert(key(from)?, &*other).map(drop)
                }
                false => values.remove(key(from)?).map(drop),
            };
            left.map_err(failed)?;
            let put = values.insert(new_key(to)?, &*moved).map(drop);
            put.map_err(failed)
        })
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(Data::part(self.get(file.path()?)?, offset, size))
    }

    fn write(&self, _: &Context<'_>, file: Subject<'_>, at: u64, data: Payload<'_>) -> Result<u32> {
        let data = data.bytes().map_err(failed)?;
        let end = checked(at.saturating_add(data.len() as u64))?;
        self.edit(file.path()?, |value| {
            value.resize(value.len().max(end), 0);
            value[at as usize..end].copy_from_slice(&data);
        })?;
        Ok(data.len() as u32)
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        let size = checked(size)?;
        self.edit(subject.path()?, |value| value.resize(size, 0))
    }
}

fn main() -> ExitCode {
    // A value is known by its key alone: one that is removed while it is open is kept until then.
    let options = Options {
        hide_removed: true,
        ..Options::default()
    };
    Program::new("kv")
        .about("A database as a directory")
        .source_path("DATABASE")
        .path_options(options)
        .run(|given| {
            let store = Database::create(&given.source)
                .map_err(|error| format!("{}: {error}", given.source.display()))?;
            let store = Store(store);
            // So that there is a table to read.
            store.change(|_| Ok(()))?;
            Ok(Adapter::new(store, given.path_options))
        })
}
