//! Lower directories on ext4.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::machine::{fuse_mounts, ordinary_user};
use crate::program::run_ok;
use crate::watchdog::unmount_lazily;

/// `f_type` of ext2, ext3 and ext4, see statfs(2).
const EXT4_MAGIC: u64 = 0xef53;

/// Size of the image that stands in where no directory on ext4 is found; it is sparse.
const IMAGE_BYTES: u64 = 16 << 30;

/// A fresh directory on ext4 that every user can reach, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    // Dropped in this order: the directory first, then the file system it lies on.
    directory: TempDir,
    _image: Option<Image>,
}

impl Scratch {
    /// Makes one.
    ///
    /// # Panics
    /// When neither a directory on ext4 is found nor an image can be mounted.
    #[must_use]
    pub fn new(name: &str) -> Self {
        if let Some(place) = place() {
            return Self {
                directory: temporary(&place, name),
                _image: None,
            };
        }
        let image = Image::new(IMAGE_BYTES);
        Self {
            directory: temporary(image.path(), name),
            _image: Some(image),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A new directory in it.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("mkdir {}: {error}", path.display()));
        // pjdfstest and the ordinary user need to get in.
        open_to_all(&path);
        path
    }

    /// The same, of the ordinary user.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn directory_of_user(&self, name: &str) -> PathBuf {
        let path = self.directory(name);
        let (user, group) = ordinary_user();
        chown(&path, Some(user), Some(group))
            .unwrap_or_else(|error| panic!("chown {}: {error}", path.display()));
        path
    }

    /// The layer `crypt` with a key in it that is cheap to open, and made where there is none.
    ///
    /// # Panics
    /// When its passphrase cannot be written.
    #[must_use]
    pub fn crypt_layer(&self) -> String {
        let (key, passphrase) = (self.path().join("key"), self.path().join("passphrase"));
        fs::write(&passphrase, "correct horse\n")
            .unwrap_or_else(|error| panic!("{}: {error}", passphrase.display()));
        format!(
            "crypt:key={},passphrase-file={},create=true,memory=64K,passes=1",
            key.display(),
            passphrase.display()
        )
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only a failed test leaves any, and its directory must not be removed through them.
        for mountpoint in fuse_mounts(self.path()).iter().rev() {
            unmount_lazily(mountpoint);
        }
    }
}

/// A small ext4 of its own on a loop device, which a test may fill or break.
#[derive(Debug)]
pub struct Image {
    mountpoint: PathBuf,
    _directory: TempDir,
}

impl Image {
    /// Makes and mounts one of `bytes` bytes.
    ///
    /// # Panics
    /// When it cannot be made or mounted.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let directory = temporary(&std::env::temp_dir(), "image");
        let file = directory.path().join("ext4");
        let mountpoint = directory.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap_or_else(|error| panic!("mkdir: {error}"));
        let made = fs::File::create(&file).and_then(|image| image.set_len(bytes));
        made.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        // Without lazy initialization, so that nothing is written behind the test's back.
        run_ok(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-m", "0", "-E"])
                .arg("lazy_itable_init=0,lazy_journal_init=0")
                .arg(&file),
        );
        run_ok(
            Command::new("mount")
                .args(["-o", "loop,errors=remount-ro"])
                .args([&file, &mountpoint]),
        );
        open_to_all(&mountpoint);
        Self {
            mountpoint,
            _directory: directory,
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Makes it read-only as a broken disk would, whoever has files open for writing. On some kernels, Linux 6.12
    /// among them, ext4 then answers everything with EIO.
    ///
    /// # Panics
    /// When it cannot be made so.
    pub fn break_to_read_only(&self) {
        // The kernel may report the abort as an error of the remount; what counts is the state.
        let remounted = crate::program::run(
            Command::new("mount")
                .args(["-o", "remount,abort"])
                .arg(&self.mountpoint),
        );
        let probe = fs::write(self.mountpoint.join("probe"), "x");
        let number = probe.err().and_then(|error| error.raw_os_error());
        assert!(
            matches!(number, Some(libc::EROFS | libc::EIO)),
            "{} is not read-only after remount,abort, but {number:?}: {}",
            self.mountpoint.display(),
            remounted.report()
        );
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        unmount_lazily(&self.mountpoint);
    }
}

/// The first directory on ext4 that every user can reach.
fn place() -> Option<PathBuf> {
    let asked_for = std::env::var_os("BICKFORD_SCRATCH").map(PathBuf::from);
    if let Some(directory) = asked_for {
        assert!(
            on_ext4(&directory),
            "BICKFORD_SCRATCH={}: not a directory on ext4",
            directory.display()
        );
        return Some(directory);
    }
    let test = std::env::current_exe().ok();
    let target = test.as_deref().and_then(|path| path.ancestors().nth(3));
    // Short paths first: the name of a socket has 108 bytes for all of its path.
    [
        Some(std::env::temp_dir()),
        Some(PathBuf::from("/var/tmp")),
        target.map(Path::to_owned),
    ]
    .into_iter()
    .flatten()
    .find(|directory| on_ext4(directory) && reachable_by_all(directory))
}

fn on_ext4(directory: &Path) -> bool {
    rustix::fs::statfs(directory)
        .is_ok_and(|statistics| u64::try_from(statistics.f_type) == Ok(EXT4_MAGIC))
}

/// Whether others may pass through the directory and all above it.
fn reachable_by_all(directory: &Path) -> bool {
    directory
        .ancestors()
        .all(|one| fs::metadata(one).is_ok_and(|metadata| metadata.mode() & 0o001 != 0))
}

/// A fresh directory that every user can reach, removed when dropped.
pub(crate) fn temporary(place: &Path, name: &str) -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix(&format!("bf-{name}-"))
        .tempdir_in(place)
        .unwrap_or_else(|error| panic!("temporary directory in {}: {error}", place.display()));
    open_to_all(directory.path());
    directory
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
        .unwrap_or_else(|error| panic!("chmod {}: {error}", directory.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_is_on_ext4_and_goes_away() {
        crate::require_root();
        let scratch = Scratch::new("scratch");
        let path = scratch.directory("inside");
        assert!(on_ext4(&path) && reachable_by_all(&path));
        let top = scratch.path().to_owned();
        drop(scratch);
        assert!(!top.exists());
    }

    #[test]
    fn an_image_can_be_broken() {
        crate::require_root();
        let image = Image::new(16 << 20);
        let open = fs::File::create(image.path().join("open")).expect("file");
        image.break_to_read_only();
        drop(open);
        let mountpoint = image.path().to_owned();
        drop(image);
        assert!(crate::machine::mount_at(&mountpoint).is_none());
    }
}
