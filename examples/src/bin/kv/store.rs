//! Values by key, in a database.

use std::path::Path;
use std::sync::Mutex;

use bickford::Errno;
use redb::{Database, ReadableDatabase, TableDefinition};

pub(crate) const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
/// The database.
pub(crate) struct Store {
    pub(crate) database: Database,
    /// A change reads a value and writes it; one at a time.
    pub(crate) changing: Mutex<()>,
}

pub(crate) type Answer<T> = Result<T, Errno>;

/// What went wrong in the database is for the log; the caller gets EIO.
pub(crate) fn failed(error: impl std::fmt::Display) -> Errno {
    eprintln!("database: {error}");
    Errno::IO
}

pub(crate) fn key(path: &Path) -> Answer<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.filter(|_| path.parent() == Some(Path::new("/")))
        .ok_or(Errno::NOENT)
}

impl Store {
    pub(crate) fn open(path: impl AsRef<Path>) -> Result<Self, redb::Error> {
        let database = Database::create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(VALUES)?;
        transaction.commit()?;
        Ok(Self {
            database,
            changing: Mutex::default(),
        })
    }

    pub(crate) fn get(&self, path: &Path) -> Answer<Vec<u8>> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(VALUES).map_err(failed)?;
        let value = table.get(key(path)?).map_err(failed)?.ok_or(Errno::NOENT)?;
        Ok(value.value().to_vec())
    }

    /// Changes values in one transaction. `change` gets the value at a path, if there is one.
    pub(crate) fn change(
        &self,
        path: &Path,
        change: impl FnOnce(Option<Vec<u8>>) -> Answer<Option<Vec<u8>>>,
    ) -> Answer<()> {
        let _changing = self.changing.lock().map_err(failed)?;
        let value = match self.get(path) {
            Err(Errno::NOENT) => None,
            other => Some(other?),
        };
        let value = change(value)?;
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut table = transaction.open_table(VALUES).map_err(failed)?;
            match value {
                Some(value) => drop(table.insert(key(path)?, value.as_slice()).map_err(failed)?),
                None => drop(table.remove(key(path)?).map_err(failed)?),
            }
        }
        transaction.commit().map_err(failed)
    }
}
