//! Inode numbers where SOURCE has objects of several devices.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashSet;
use std::fs;
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

#[test]
fn subvolumes_of_btrfs_are_told_apart() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (image, top) = (place.path().join("image"), place.path().join("top"));
    fs::create_dir(&top).unwrap();
    fs::File::create(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let options = ["-o", "loop", image.to_str().unwrap()];
    if !run("mkfs.btrfs", &["-q"], &image) || !run("mount", &options, &top) {
        support::say(format_args!("left out: no btrfs"));
        return;
    }
    let _below = Mounted(top.clone());
    for handles in [true, false] {
        let lower = tempfile::tempdir_in(&top).unwrap();
        for name in ["one", "other"] {
            let subvolume = lower.path().join(name);
            assert!(run("btrfs", &["-q", "subvolume", "create"], &subvolume));
        }
        are_told_apart(lower, &["one", "other"], handles);
    }
}
