//! What the tests take from the machine.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::SharedMap;

/// Where the kernel says whether FUSE over io_uring is allowed.
pub(crate) const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

const DEVICE: &str = "/dev/fuse";

/// Fails unless the tests run as root.
///
/// # Panics
/// When they do not.
pub fn require_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "the conformance tests mount file systems and change users; run them as root: \
         sudo -E env \"PATH=$PATH\" make test"
    );
}

/// Whether files in a directory can be mapped shared. With direct I/O they cannot before Linux 6.6, which is said.
///
/// # Panics
/// When they cannot although this kernel can.
#[must_use]
pub fn maps_shared(directory: &Path) -> bool {
    let path = directory.join("mapped-shared");
    fs::write(&path, [0; 16]).expect("write");
    let file = File::options().read(true).write(true).open(&path);
    let mapped = SharedMap::new(&file.expect("open"), 16);
    fs::remove_file(&path).expect("remove");
    let Err(error) = mapped else { return true };
    assert!(
        linux() < (6, 6) && error.raw_os_error() == Some(libc::ENODEV),
        "map a file in {}: {error}",
        directory.display()
    );
    crate::say(format_args!(
        "left out: files with direct I/O cannot be mapped shared; Linux 6.6 is needed"
    ));
    false
}

/// Whether mounts tell where files have holes: before Linux 6.16 StackFS mostly tells that all is data.
#[must_use]
pub fn tells_holes() -> bool {
    linux() >= (6, 16)
}

/// Whether mounts tell when files were born: before Linux 6.6 the kernel does not ask (STATX).
#[must_use]
pub fn tells_birth() -> bool {
    linux() >= (6, 6)
}

/// Version of the kernel.
fn linux() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_str().expect("release");
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// User and group of an ordinary user: `nobody`, who is on every Debian.
#[must_use]
pub fn ordinary_user() -> (u32, u32) {
    (65534, 65534)
}

/// Lets ordinary users open `/dev/fuse` while it lives, as the rules of udev do; a machine without
/// udev leaves it to root. One lives at a time: the mode before would be another's.
#[derive(Debug)]
pub struct OpenDevice {
    mode_before: u32,
    _alone: MutexGuard<'static, ()>,
}

static OPEN_DEVICE: Mutex<()> = Mutex::new(());

impl OpenDevice {
    /// Opens it to all.
    ///
    /// # Panics
    /// When it is not there or its mode cannot be changed.
    #[must_use]
    pub fn new() -> Self {
        let alone = OPEN_DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
        let mode = |error| panic!("{DEVICE}: {error}");
        let mode_before = fs::metadata(DEVICE)
            .unwrap_or_else(mode)
            .permissions()
            .mode();
        set_device_mode(0o666);
        Self {
            mode_before,
            _alone: alone,
        }
    }
}

impl Default for OpenDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        set_device_mode(self.mode_before & 0o7777);
    }
}

fn set_device_mode(mode: u32) {
    fs::set_permissions(DEVICE, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("chmod {DEVICE}: {error}"));
}

/// A mount of this mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// The minor number of its device, which is the number of a FUSE connection.
    pub(crate) minor: u32,
    /// Its type, such as `fuse.bickford`.
    pub(crate) kind: String,
}

/// The mount points of every FUSE file system at or below `directory`.
#[must_use]
pub fn fuse_mounts(directory: &Path) -> Vec<PathBuf> {
    let found = fuse_mounts_below(directory);
    found.into_iter().map(|mount| mount.mountpoint).collect()
}

pub(crate) fn fuse_mounts_below(directory: &Path) -> Vec<MountEntry> {
    let mut found = mounts();
    found.retain(|mount| is_fuse(&mount.kind) && mount.mountpoint.starts_with(directory));
    found
}

pub(crate) fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind.starts_with("fuse.")
}

/// The topmost mount on a path, if one is there. Does not touch the mounted file system.
pub(crate) fn mount_at(mountpoint: &Path) -> Option<MountEntry> {
    mounts()
        .into_iter()
        .rfind(|mount| mount.mountpoint == mountpoint)
}

fn mounts() -> Vec<MountEntry> {
    // A mount point that is not UTF-8 hides no other.
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table.lines().filter_map(parse_mount).collect()
}

/// One line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
fn parse_mount(line: &str) -> Option<MountEntry> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ');
    let minor = fields.nth(2)?.split_once(':')?.1.parse().ok()?;
    let mountpoint = fields.nth(1)?;
    Some(MountEntry {
        mountpoint: PathBuf::from(unescape(mountpoint)),
        minor,
        kind: right.split(' ').next()?.to_owned(),
    })
}

/// Blank, tab, newline and backslash are written as three octal digits.
fn unescape(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = "36 35 0:49 / /mnt/a\\040b rw,noatime shared:1 - fuse.bickford /src rw,a=b";
        let mount = parse_mount(line).expect("line");
        assert_eq!(mount.mountpoint, Path::new("/mnt/a b"));
        assert_eq!(mount.minor, 49);
        assert!(is_fuse(&mount.kind));
        assert_eq!(parse_mount("36 35 0:49"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mount_at(Path::new("/")).is_some());
        assert!(mount_at(Path::new("/nothing is here")).is_none());
    }
}
