//! Where an evaluation keeps what it needs while it runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::EvalError;
use crate::terminal::warn;

/// A directory for the image and the mount points, emptied and removed when dropped. It is never removed
/// with what is in its directories: something of the user's may still be mounted there.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
    /// Locked as long as the run lives.
    _lock: Option<File>,
}

const PREFIX: &str = "bickford-eval-";

/// What a run has in its directory.
const OURS: [&str; 4] = ["mnt", "lower", "image", "ram"];

impl WorkDirectory {
    pub(crate) fn new(parent: &Path) -> Result<Self, EvalError> {
        for left in left_behind(parent) {
            let path = left.display();
            warn(&format!(
                "{path} is left of a run that was killed, perhaps with mounts, a loop device, memory and a changed \
                 vm.dirty_background_bytes. Once no other run needs them: umount {path}/mnt {path}/lower, losetup -d the \
                 device that losetup -l shows for a file in it, umount {path}/ram, and remove the directory; \
                 docs/evaluation.md has all steps"
            ));
        }
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let path = made.map_err(EvalError::io(parent))?.keep();
        let lock = locked(&path);
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A directory with its lock, unless somebody else has that, or it cannot be had.
fn locked(path: &Path) -> Option<File> {
    let directory = File::open(path).ok()?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(directory)
}

/// Directories of runs that are no more. Only names are looked at: a mount in there may hang.
fn left_behind(parent: &Path) -> Vec<PathBuf> {
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let is_ours = |path: &PathBuf| {
        names(path)
            .iter()
            .any(|name| OURS.iter().any(|ours| name == ours))
    };
    let directories = names(parent).into_iter();
    directories
        .filter(|name| name.to_string_lossy().starts_with(PREFIX))
        .map(|name| parent.join(name))
        .filter(|path| is_ours(path) && locked(path).is_some())
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_left_is_found() {
        let parent = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir_all(path.join("mnt")).unwrap();
            path
        };
        let running = WorkDirectory::new(parent.path()).unwrap();
        fs::create_dir(running.path().join("mnt")).unwrap();
        made("another");
        fs::create_dir(parent.path().join("bickford-eval-quick-results")).unwrap();
        assert!(left_behind(parent.path()).is_empty());
        let left = vec![made("bickford-eval-left")];
        for _ in 0..2 {
            assert_eq!(left_behind(parent.path()), left, "who looks keeps no lock");
        }
        assert!(left_behind(Path::new("/nothing-is-here")).is_empty());
    }
}
