//! Files whose contents are made when they are read have them through a mount, too, whatever size they tell.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use bickford_stackfs::{IoMode, Preset};
use rustix::mount::UnmountFlags;
use support::{Mount, can_mount};

/// What tells its size as 0 and never changes.
const FILE: &str = "kernel/ostype";

/// A part of procfs below another directory.
struct Bound(PathBuf);

impl Bound {
    fn at(path: &Path) -> Self {
        fs::create_dir(path).unwrap();
        rustix::mount::mount_bind("/proc/sys", path).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn files_of_procfs_below_source_have_contents() {
    if !can_mount() {
        return;
    }
    let native = fs::read_to_string(Path::new("/proc/sys").join(FILE)).unwrap();
    assert!(!native.is_empty());
    // With `cached` files the kernel opens them unasked.
    for (preset, io) in [
        (Preset::Base, IoMode::Plain),
        (Preset::Opt, IoMode::Plain),
        (Preset::Fast, IoMode::Passthrough),
        (Preset::Fast, IoMode::Direct),
    ] {
        let mut settings = preset.settings();
        settings.io = io;
        let lower = tempfile::tempdir().unwrap();
        let bound = Bound::at(&lower.path().join("sys"));
        fs::write(lower.path().join("file"), "by size").unwrap();
        let mount = Mount::over(lower, |builder| builder.settings(settings));
        for _ in 0..2 {
            let shown = fs::read_to_string(mount.path("sys").join(FILE)).unwrap();
            assert_eq!(shown, native, "{} {}", preset.name(), io.name());
            assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "by size");
        }
        drop(bound);
        drop(mount);
    }
}
