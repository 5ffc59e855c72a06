//! Where an evaluation keeps what it needs while it runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::EvalError;
use crate::terminal::warn;

/// A directory for the image and the mount points, emptied and removed when dropped. It is never removed
/// with what is in its directories: something of the user's may still be mounted there.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    pub(crate) fn new(parent: &Path) -> Result<Self, EvalError> {
        let made = tempfile::Builder::new()
            .prefix("bickford-eval-")
            .tempdir_in(parent);
        Ok(Self {
            path: made.map_err(EvalError::io(parent))?.keep(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            // A directory that is a mount point or not empty stays.
            let removed = match entry.file_type() {
                Ok(kind) if kind.is_dir() => fs::remove_dir(entry.path()),
                _ => fs::remove_file(entry.path()),
            };
            if let Err(error) = removed {
                warn(&format!("{} is left: {error}", entry.path().display()));
            }
        }
        // Fails where something was left, which has been told.
        let _ = fs::remove_dir(&self.path);
    }
}
