//! Inode numbers where SOURCE has objects of several devices.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use bickford_stackfs::Preset;
use support::{Mount, Mounted, can_mount};

fn run(program: &str, arguments: &[&str], path: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(path).stdout(Stdio::null());
    command.stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// In each of these directories `file` has a second name, and natively the same number as in the others.
fn are_told_apart(lower: tempfile::TempDir, directories: &[&str], handles: bool) {
    for directory in directories {
        let file = lower.path().join(directory).join("file");
        fs::write(&file, directory).unwrap();
        fs::hard_link(&file, file.with_file_name("name")).unwrap();
    }
    let mount = Mount::over(lower, |builder| {
        builder.preset(Preset::Fast).file_handles(handles)
    });
    let mut seen = HashSet::from([fs::metadata(mount.path("")).unwrap().ino()]);
    for directory in directories {
        let path = mount.path(directory);
        let number = |name: &str| fs::metadata(path.join(name)).unwrap().ino();
        assert!(seen.insert(number("")), "{directory}");
        assert!(seen.insert(number("file")), "{directory}/file");
        assert_eq!(number("name"), number("file"), "{directory}");
        for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino(), "{entry:?}");
        }
    }
    let copy = tempfile::tempdir().unwrap();
    let mut cp = Command::new("cp");
    cp.arg("-a")
        .args(directories.iter().map(|name| mount.path(name)));
    assert!(cp.arg(copy.path()).status().unwrap().success());
    for directory in directories {
        let copied = fs::read_to_string(copy.path().join(directory).join("name"));
        assert_eq!(copied.unwrap(), *directory);
    }
}

#[test]
fn mounts_below_are_told_apart() {
    if !can_mount() {
        return;
    }
    for handles in [true, false] {
        let around = tempfile::tempdir().unwrap();
        let lower = tempfile::tempdir_in(around.path()).unwrap();
        let places = ["one", "other"].map(|name| lower.path().join(name));
        let _below = places.each_ref().map(|place| {
            fs::create_dir(place).unwrap();
            Mounted::at(place, "tmpfs", None)
        });
        are_told_apart(lower, &["one", "other"], handles);
    }
}

/// A fresh btrfs at `top` below `place`. `None` where there is none to be had.
fn btrfs(place: &Path) -> Option<Mounted> {
    let (image, top) = (place.join("image"), place.join("top"));
    fs::create_dir(&top).unwrap();
    fs::File::create(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let options = ["-o", "loop", image.to_str().unwrap()];
    if run("mkfs.btrfs", &["-q"], &image) && run("mount", &options, &top) {
        return Some(Mounted(top));
    }
    support::say(format_args!("left out: no btrfs"));
    None
}

#[test]
fn subvolumes_of_btrfs_are_told_apart() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let Some(below) = btrfs(place.path()) else {
        return;
    };
    for handles in [true, false] {
        let lower = tempfile::tempdir_in(&below.0).unwrap();
        for name in ["one", "other"] {
            let subvolume = lower.path().join(name);
            assert!(run("btrfs", &["-q", "subvolume", "create"], &subvolume));
        }
        are_told_apart(lower, &["one", "other"], handles);
    }
}

/// A snapshot has an empty directory for each subvolume of its origin. All of them have one inode number, and none can
/// be opened by its handle.
#[test]
fn subvolumes_that_a_snapshot_leaves_out_are_empty_directories() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let Some(below) = btrfs(place.path()) else {
        return;
    };
    for handles in [true, false] {
        let lower = tempfile::tempdir_in(&below.0).unwrap();
        let origin = lower.path().join("origin");
        for name in ["", "one", "other"] {
            let subvolume = origin.join(name);
            assert!(run("btrfs", &["-q", "subvolume", "create"], &subvolume));
        }
        let take = ["-q", "subvolume", "snapshot", origin.to_str().unwrap()];
        assert!(run("btrfs", &take, &lower.path().join("snapshot")));
        let mount = Mount::over(lower, |builder| {
            builder.preset(Preset::Fast).file_handles(handles)
        });
        let [one, other] = ["one", "other"].map(|name| mount.path("snapshot").join(name));
        let inside = fs::File::open(&one).unwrap();
        for _ in 0..2 {
            for path in [&one, &other] {
                assert!(fs::metadata(path).unwrap().is_dir(), "handles: {handles}");
                assert_eq!(fs::read_dir(path).unwrap().count(), 0);
            }
        }
        let place = format!("/proc/self/fd/{}", inside.as_raw_fd());
        assert_eq!(fs::read_link(place).unwrap(), one, "still the same");
        fs::remove_dir(&other).unwrap();
        let names = fs::read_dir(mount.path("snapshot")).unwrap();
        assert_eq!(names.count(), 1, "handles: {handles}");
    }
}
