//! A directory over paths.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use crate::example::{Example, can_mount, lazily_unmount};

/// Whether somebody reads a file.
fn reads(file: &Path, user: u32, group: u32) -> bool {
    let mut command = Command::new("cat");
    command.arg(file).uid(user).gid(group);
    command.output().unwrap().status.success()
}

#[test]
fn acls_are_obeyed() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    fs::set_permissions(lower.path(), Permissions::from_mode(0o755)).unwrap();
    let example = Example::start(env!("CARGO_BIN_EXE_mirror"), &[lower.path()]);
    fs::set_permissions(example.path(".."), Permissions::from_mode(0o755)).unwrap();
    let file = example.path("file");
    fs::write(&file, "text").unwrap();
    chown(&file, Some(1), Some(1)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let asked = |user, group| reads(&file, user, group);
    assert_eq!(
        [asked(1, 1), asked(2, 1), asked(3, 3)],
        [true, false, false]
    );
    let set = |acl| {
        let output = Command::new("setfacl")
            .args(["-m", acl])
            .arg(&file)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // The mask, which the mode shows as the group's, lets the group in no further.
    set("u:3:r");
    assert_eq!([asked(1, 1), asked(2, 1), asked(3, 3)], [true, false, true]);
    set("g:2:r,u:3:-");
    assert_eq!(
        [asked(2, 1), asked(2, 2), asked(3, 2)],
        [false, true, false]
    );
    // Whoever sets an ACL and is not of the group gives up its set-group-id bit, as with chmod.
    for (group, kept) in [(1, true), (9, false)] {
        chown(&file, Some(1), Some(group)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o2755)).unwrap();
        let mut command = Command::new("setfacl");
        command.args(["-m", "u:3:rwx"]).arg(&file).uid(1).gid(1);
        assert!(command.output().unwrap().status.success());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, if kept { 0o2775 } else { 0o775 });
    }
    let ruled = example.path("ruled");
    fs::create_dir(&ruled).unwrap();
    chown(&ruled, Some(1), Some(9)).unwrap();
    fs::set_permissions(&ruled, Permissions::from_mode(0o2775)).unwrap();
    let mut command = Command::new("setfacl");
    command
        .args(["-d", "-m", "u:3:rwx"])
        .arg(&ruled)
        .uid(1)
        .gid(1);
    assert!(command.output().unwrap().status.success());
    let mode = fs::metadata(&ruled).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o2775, "a default ACL changes no mode");
    example.finish();
}

/// The modes of what a user with a umask makes in a directory, without and with a default ACL.
fn made_in(directory: &Path) -> Vec<u32> {
    let mut modes = Vec::new();
    for (name, acl) in [("plain", false), ("ruled", true)] {
        let within = directory.join(name);
        fs::create_dir(&within).unwrap();
        fs::set_permissions(&within, Permissions::from_mode(0o777)).unwrap();
        if acl {
            let mut command = Command::new("setfacl");
            command.args(["-d", "-m", "u::rwx,g::rwx,o::r-x"]);
            assert!(command.arg(&within).status().unwrap().success());
        }
        let mut command = Command::new("sh");
        let line = "umask 073; echo > file; mkdir directory; mkfifo pipe";
        command.args(["-c", line]).current_dir(&within);
        assert!(command.uid(5).gid(5).status().unwrap().success());
        for made in ["file", "directory", "pipe"] {
            let mode = fs::metadata(within.join(made)).unwrap().permissions();
            modes.push(mode.mode());
        }
    }
    modes
}

#[test]
fn a_default_acl_takes_the_place_of_the_umask() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [lower, beside] = ["lower", "beside"].map(|name| place.path().join(name));
    for directory in [place.path(), &lower, &beside] {
        let _ = fs::create_dir(directory);
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    let example = Example::start(env!("CARGO_BIN_EXE_mirror"), &[&lower]);
    fs::set_permissions(example.path(".."), Permissions::from_mode(0o755)).unwrap();
    let natively = made_in(&beside);
    assert_eq!(natively[0] & 0o777, 0o604);
    assert_eq!(natively[3] & 0o777, 0o664);
    assert_eq!(made_in(&example.path("")), natively);
    example.finish();
}

#[test]
fn a_directory_is_synced() {
    if !can_mount() {
        return;
    }
    let [lower, logged] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let log = logged.path().join("log");
    let layer = PathBuf::from(format!("--layer=log:file={}", log.display()));
    let example = Example::start(env!("CARGO_BIN_EXE_mirror"), &[&layer, lower.path()]);
    fs::create_dir(example.path("directory")).unwrap();
    let directory = File::open(example.path("directory")).unwrap();
    directory.sync_all().unwrap();
    // As natively, where somebody has removed it meanwhile.
    fs::remove_dir(lower.path().join("directory")).unwrap();
    directory.sync_all().unwrap();
    drop(directory);
    example.finish();
    let log = fs::read_to_string(log).unwrap();
    let asked = log
        .lines()
        .filter(|line| line.contains("fsyncdir /directory"));
    assert_eq!(asked.count(), 2, "{log}");
}

/// As git(1) makes its objects, over a mirror that has no rights but those of the mode.
#[test]
fn files_that_nobody_may_write_are_made_and_written() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let start = || {
        remove_capability_from_bounding_set(CapabilitySet::DAC_OVERRIDE).unwrap();
        Example::start(env!("CARGO_BIN_EXE_mirror"), &[lower.path()])
    };
    let example = thread::scope(|scope| scope.spawn(start).join().unwrap());
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o444);
    let mut file = options.open(example.path("file")).unwrap();
    file.write_all(b"object").unwrap();
    file.set_len(3).unwrap();
    let made = lower.path().join("file");
    assert_eq!(fs::read(&made).unwrap(), b"obj");
    assert_eq!(fs::metadata(&made).unwrap().mode(), 0o100_444);
    let again = options.open(example.path("file")).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    drop(file);
    example.finish();
}

/// A tmpfs on a directory until it is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn on(directory: PathBuf) -> Self {
        fs::create_dir(&directory).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "tmpfs"]).arg(&directory);
        assert!(command.status().unwrap().success());
        Self(directory)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        lazily_unmount(&self.0);
    }
}

#[test]
fn files_of_two_devices_with_one_number_stay_two() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let devices = ["a", "b"].map(|name| Tmpfs::on(lower.path().join(name)));
    let numbers = devices.each_ref().map(|Tmpfs(device)| {
        fs::write(device.join("file"), device.as_os_str().as_encoded_bytes()).unwrap();
        fs::hard_link(device.join("file"), device.join("other")).unwrap();
        fs::metadata(device.join("file")).unwrap().ino()
    });
    assert_eq!(numbers[0], numbers[1], "each tmpfs counts for itself");
    let example = Example::start(env!("CARGO_BIN_EXE_mirror"), &[lower.path()]);
    let files = ["a/file", "b/file"].map(|name| File::open(example.path(name)).unwrap());
    for (mut file, Tmpfs(device)) in files.into_iter().zip(&devices) {
        let mut contents = Vec::new();
        file.read_to_end(&mut contents).unwrap();
        assert_eq!(contents, device.as_os_str().as_encoded_bytes());
    }
    let told = ["a/file", "b/file"].map(|name| fs::metadata(example.path(name)).unwrap().ino());
    assert_ne!(told[0], told[1]);
    example.finish();
}

#[test]
fn what_others_have_made_meanwhile_is_opened() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let arguments = ["-o".as_ref(), "negative_timeout=60".as_ref(), lower.path()];
    let example = Example::start(env!("CARGO_BIN_EXE_mirror"), &arguments);
    let file = example.path("file");
    // The kernel keeps in mind that there is none.
    assert!(!file.exists());
    fs::write(lower.path().join("file"), "theirs").unwrap();
    let mut options = File::options();
    let mut opened = options
        .read(true)
        .write(true)
        .create(true)
        .open(&file)
        .unwrap();
    let mut text = String::new();
    opened.read_to_string(&mut text).unwrap();
    assert_eq!(text, "theirs");
    drop(opened);
    example.finish();
}

#[test]
fn what_cannot_be_given_to_its_caller_is_not_made() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let lower = place.path().join("lower");
    fs::create_dir(&lower).unwrap();
    fs::set_permissions(&lower, Permissions::from_mode(0o777)).unwrap();
    let start = || {
        remove_capability_from_bounding_set(CapabilitySet::CHOWN).unwrap();
        Example::start(env!("CARGO_BIN_EXE_mirror"), &[&lower])
    };
    let example = thread::scope(|scope| scope.spawn(start).join().unwrap());
    fs::set_permissions(example.path(".."), Permissions::from_mode(0o755)).unwrap();
    for made in ["touch", "mkfifo", "mkdir", "ln -s target"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("LC_ALL=C {made} new")]);
        let asked = command
            .current_dir(example.path(""))
            .uid(1)
            .gid(1)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(said.contains("not permitted"), "{made}: {said}");
        assert_eq!(fs::read_dir(&lower).unwrap().count(), 0, "{made}");
    }
    example.finish();
}
