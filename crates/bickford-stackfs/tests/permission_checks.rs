//! A mount of root alone whose permissions the kernel does not check.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use bickford::abi::Opcode;
use bickford_stackfs::{IoMode, Preset};

use support::{Mount, can_mount, has, until, with_io};

fn mounted(io: IoMode, permission_checks: bool) -> Mount {
    let mut settings = with_io(Preset::Fast.settings(), io);
    settings.permission_checks = permission_checks;
    Mount::with(settings)
}

#[test]
fn a_change_of_a_directory_has_no_attributes_asked_for() {
    if !can_mount() {
        return;
    }
    const MADE: u64 = 20;
    for checked in [true, false] {
        let mount = mounted(IoMode::Direct, checked);
        let count = |opcode| mount.session.stats().of(opcode).count;
        fs::create_dir(mount.path("first")).unwrap();
        let before = count(Opcode::Getattr);
        for number in 0..MADE {
            fs::create_dir(mount.path(number.to_string())).unwrap();
        }
        // A request is counted when it has been answered, which may be after the caller goes on.
        until("all are counted", || count(Opcode::Mkdir) > MADE);
        let asked = count(Opcode::Getattr) - before;
        // Where the kernel checks, Linux 6.18 asks after each change, and 7.2 does not.
        let most = if checked { MADE } else { 0 };
        assert!(asked <= most, "checked: {checked}, {asked}");
    }
}

#[test]
fn modes_owners_and_access_are_what_they_are_below() {
    if !can_mount() {
        return;
    }
    let script = "cd $0 && umask 027 && mkdir $1 && chgrp 65534 $1 && chmod 2775 $1 && cd $1 && mkdir d && \
        echo >f && echo 'echo runs' >x && chmod 755 x && ./x && test -d d && test -r f && ! test -x f && ! ./f";
    for io in [IoMode::Passthrough, IoMode::Cached, IoMode::Direct]
        .into_iter()
        .filter(has)
    {
        let mount = mounted(io, false);
        for (top, name) in [(mount.path(""), "through"), (mount.below(""), "native")] {
            let output = Command::new("sh")
                .args(["-c", script])
                .args([top.as_os_str(), name.as_ref()])
                .output()
                .unwrap();
            assert!(output.status.success(), "{io:?}, {name}: {output:?}");
            assert_eq!(output.stdout, b"runs\n", "{io:?}, {name}: {output:?}");
        }
        for name in ["", "d", "f", "x"] {
            let [through, native] = ["through", "native"].map(|directory| {
                let found = fs::metadata(mount.below(directory).join(name)).unwrap();
                (found.mode(), found.uid(), found.gid())
            });
            assert_eq!(through, native, "{io:?}, {name:?}");
        }
    }
}

#[test]
fn nobody_else_gets_in() {
    if !can_mount() {
        return;
    }
    let mount = mounted(IoMode::Direct, false);
    fs::write(mount.path("f"), "text").unwrap();
    let mut cat = Command::new("cat");
    let output = cat.arg(mount.path("f")).uid(65534).gid(65534).output();
    let output = output.unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
}
