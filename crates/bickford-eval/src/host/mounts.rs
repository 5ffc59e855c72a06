//! What is mounted where, and how to get rid of it when it hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bickford::mount::MountEntry;
use rustix::mount::UnmountFlags;

/// A line of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its type, as `ext4` or `fuse.bickford`.
    pub fs_type: String,
}

impl Mount {
    /// The number of its FUSE connection, if it is one.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        let fuse = self.fs_type == "fuse"
            || self.fs_type == "fuseblk"
            || self.fs_type.starts_with("fuse.");
        // The kernel's dev_t: major above 20 bits of minor.
        fuse.then_some((self.device.0 << 20) | self.device.1)
    }
}

/// The topmost mount at `point`, which must be absolute and without symbolic links. Reads a table of
/// the kernel: it never touches the file system itself, so that a dead one cannot hold it up.
#[must_use]
pub fn at(point: &Path) -> Option<Mount> {
    let entry = MountEntry::at(point).ok()??;
    Some(Mount {
        device: (entry.major, entry.minor),
        point: entry.mountpoint,
        fs_type: entry.fs_type,
    })
}

/// Aborts the FUSE connection `number`: every request ends with an error.
///
/// # Errors
/// Why it could not be aborted.
pub fn abort(number: u32) -> Result<(), String> {
    let control = Path::new("/sys/fs/fuse/connections");
    let file = control.join(number.to_string()).join("abort");
    if !file.exists() && at(control).is_none() {
        super::tool(
            "mount",
            &["-t", "fusectl", "none", "/sys/fs/fuse/connections"],
        )?;
    }
    fs::write(&file, "1").map_err(|e| format!("write {}: {e}", file.display()))
}

/// Unmounts `point` until nothing is mounted there; after `patience` aborts the connection and
/// detaches the mount instead.
///
/// # Errors
/// Something is still mounted there.
pub fn unmount(point: &Path, patience: Duration) -> Result<(), String> {
    let end = Instant::now() + patience;
    let mut last = "the unmount does not return".to_owned();
    while let Some(mount) = at(point) {
        // In a thread of its own: it writes back, and a daemon that hangs would keep it for ever.
        let (tell, hear) = mpsc::channel();
        let (own, fuse) = (point.to_owned(), mount.connection().is_some());
        std::thread::spawn(move || tell.send(unmount_once(&own, fuse)));
        match hear.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) if Instant::now() < end => last = error,
            Ok(Err(_)) | Err(_) => {
                if let Some(number) = mount.connection() {
                    let _ = abort(number);
                }
                rustix::mount::unmount(point, UnmountFlags::DETACH)
                    .map_err(|e| format!("{last}; detach {}: {e}", point.display()))?;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn unmount_once(point: &Path, fuse: bool) -> Result<(), String> {
    if fuse && !super::is_root() {
        return super::tool("fusermount3", &["-u", super::utf8(point)?]).map(drop);
    }
    rustix::mount::unmount(point, UnmountFlags::empty())
        .map_err(|e| format!("unmount {}: {e}", point.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fuse_mount_has_a_connection() {
        let of = |fs_type: &str| Mount {
            device: (0, 53),
            point: PathBuf::from("/mnt"),
            fs_type: fs_type.to_owned(),
        };
        assert_eq!(of("fuse.bickford").connection(), Some(53));
        assert_eq!(of("ext4").connection(), None);
    }

    #[test]
    fn finds_what_is_mounted() {
        assert!(at(Path::new("/proc")).is_some());
        assert!(at(Path::new("/proc/nothing-is-mounted-here")).is_none());
    }
}
