//! Files that are removed while the kernel knows them, and while it does not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use bickford::ops::Forget;
use bickford::{FileSystem, NodeId};
use bickford_stackfs::{IoMode, Preset};
use support::{Mount, alone, can_mount, say, until, with_io};

/// A mount whose node ids are file handles; none where the temporary directory has no such.
fn mounted(preset: Preset, io: IoMode) -> Option<Mount> {
    if !can_mount() {
        return None;
    }
    let mount = Mount::with(with_io(preset.settings(), io));
    let identity = mount.stackfs.identity();
    if identity == "file handles as node ids" {
        return Some(mount);
    }
    let magic = rustix::fs::statfs(mount.below("")).unwrap().f_type;
    assert_ne!(magic, 0xef53, "on ext4: {identity}");
    say(format_args!("left out: nodes are {identity}"));
    None
}

/// Whether this process has the file open.
fn is_open_here(file: &fs::Metadata) -> bool {
    let listed = fs::read_dir("/proc/self/fd").unwrap();
    listed.filter_map(Result::ok).any(|entry| {
        let open = fs::metadata(entry.path());
        open.is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
    })
}

#[test]
fn a_file_that_the_kernel_never_saw_is_gone_when_it_is_removed() {
    let _alone = alone();
    let Some(mount) = mounted(Preset::Opt, IoMode::Plain) else {
        return;
    };
    let replace = |text: &str| {
        fs::write(mount.below("new"), text).unwrap();
        fs::rename(mount.below("new"), mount.below("f")).unwrap();
        fs::metadata(mount.below("f")).unwrap()
    };
    for round in 0..20 {
        replace("one");
        fs::metadata(mount.path("f")).unwrap();
        let unseen = replace("two");
        // The kernel has the name for a second.
        match round % 2 {
            0 => fs::remove_file(mount.path("f")).unwrap(),
            _ => {
                fs::write(mount.path("other"), "").unwrap();
                fs::rename(mount.path("other"), mount.path("f")).unwrap();
            }
        }
        until("it is closed", || !is_open_here(&unseen));
    }
}

/// The node id, made of what lsattr(1) calls the version.
fn node_of(path: &Path) -> Option<NodeId> {
    let listed = Command::new("lsattr").arg("-v").arg(path).output().ok()?;
    let text = String::from_utf8(listed.stdout).ok()?;
    let version: u32 = text.split_whitespace().next()?.parse().ok()?;
    let inode = fs::metadata(path).unwrap().ino();
    Some(NodeId(inode << 32 | u64::from(version ^ inode as u32)))
}

#[test]
fn an_open_file_outlives_a_late_forget() {
    let _alone = alone();
    let Some(mount) = mounted(Preset::Fast, IoMode::Cached) else {
        return;
    };
    // Afterwards it opens without asking.
    fs::write(mount.path("f"), "text").unwrap();
    fs::write(mount.path("f"), "text").unwrap();
    let Some(node) = node_of(&mount.below("f")) else {
        say(format_args!("left out: no lsattr"));
        return;
    };
    let kept = fs::metadata(mount.below("f")).unwrap();
    let file = File::options().read(true).write(true).open(mount.path("f"));
    let file = file.unwrap();
    fs::remove_file(mount.path("f")).unwrap();
    for _ in 0..3 {
        // Of an inode that the kernel had for it before.
        mount.stackfs.forget(&[Forget { node, count: 1 }]);
        mount.session.notifier().flush().unwrap();
    }
    file.write_all_at(b"more", 4).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8);
    assert!(is_open_here(&kept));
    drop(file);
    until("it is closed", || !is_open_here(&kept));
}
