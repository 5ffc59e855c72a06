//! What is mounted where, and how to get rid of it when it hangs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bickford::mount::MountEntry;
use rustix::mount::UnmountFlags;

/// The number of a mount's FUSE connection, if it has one.
#[must_use]
pub fn connection(mount: &MountEntry) -> Option<u32> {
    mount.is_fuse().then(|| mount.connection())
}

/// The topmost mount at `point`, which must be absolute and without symbolic links. Reads a table of
/// the kernel: it never touches the file system itself, so that a dead one cannot hold it up.
#[must_use]
pub fn at(point: &Path) -> Option<MountEntry> {
    MountEntry::at(point).ok()?
}

/// The file system that `path` lies on, by its type and its source: numbers of devices do not outlive a restart.
#[must_use]
pub fn file_system(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let all = MountEntry::all().ok()?;
    let mount = MountEntry::containing(&all, &path)?;
    let source = mount.source.to_string_lossy();
    Some(format!("{} on {source}", mount.fs_type))
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
/// detaches the mount instead, and returns why: what was not written back then is lost.
///
/// # Errors
/// Something is still mounted there.
pub fn unmount(point: &Path, patience: Duration) -> Result<Option<String>, String> {
    let end = Instant::now() + patience;
    let mut last = "the unmount does not return".to_owned();
    let mut forced = None;
    while let Some(mount) = at(point) {
        // In a thread of its own: it writes back, and a daemon that hangs would keep it for ever.
        let (tell, hear) = mpsc::channel();
        let (own, fuse) = (point.to_owned(), mount.is_fuse());
        std::thread::spawn(move || tell.send(unmount_once(&own, fuse)));
        match hear.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) if Instant::now() < end => last = error,
            Ok(Err(_)) | Err(_) => {
                if let Some(number) = connection(&mount) {
                    let _ = abort(number);
                }
                rustix::mount::unmount(point, UnmountFlags::DETACH)
                    .map_err(|e| format!("{last}; detach {}: {e}", point.display()))?;
                forced = Some(last.clone());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(forced)
}

/// Who has `device` mounted, where it is not mounted here any more: a mount namespace that was made meanwhile has
/// a copy of what was. Empty where nobody is found.
#[must_use]
pub fn elsewhere(device: &str) -> String {
    let Ok(metadata) = fs::metadata(device) else {
        return String::new();
    };
    let found = bickford::mount::device_elsewhere(metadata.rdev());
    found.first().map_or(String::new(), |first| {
        format!(
            "; process {} ({}) has a copy of the mount in a mount namespace of its own (as unshare(1) makes one): end it, \
             and keep others from making such while this runs",
            first.pid, first.name
        )
    })
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
    fn finds_what_is_mounted() {
        let proc = at(Path::new("/proc")).unwrap();
        assert_eq!(connection(&proc), None);
        assert!(at(Path::new("/proc/nothing-is-mounted-here")).is_none());
        let below = file_system(Path::new("/proc/self/fd")).unwrap();
        assert!(below.starts_with("proc on "), "{below}");
        assert_eq!(file_system(Path::new("/nothing-is-here")), None);
    }

    #[test]
    fn nobody_has_what_is_no_device_with_a_file_system() {
        assert_eq!(elsewhere("/dev/null"), "");
        assert_eq!(elsewhere("/nothing-is-here"), "");
    }
}
