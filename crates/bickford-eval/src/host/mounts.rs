//! What is mounted where, and how to get rid of it when it hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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

/// Undoes the octal escapes of mountinfo (space, tab, newline, backslash).
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal
            .filter(|_| first == b'\\')
            .and_then(|d| u8::from_str_radix(d, 8).ok())
        {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let point = fields.nth(1)?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        point: PathBuf::from(unescape(point)),
        fs_type: right.split(' ').next()?.to_owned(),
    })
}

/// The topmost mount at `point`, which must be absolute and without symbolic links. Reads a table of
/// the kernel: it never touches the file system itself, so that a dead one cannot hold it up.
#[must_use]
pub fn at(point: &Path) -> Option<Mount> {
    top(&fs::read("/proc/self/mountinfo").unwrap_or_default(), point)
}

/// The last of a table's mounts at `point`. Somebody's mount point that is not UTF-8 hides no other.
fn top(table: &[u8], point: &Path) -> Option<Mount> {
    String::from_utf8_lossy(table)
        .lines()
        .filter_map(parse_line)
        .rfind(|m| m.point == point)
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
    fn reads_a_line_with_optional_fields_and_escapes() {
        let line = "36 35 0:53 / /mnt/a\\040b rw,noatime shared:1 master:2 - fuse.bickford /src rw,user_id=0";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(mount.connection(), Some(53));
        let disk = parse_line("25 1 254:0 / / rw,relatime - ext4 /dev/vda rw").unwrap();
        assert_eq!((disk.connection(), disk.fs_type.as_str()), (None, "ext4"));
        assert_eq!(parse_line("nonsense"), None);
    }

    #[test]
    fn a_mount_point_that_is_not_utf8_hides_no_other() {
        let table =
            b"1 0 0:9 / /mnt/\xff rw - tmpfs none rw\n2 0 0:53 / /mnt/a rw - fuse.x /src rw\n";
        let found = top(table, Path::new("/mnt/a")).map(|m| m.device);
        assert_eq!(found, Some((0, 53)));
    }

    #[test]
    fn finds_what_is_mounted() {
        assert!(at(Path::new("/proc")).is_some());
        assert!(at(Path::new("/proc/nothing-is-mounted-here")).is_none());
    }
}
