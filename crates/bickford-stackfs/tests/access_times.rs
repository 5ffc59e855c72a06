//! Times of last access below, as the flags of the mount and of open(2) want them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bickford::mount::GenericFlags;
use bickford_stackfs::{IoMode, Preset};
use rustix::fs::OFlags;
use support::{Mount, can_mount, has, with_io};

const IO: [IoMode; 3] = [IoMode::Passthrough, IoMode::Direct, IoMode::Plain];
const DAY: Duration = Duration::from_secs(24 * 3600);

fn mounted(io: IoMode, flags: GenericFlags) -> Mount {
    let settings = with_io(Preset::Fast.settings(), io);
    let lower = tempfile::tempdir().unwrap();
    fs::write(lower.path().join("read"), "text").unwrap();
    Mount::over(lower, |builder| {
        builder.settings(settings).mount_flags(flags)
    })
}

fn set_accessed(path: &Path, when: SystemTime) {
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_accessed(when)).unwrap();
}

fn read(path: &Path, flags: OFlags) {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let mut text = String::new();
    options
        .open(path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "text");
}

/// Whether reading a file whose time of last access is `accessed` changes it.
fn changes(mount: &Mount, accessed: SystemTime, flags: OFlags) -> bool {
    set_accessed(&mount.below("read"), accessed);
    let seconds = || fs::metadata(mount.below("read")).unwrap().atime();
    let before = seconds();
    read(&mount.path("read"), flags);
    seconds() != before
}

#[test]
fn the_mount_decides() {
    if !can_mount() {
        return;
    }
    let now = SystemTime::now();
    for io in IO.into_iter().filter(has) {
        let relative = mounted(io, GenericFlags::empty());
        assert!(changes(&relative, now - 3 * DAY, OFlags::empty()), "{io:?}");
        let never = mounted(io, GenericFlags::NO_ATIME);
        assert!(!changes(&never, now - 3 * DAY, OFlags::empty()), "{io:?}");
        let always = mounted(io, GenericFlags::STRICT_ATIME);
        assert!(changes(&always, now + 3 * DAY, OFlags::empty()), "{io:?}");
    }
}

#[test]
fn and_so_does_who_opens() {
    if !can_mount() {
        return;
    }
    for io in IO.into_iter().filter(has) {
        let mount = mounted(io, GenericFlags::STRICT_ATIME);
        let then = SystemTime::now() - 3 * DAY;
        assert!(!changes(&mount, then, OFlags::NOATIME), "{io:?}");
        if io == IoMode::Plain {
            // What the page cache answers reaches no file.
            continue;
        }
        let mut quiet = OpenOptions::new();
        quiet
            .read(true)
            .custom_flags(OFlags::NOATIME.bits().cast_signed());
        let quiet = quiet.open(mount.path("read")).unwrap();
        assert!(
            changes(&mount, then, OFlags::empty()),
            "{io:?}: another's flags"
        );
        drop(quiet);
    }
}
