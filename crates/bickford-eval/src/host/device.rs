//! Where the lower file system lives: a fresh ext4 on a loop device, or a directory.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{mounts, tool, utf8};
use crate::room::Room;
use crate::terminal::warn;

/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// How long the lower file system may take to be given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the user asked for with `--device`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// ext4 on a loop device over a file on the disk of the work directory.
    Disk,
    /// ext4 on a loop device over a file in memory.
    Ram,
    /// The file system of this directory as it is.
    Directory(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "disk" => Self::Disk,
            "ram" => Self::Ram,
            path if path.contains('/') || Path::new(path).is_dir() => {
                Self::Directory(PathBuf::from(path))
            }
            _ => return Err("expected `disk`, `ram` or a directory".into()),
        })
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk => f.write_str("disk"),
            Self::Ram => f.write_str("ram"),
            Self::Directory(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Choice {
    /// The user's own file system that the work is done on, directly or in an image in the work directory.
    #[must_use]
    pub fn file_system(&self, work: &Path) -> Option<String> {
        match self {
            Self::Disk => mounts::file_system(work),
            Self::Ram => None,
            Self::Directory(path) => mounts::file_system(path),
        }
    }
}

/// A lower file system that can be made anew; taken down when dropped.
#[derive(Debug)]
pub struct Device {
    /// Directory the workload's files lie in.
    data: PathBuf,
    /// Mount point of the loop device's ext4.
    lower: PathBuf,
    /// Name of the loop device, if there is one.
    device: Option<String>,
    /// Open as long as it is ours: what others detach by mistake stays attached until then, and its name
    /// does not become somebody else's device, which would be formatted.
    held: Option<File>,
    tmpfs: Option<PathBuf>,
    /// How many inodes it is to have where that is more than mkfs.ext4 makes by itself.
    inodes: Option<u64>,
}

impl Device {
    /// Sets up the device under `work`, large enough for `room`, unless `stop` is set meanwhile.
    ///
    /// # Errors
    /// What could not be set up; disk and ram need root.
    pub fn set_up(
        choice: &Choice,
        work: &Path,
        room: Room,
        stop: &AtomicBool,
    ) -> Result<Self, String> {
        let lower = work.join("lower");
        let mut device = Self {
            data: lower.join("data"),
            lower,
            device: None,
            held: None,
            tmpfs: None,
            inodes: None,
        };
        if let Choice::Directory(directory) = choice {
            let directory =
                fs::canonicalize(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
            check_room(&directory, room.grown(), "another directory")?;
            device.data = directory.join(format!("bickford-eval-data-{}", std::process::id()));
            return Ok(device);
        }
        if !super::is_root() {
            return Err(format!(
                "--device {choice} needs root for a loop device; run as root, or give a directory: --device DIR"
            ));
        }
        fs::create_dir_all(&device.lower)
            .map_err(|e| format!("{}: {e}", device.lower.display()))?;
        let image = if *choice == Choice::Ram {
            let ram = work.join("ram");
            fs::create_dir_all(&ram).map_err(|e| format!("{}: {e}", ram.display()))?;
            tool(
                "mount",
                &[
                    "-t",
                    "tmpfs",
                    "-o",
                    "size=100%,mode=0700",
                    "tmpfs",
                    utf8(&ram)?,
                ],
            )?;
            device.tmpfs = Some(ram.clone());
            ram.join("image")
        } else {
            work.join("image")
        };
        device.inodes = room.more_inodes();
        write_image(&image, room.length(), stop)?;
        let attach = |direct| {
            let arguments = ["--find", "--show", direct, utf8(&image)?];
            tool("losetup", &arguments)
        };
        // Else the host's page cache would hold the image, too. It is the image where that is a tmpfs, of which older
        // kernels (Linux 6.1) allow no direct I/O.
        let name = match attach("--direct-io=on") {
            Err(_) if device.tmpfs.is_some() => attach("--direct-io=off")?,
            attached => attached?,
        };
        device.held = File::open(&name).ok();
        device.device = Some(name);
        Ok(device)
    }

    /// Where the workload's files lie.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Makes the file system anew and empty.
    ///
    /// # Errors
    /// What failed.
    pub fn remake(&self) -> Result<(), String> {
        if let Some(device) = &self.device {
            self.free(device)?;
            let lazy = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            let inodes = self.inodes.map(|n| n.to_string());
            let mut arguments = vec!["-q", "-F", "-m", "0", "-E", lazy];
            arguments.extend(inodes.iter().flat_map(|n| ["-N", n]));
            arguments.push(device);
            tool("mkfs.ext4", &arguments)?;
            tool("mount", &[device, utf8(&self.lower)?])?;
        } else if self.data.exists() {
            fs::remove_dir_all(&self.data).map_err(|e| format!("{}: {e}", self.data.display()))?;
        }
        fs::create_dir_all(&self.data).map_err(|e| format!("{}: {e}", self.data.display()))
    }

    /// Mounts the file system again, so that it remembers nothing. A directory stays as it is.
    ///
    /// # Errors
    /// What failed.
    pub fn remount(&self) -> Result<(), String> {
        let Some(device) = &self.device else {
            return Ok(());
        };
        self.free(device)?;
        tool("mount", &[device, utf8(&self.lower)?]).map(drop)
    }

    /// Drops all caches, which needs root. What is returned is to be told: a directory is used all the same where they stay.
    ///
    /// # Errors
    /// Why the caches of a device of our own are not dropped.
    pub fn drop_caches(&self) -> Result<Option<String>, String> {
        if !super::is_root() {
            return Ok(None);
        }
        match super::drop_caches(&self.data) {
            Err(error) if self.device.is_none() => Ok(Some(error)),
            dropped => dropped.map(|()| None),
        }
    }

    /// Unmounts the device and waits until nobody has it: a daemon that ended a moment ago may still be
    /// giving up what it held of the file system.
    fn free(&self, device: &str) -> Result<(), String> {
        mounts::unmount(&self.lower, PATIENCE)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let flags = rustix::fs::OFlags::EXCL.bits().cast_signed();
            match File::options().read(true).custom_flags(flags).open(device) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(format!(
                        "{device} is still in use after the unmount: {error}{}",
                        mounts::elsewhere(device)
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// What of the device is free, for people, where that is next to nothing: else it is another that has no space left.
    #[must_use]
    pub fn room(&self) -> Option<String> {
        let held = rustix::fs::statvfs(&self.data).ok()?;
        // A file system without a bound for inodes tells none.
        let used_up = |free: u64, all: u64| free < all.div_ceil(100);
        if !used_up(held.f_bavail, held.f_blocks) && !used_up(held.f_favail, held.f_files) {
            return None;
        }
        let megabytes = |blocks: u64| blocks.saturating_mul(held.f_frsize) >> 20;
        Some(format!(
            "{} MB of {} MB and {} of {} inodes are free below {}: a smaller --scale needs less",
            megabytes(held.f_bavail),
            megabytes(held.f_blocks),
            held.f_favail,
            held.f_files,
            self.data.display()
        ))
    }

    /// The directory in /sys with the device's counters, if it is a block device.
    #[must_use]
    pub fn counters(&self) -> Option<PathBuf> {
        let parent = if self.data.exists() {
            &self.data
        } else {
            self.data.parent()?
        };
        let number = fs::metadata(parent).ok()?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        path.join("stat").exists().then_some(path)
    }
}

/// Before anything is written: a file system that is filled is in the way of its other users.
fn check_room(directory: &Path, needed: u64, advice: &str) -> Result<(), String> {
    let failed = |e| format!("{}: {e}", directory.display());
    let free = rustix::fs::statvfs(directory).map_err(failed)?;
    if free.f_blocks == 0 {
        // It does not tell: what does not fit ends a row with its error.
        return Ok(());
    }
    let mut room = free.f_bavail.saturating_mul(free.f_frsize);
    if rustix::fs::statfs(directory).map_err(failed)?.f_type == TMPFS_MAGIC {
        room = room.min(super::meminfo("MemAvailable"));
    }
    if needed > room {
        return Err(format!(
            "{}: the suite needs {} MB at this scale and {} MB are free; choose a smaller --scale or {advice}",
            directory.display(),
            needed >> 20,
            room >> 20
        ));
    }
    Ok(())
}

/// Writes every block of the image once: a block that was never written would cost more the first time.
fn write_image(image: &Path, length: u64, stop: &AtomicBool) -> Result<(), String> {
    check_room(image.parent().unwrap_or(image), length, "another --dir")?;
    let write = || -> std::io::Result<()> {
        let mut file = File::create(image)?;
        let block = crate::engine::pattern(4 << 20);
        let mut at = 0;
        while at < length {
            if stop.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            file.write_all_at(&block, at)?;
            at += block.len() as u64;
        }
        file.flush()?;
        file.sync_all()
    };
    write().map_err(|e| format!("write {}: {e}", image.display()))
}

impl Drop for Device {
    fn drop(&mut self) {
        let patience = Duration::from_secs(10);
        let mut problems = Vec::new();
        if let Some(device) = &self.device {
            problems.extend(mounts::unmount(&self.lower, patience).err());
            problems.extend(tool("losetup", &["-d", device]).err());
            // Now it goes.
            drop(self.held.take());
        } else if self.data.exists() {
            problems.extend(fs::remove_dir_all(&self.data).err().map(|e| e.to_string()));
        }
        if let Some(ram) = &self.tmpfs {
            problems.extend(mounts::unmount(ram, patience).err());
        }
        for problem in problems {
            warn(&format!("clean up: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of loop devices over a file.
    fn over(image: &Path) -> Vec<String> {
        let text = tool("losetup", &["-j", utf8(image).unwrap()]).unwrap();
        let names = text.lines().filter_map(|line| line.split(':').next());
        names.map(str::to_owned).collect()
    }

    #[test]
    fn a_directory_without_room_is_refused_before_it_is_filled() {
        let (work, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let choice = Choice::Directory(directory.path().to_owned());
        let stop = AtomicBool::new(false);
        let set_up = |bytes| {
            let room = Room { bytes, inodes: 1 };
            Device::set_up(&choice, work.path(), room, &stop).map(|_| ())
        };
        let error = set_up(u64::MAX / 2).unwrap_err();
        assert!(
            error.contains("MB are free; choose a smaller --scale or another directory"),
            "{error}"
        );
        set_up(1 << 20).unwrap();
    }

    #[test]
    fn what_is_free_is_told_of_a_full_device_only() {
        if !crate::host::is_root() {
            crate::terminal::warn("skipped: mounting needs root");
            return;
        }
        let (work, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let small = utf8(directory.path()).unwrap();
        tool("mount", &["-t", "tmpfs", "-o", "size=4m", "tmpfs", small]).unwrap();
        let choice = Choice::Directory(directory.path().to_owned());
        let (room, stop) = (Room::default(), AtomicBool::new(false));
        let device = Device::set_up(&choice, work.path(), room, &stop).unwrap();
        device.remake().unwrap();
        let before = device.room();
        let full = fs::write(device.data().join("file"), vec![0; 5 << 20]);
        let after = device.room();
        drop(device);
        mounts::unmount(directory.path(), PATIENCE).unwrap();
        assert_eq!(before, None);
        assert!(full.is_err());
        let told = after.unwrap_or_default();
        assert!(told.starts_with("0 MB of 4 MB and"), "{told}");
    }

    /// Somebody detaches it by mistake: its name must not become that of another's device, which would be
    /// formatted.
    #[test]
    fn a_device_that_others_detach_stays_until_its_end() {
        if !crate::host::is_root() {
            crate::terminal::warn("skipped: a loop device needs root");
            return;
        }
        let work = tempfile::tempdir().unwrap();
        let mut small = crate::rows::quick(0.01);
        small.truncate(1);
        let room = Room::of(small.iter().map(|row| &row.kind));
        let stop = AtomicBool::new(false);
        let device = Device::set_up(&Choice::Disk, work.path(), room, &stop).unwrap();
        let image = fs::canonicalize(work.path().join("image")).unwrap();
        let [name] = over(&image).try_into().unwrap();
        tool("losetup", &["-d", &name]).unwrap();
        assert_eq!(over(&image).first(), Some(&name), "it is still ours");
        for _ in 0..2 {
            device.remake().unwrap();
            device.remount().unwrap();
        }
        drop(device);
        // A program that another test is about to run may have the descriptors of this one for a moment.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !over(&image).is_empty() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(over(&image), Vec::<String>::new());
    }
}
