//! SOURCE is an overlay.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bickford_stackfs::{IoMode, Preset};
use rustix::mount::MountFlags;
use support::{Mount, Mounted, can_mount, with_io};

/// `None` where there is no overlayfs.
fn overlay(top: &Path, merged: &Path) -> Option<Mounted> {
    let below = |name| top.join(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={},index=off",
        below("lower"),
        below("upper"),
        below("work")
    );
    let options = CString::new(options).unwrap();
    let flags = MountFlags::empty();
    match rustix::mount::mount("overlay", merged, "overlay", flags, &*options) {
        Ok(()) => Some(Mounted(merged.to_owned())),
        Err(error) => {
            support::say(format_args!("left out: no overlayfs: {error}"));
            None
        }
    }
}

#[test]
fn names_of_a_file_in_a_lower_layer_become_files_of_their_own() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Auto, IoMode::Cached, IoMode::Direct] {
        let around = tempfile::tempdir().unwrap();
        for name in ["lower", "upper", "work"] {
            fs::create_dir(around.path().join(name)).unwrap();
        }
        let lower = around.path().join("lower");
        fs::write(lower.join("kept"), "as it was").unwrap();
        fs::hard_link(lower.join("kept"), lower.join("changed")).unwrap();
        let merged = tempfile::tempdir_in(around.path()).unwrap();
        let place = merged.path().to_owned();
        let Some(_overlay) = overlay(around.path(), &place) else {
            return;
        };
        let settings = with_io(Preset::Fast.settings(), io);
        let mount = Mount::over(merged, |builder| builder.settings(settings));
        for name in ["kept", "changed"] {
            assert_eq!(fs::metadata(mount.path(name)).unwrap().nlink(), 2);
        }
        fs::write(mount.path("changed"), "otherwise").unwrap();
        for directory in [mount.path(""), place.clone()] {
            let read = |name| fs::read_to_string(directory.join(name)).unwrap();
            assert_eq!(read("kept"), "as it was", "{io:?}");
            assert_eq!(read("changed"), "otherwise", "{io:?}");
        }
        // What is linked in the upper layer is one file, whose attributes are known by all names.
        let [one, other] = ["changed", "linked"].map(|name| mount.path(name));
        fs::hard_link(&one, &other).unwrap();
        fs::write(&other, "longer than it was").unwrap();
        assert_eq!(fs::read_to_string(&one).unwrap(), "longer than it was");
        let [one, other] = [one, other].map(|path| fs::metadata(path).unwrap());
        let told = |found: &fs::Metadata| (found.ino(), found.nlink(), found.len());
        assert_eq!(told(&one), told(&other), "{io:?}");
        assert_eq!(one.nlink(), 2, "{io:?}");
    }
}
