//! A key-value store as files: `kv DATABASE MOUNTPOINT`. Each key of an embedded database (redb) is
//! a file, and its value the contents. What a write(2) has written survives a crash.

mod store;

use std::path::Path;

use bickford::ops::{Attr, Data, Payload};
use bickford::path::{Adapter, FileSystem, Listing, New, Options, Subject};
use bickford::{Context, Errno};
use bickford_examples::{Outcome, arguments, serve};
use redb::{ReadableDatabase, ReadableTable};
use rustix::fs::RenameFlags;

use store::{Answer, Store, VALUES, failed, key};

/// Bytes that one value may have.
const VALUE_MAX: usize = 16 << 20;

impl FileSystem for Store {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Answer<Attr> {
        let path = subject.path()?;
        if path == Path::new("/") {
            return Ok(Attr::directory(1, 0o755));
        }
        Ok(Attr::file(0, 0o644, self.get(path)?.len() as u64))
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        _: Subject<'_>,
        _: u64,
        listing: &mut Listing,
    ) -> Answer<()> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(VALUES).map_err(failed)?;
        for entry in table.iter().map_err(failed)? {
            listing.add(entry.map_err(failed)?.0.value(), 0o100_000);
        }
        Ok(())
    }

    fn mknod(&self, _: &Context<'_>, path: &Path, new: New) -> Answer<()> {
        if new.mode & 0o170_000 != 0o100_000 {
            return Err(Errno::PERM);
        }
        self.change(path, |value| {
            value.map_or(Ok(Some(Vec::new())), |_| Err(Errno::EXIST))
        })
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Answer<()> {
        self.change(path, |value| value.map(|_| None).ok_or(Errno::NOENT))
    }

    fn rename(&self, _: &Context<'_>, from: &Path, to: &Path, flags: RenameFlags) -> Answer<()> {
        if !flags.is_empty() {
            return Err(Errno::INVAL);
        }
        let _changing = self.changing.lock().map_err(failed)?;
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut table = transaction.open_table(VALUES).map_err(failed)?;
            let removed = table.remove(key(from)?).map_err(failed)?;
            let value = removed.ok_or(Errno::NOENT)?.value().to_vec();
            table.insert(key(to)?, value.as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Answer<Data> {
        let value = self.get(file.path()?)?;
        let from = value.len().min(offset as usize);
        let to = value.len().min(from + size as usize);
        Ok(value[from..to].to_vec().into())
    }

    fn write(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        data: Payload<'_>,
    ) -> Answer<u32> {
        let data = data.bytes().map_err(failed)?;
        let end = (offset as usize)
            .checked_add(data.len())
            .filter(|end| *end <= VALUE_MAX)
            .ok_or(Errno::FBIG)?;
        self.change(file.path()?, |value| {
            let mut value = value.ok_or(Errno::NOENT)?;
            value.resize(value.len().max(end), 0);
            value[offset as usize..end].copy_from_slice(&data);
            Ok(Some(value))
        })?;
        Ok(data.len() as u32)
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Answer<()> {
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= VALUE_MAX)
            .ok_or(Errno::FBIG)?;
        self.change(subject.path()?, |value| {
            let mut value = value.ok_or(Errno::NOENT)?;
            value.resize(size, 0);
            Ok(Some(value))
        })
    }
}

fn main() -> Outcome {
    let [database, mountpoint] = arguments("kv DATABASE MOUNTPOINT")?;
    // A value is known by its key alone: one that is removed while it is open is kept until then.
    let options = Options {
        hide_removed: true,
        ..Options::default()
    };
    serve(
        Adapter::new(Store::open(database)?, options),
        mountpoint,
        "kv",
    )
}
