//! File systems to which upper case and lower case are one: a name that is made or removed has other spellings, of
//! which the kernel does not hear.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use bickford_stackfs::Preset;
use support::{Mount, Mounted, can_mount};

/// A new FAT at a directory, in an image beside it; none where there is no such thing, which is said.
fn fat(image: &Path, point: &Path) -> Option<Mounted> {
    let run = |command: &mut Command| {
        let done = command.output();
        done.is_ok_and(|done| done.status.success())
    };
    let made = run(Command::new("mkfs.vfat").arg("-C").arg(image).arg("2048"));
    let mut mount = Command::new("mount");
    mount.args(["-t", "vfat", "-o", "loop,umask=0"]);
    if made && run(mount.arg(image).arg(point)) {
        return Some(Mounted(point.to_owned()));
    }
    support::say(format_args!(
        "LEFT OUT: no FAT: it takes mkfs.vfat (dosfstools), a loop device and a kernel with vfat"
    ));
    None
}

#[test]
fn all_spellings_of_a_name_come_and_go_at_once() {
    if !can_mount() {
        return;
    }
    for directory in ["", "below"] {
        // Goes last, when nothing is mounted in it any more.
        let around = tempfile::tempdir().unwrap();
        let lower = tempfile::tempdir_in(around.path()).unwrap();
        let point = lower.path().join(directory);
        fs::create_dir_all(&point).unwrap();
        let Some(fat) = fat(&around.path().join("image"), &point) else {
            return;
        };
        let mount = Mount::over(lower, |builder| builder.preset(Preset::Fast));
        let path = |name: &str| mount.path(directory).join(name);
        let read = |name: &str| fs::read_to_string(path(name)).map_err(|error| error.kind());
        assert_eq!(read("Other"), Err(ErrorKind::NotFound));
        fs::write(path("NAME"), "text").unwrap();
        assert_eq!(read("name"), Ok("text".into()));
        fs::remove_file(path("NAME")).unwrap();
        assert_eq!(read("name"), Err(ErrorKind::NotFound), "{directory:?}");
        fs::write(path("OTHER"), "text").unwrap();
        assert_eq!(read("Other"), Ok("text".into()), "{directory:?}");
        drop((mount, fat));
    }
}
