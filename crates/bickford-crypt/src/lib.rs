//! A layer that encrypts contents and names of any Bickford file system.
//!
//! [`Crypt`] stands over a file system and keeps files in it encrypted and authenticated: contents
//! in blocks of 4 KiB (XChaCha20-Poly1305), names and targets of symbolic links deterministically
//! (AES-SIV), under a master key that a passphrase opens (Argon2id). The format is described byte
//! by byte in `docs/crypt-format.md`, with what is guaranteed and what is not.
//!
//! - A wrong key, and data that were truncated, reordered or altered, give EIO, never plaintext.
//! - What a crash interrupts is read as it was before, or as it was to be, or gives EIO.
//! - Not hidden: sizes, times, owners, permissions, extended attributes, the shape of the tree,
//!   and which names are equal. Not noticed: a whole file, block or name that is put back as it
//!   was at an earlier time in the same place, and a name that is moved or removed.
//!
//! Kernel pass-through, zero-message open and O_TRUNC within OPEN are turned off. Files are never
//! sparse, a name has at most 175 bytes, and whoever writes to a file must be allowed to read it.

mod block;
mod change;
mod file;
mod filesystem;
mod geometry;
mod keys;
mod listing;
mod making;
mod names;
mod queue;
#[cfg(test)]
mod vectors;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bickford::FileSystem;
use bickford::layer::Needs;

use file::Inner;
use keys::{InUse, Keys};
use zeroize::Zeroizing;

pub use geometry::SIZE_MAX;
pub use keys::{Cost, NewKeyFile};
pub use names::{NAME_MAX, TARGET_MAX, looks_encrypted};

/// Most bytes of a file with a passphrase.
const PASSPHRASE_MAX: u64 = 64 << 10;

/// A key that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// The key file cannot be used, for this reason.
    #[error("{0}: {1}")]
    KeyFile(PathBuf, Box<Error>),
    /// The file is not one of a master key, or of another version.
    #[error("no key file that this version can read: {0}; give the file that 'create' made")]
    NotAKeyFile(String),
    /// The passphrase is not the right one, or the file was altered.
    #[error("the passphrase is wrong, or the key file was altered")]
    WrongPassphrase,
    /// More memory or time is asked for than is sensible, or less than Argon2 allows.
    #[error("what a try of the passphrase costs is out of bounds: {0}; {bounds}", bounds = Cost::BOUNDS)]
    Cost(Cost),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// Makes a key file with a new master key under a passphrase. An existing file is not touched.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn create_key_file(path: &Path, passphrase: &[u8], cost: Cost) -> Result<NewKeyFile, Error> {
    keys::create(path, passphrase, cost)
}

/// Reads the passphrase that a file holds; a newline at its end does not count.
///
/// # Errors
/// When the file cannot be read or holds none.
pub fn read_passphrase(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let read = File::open(path).and_then(|file| read_bounded(&file, PASSPHRASE_MAX));
    let mut passphrase =
        Zeroizing::new(read.map_err(|error| Error::File(path.to_owned(), error.to_string()))?);
    if passphrase.len() as u64 > PASSPHRASE_MAX {
        let more = format!("more than {PASSPHRASE_MAX} bytes, which is no passphrase");
        return Err(Error::File(path.to_owned(), more));
    }
    if passphrase.last() == Some(&b'\n') {
        passphrase.pop();
    }
    if passphrase.is_empty() {
        return Err(Error::File(
            path.to_owned(),
            "no passphrase in it".to_owned(),
        ));
    }
    Ok(passphrase)
}

/// Reads a file, and at most one byte more than `most`.
fn read_bounded(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file system that keeps its files encrypted in another one.
#[derive(Debug)]
pub struct Crypt {
    inner: Arc<Inner>,
    _key_file: Option<InUse>,
}

impl Crypt {
    /// Over `lower`, with the master key of a key file. That is locked (shared, flock(2)) as long as this lives, so that
    /// [`NewKeyFile::remove`] leaves it; where its file system has no locks it is not.
    ///
    /// # Errors
    /// When the file cannot be read, is no key file, another process removes it, or the passphrase does not open it.
    pub fn open(
        lower: Box<dyn FileSystem>,
        key_file: &Path,
        passphrase: &[u8],
    ) -> Result<Self, Error> {
        let (master, in_use) = keys::read(key_file, passphrase)?;
        Ok(Self {
            _key_file: Some(in_use),
            ..Self::with_master(lower, &master)
        })
    }

    /// Over `lower`, with a master key.
    #[must_use]
    pub fn with_master(lower: Box<dyn FileSystem>, master: &[u8; 32]) -> Self {
        Self {
            inner: Arc::new(Inner::new(lower, Keys::from_master(master))),
            _key_file: None,
        }
    }

    /// How names below are shown, for whoever tells the kernel of changes below; `None` for those that are not.
    pub fn shown(&self) -> impl Fn(&CStr) -> Option<CString> + Send + Sync + use<> {
        let inner = Arc::clone(&self.inner);
        move |name| {
            let name = names::open(&inner.keys, names::Kind::Name, name.to_bytes()).ok()?;
            CString::new(name).ok()
        }
    }

    /// What must not be turned off by a fast mode.
    #[must_use]
    pub fn needs() -> Needs {
        Needs {
            data: true,
            contents: true,
            opens: true,
            because: "contents are encrypted here".to_owned(),
            ..Needs::default()
        }
    }
}
