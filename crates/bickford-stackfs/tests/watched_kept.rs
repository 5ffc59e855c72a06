//! What the daemon keeps open of a file that nobody uses is given up when others remove or protect it below.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::path::Path;

use bickford::notify::PRUNE_SINCE;
use bickford_stackfs::{IoMode, Lower, Preset};

use support::watched::{Watched, below, watch};
use support::{Mount, Mounted, can_mount, has, say, until, with_io};

fn watched_in(directory: &Path, io: IoMode) -> Watched {
    let lower = tempfile::tempdir_in(directory).unwrap();
    let settings = with_io(Preset::Fast.settings().lower(Lower::Watch), io);
    let watched = watch(Mount::over(lower, |builder| builder.settings(settings)));
    assert_eq!(watched.mount.stackfs.io_mode(), io);
    watched
}

#[test]
fn the_space_of_a_file_that_is_removed_below_is_free() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Passthrough, IoMode::Cached] {
        if !has(&io) {
            continue;
        }
        let point = tempfile::tempdir().unwrap();
        let tmpfs = Mounted::at(point.path(), "tmpfs", None);
        let watched = watched_in(point.path(), io);
        let mount = &watched.mount;
        let minor = mount.session.server().negotiated().unwrap().protocol.minor;
        if io == IoMode::Cached && minor < PRUNE_SINCE {
            say(format_args!(
                "left out: Linux forgets what it is told to from 6.18 on"
            ));
            continue;
        }
        let free = || rustix::fs::statvfs(point.path()).unwrap().f_bfree;
        below(mount, ": > replaced");
        let before = free();
        below(
            mount,
            "for f in removed replaced; do head -c 1000000 /dev/zero > $f; done",
        );
        for name in ["removed", "replaced"] {
            until(name, || {
                fs::read(mount.path(name)).is_ok_and(|data| data.len() == 1_000_000)
            });
        }
        assert!(free() < before);
        below(mount, "rm removed; : > new; mv new replaced");
        until("space that is free", || free() == before);
        drop((watched, tmpfs));
    }
}

#[test]
fn a_file_that_was_removed_while_it_was_open_is_closed_below() {
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    let watched = watched_in(&std::env::temp_dir(), IoMode::Passthrough);
    let mount = &watched.mount;
    below(mount, "echo text > f");
    until("the file", || mount.path("f").exists());
    let open = File::open(mount.path("f")).unwrap();
    assert_eq!(mount.stackfs.passthrough_len(), 1);
    // It is known that there is none until the change is told, which comes in order.
    assert!(!mount.path("g").exists());
    below(mount, "rm f; : > g");
    until("a later change", || mount.path("g").exists());
    drop(open);
    until("a file that is closed", || {
        mount.stackfs.passthrough_len() == 0
    });
}

#[test]
fn an_append_only_file_is_not_written_by_the_kernel() {
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    let watched = watched_in(&std::env::temp_dir(), IoMode::Passthrough);
    let mount = &watched.mount;
    below(mount, "echo text > log");
    until("the file", || mount.path("log").exists());
    assert_eq!(fs::read(mount.path("log")).unwrap(), b"text\n");
    below(mount, "chattr +a log");
    let opened = File::options()
        .read(true)
        .append(true)
        .open(mount.path("log"));
    let passed_through = mount.stackfs.passthrough_len();
    below(mount, "chattr -a log");
    opened.unwrap();
    assert_eq!(passed_through, 0);
}
