//! Mounts of a block device, as file systems have that keep what they show there.
//!
//! Needs root, /dev/fuse and loop devices; without them each test says so and ends.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::mount::{MountEntry, MountOptions, Unmount};
use bickford::ops::Attr;
use bickford::path::{Adapter, FileSystem, Options, Subject};
use bickford::{Context, Errno, MountedSession, Negotiation, Result, Session, SessionConfig};

use rustix::mount::UnmountFlags;
use support::DEADLINE;

const SIZE: u64 = 8192;

/// A block device over a file; detached at the end.
struct Loop {
    path: String,
    _image: tempfile::NamedTempFile,
}

impl Loop {
    fn new() -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let mut attach = Command::new("losetup");
        let attached = attach.args(["--find", "--show"]).arg(image.path()).output();
        match attached {
            Ok(output) if output.status.success() => Some(Self {
                path: String::from_utf8(output.stdout).unwrap().trim().to_owned(),
                _image: image,
            }),
            other => {
                support::say(format_args!("left out: no loop devices: {other:?}"));
                None
            }
        }
    }

    fn options(&self) -> MountOptions {
        let text = format!("blkdev,blksize=1024,subtype=disk,fsname={}", self.path);
        MountOptions::parse(&text).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["-d", &self.path]).status();
        if !detached.is_ok_and(|status| status.success()) {
            support::say(format_args!("{} is left", self.path));
        }
    }
}

/// One file, whose blocks lie one after the other; tells which are asked for, and when it is destroyed, and waits.
struct Disk {
    asked: Arc<Mutex<Vec<(u64, u32)>>>,
    ends: Sender<&'static str>,
    may_end: Mutex<Receiver<()>>,
}

impl FileSystem for Disk {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.set_read_ahead(1 << 20);
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        match subject.path()?.to_str() {
            Some("/") => Ok(Attr::directory(1, 0o755)),
            Some("/file") => Ok(Attr::file(0, 0o644, SIZE)),
            _ => Err(Errno::NOENT),
        }
    }

    fn bmap(&self, _: &Context<'_>, path: &Path, block_size: u32, block: u64) -> Result<u64> {
        assert_eq!(path.to_str(), Some("/file"));
        self.asked.lock().unwrap().push((block, block_size));
        Ok(700 + block)
    }

    fn destroy(&self) {
        self.ends.send("begins").unwrap();
        self.may_end.lock().unwrap().recv_timeout(DEADLINE).unwrap();
        self.ends.send("ends").unwrap();
    }
}

struct Mounted {
    session: MountedSession,
    asked: Arc<Mutex<Vec<(u64, u32)>>>,
    /// Lets it end.
    end: Sender<()>,
    ended: Receiver<&'static str>,
    _watchdog: support::Watchdog,
}

fn mounted(mountpoint: &Path, device: &Loop, config: SessionConfig) -> Mounted {
    let (ends, ended) = channel();
    let (end, may_end) = channel();
    let disk = Disk {
        asked: Arc::default(),
        ends,
        may_end: Mutex::new(may_end),
    };
    let asked = Arc::clone(&disk.asked);
    let disk = Adapter::new(disk, Options::default());
    let session = Session::mount(disk, mountpoint, &device.options(), config).unwrap();
    let _watchdog = support::watch(mountpoint.to_owned(), session.connection());
    Mounted {
        session,
        asked,
        end,
        ended,
        _watchdog,
    }
}

/// What is on the disk is all there when umount(8) has returned, and the disk may be taken away.
#[test]
fn unmounting_waits_for_the_end_of_the_file_system() {
    support::over_each_transport(|config| {
        let Some(device) = Loop::new() else { return };
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap();
        let mounted = mounted(&path, &device, config);
        let entry = MountEntry::at(&path).unwrap().unwrap();
        assert_eq!(entry.fs_type, "fuseblk.disk");
        assert_eq!(entry.source, device.path.as_str());
        assert_eq!(mounted.session.connection(), Some(entry.connection()));
        let number = fs::metadata(&device.path).unwrap().rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let read_ahead = format!("/sys/class/bdi/{major}:{minor}-fuseblk/read_ahead_kb");
        assert_eq!(fs::read_to_string(read_ahead).unwrap(), "1024\n");

        let umount =
            std::thread::spawn(move || rustix::mount::unmount(path, UnmountFlags::empty()));
        assert_eq!(mounted.ended.recv_timeout(DEADLINE).unwrap(), "begins");
        std::thread::sleep(Duration::from_millis(100));
        assert!(!umount.is_finished());
        mounted.end.send(()).unwrap();
        umount.join().unwrap().unwrap();
        assert_eq!(mounted.ended.try_recv(), Ok("ends"));
        mounted.session.wait();
        let again = mounted.ended.try_iter().count();
        assert_eq!(again, 0, "it was destroyed again");
    });
}

#[test]
fn the_blocks_of_a_file_are_asked_for() {
    support::over_each_transport(|config| {
        let Some(device) = Loop::new() else { return };
        let place = tempfile::tempdir().unwrap();
        let mounted = mounted(place.path(), &device, config);
        mounted.end.send(()).unwrap();
        // It asks for each block by FIBMAP.
        let told = Command::new("filefrag")
            .arg("-B")
            .arg(place.path().join("file"))
            .output()
            .unwrap();
        let text = String::from_utf8(told.stdout).unwrap();
        assert!(text.contains(": 1 extent found"), "{text}");
        let asked = mounted.asked.lock().unwrap().clone();
        // Linux 6.18 has blocks of a page, whatever is said.
        let (_, size) = asked[0];
        let expected = (0..SIZE / u64::from(size)).map(|block| (block, size));
        assert_eq!(asked, expected.collect::<Vec<_>>());
    });
}

#[test]
fn what_is_no_free_block_device_is_refused() {
    if !support::can_mount() {
        return;
    }
    let Some(device) = Loop::new() else { return };
    let [place, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mounted = mounted(place.path(), &device, SessionConfig::default());
    mounted.end.send(()).unwrap();
    let file = other.path().display().to_string();
    let refused = |options: &MountOptions, named: &str| {
        let error = bickford::mount::mount(other.path(), options).unwrap_err();
        let told = error.to_string();
        assert!(told.contains(&format!("block device {named}: ")), "{told}");
    };
    refused(&device.options(), &device.path);
    refused(&device.options().fsname(&*file), &file);
    mounted.session.unmount(Unmount::Lazy).unwrap();
    mounted.session.wait();
    refused(&device.options().block_size(1000), &device.path);
}
