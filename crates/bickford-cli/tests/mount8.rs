//! Called by mount(8), mount.fuse3(8) and through links.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Place, assert_refused, assert_silent, bickford, installed, path_with, run};

const GENERIC: &str =
    "rw,dev,suid,noauto,_netdev,nofail,x-systemd.requires=network.target,comment=home";

fn link(place: &Place, name: &str) -> PathBuf {
    let link = place.dir().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bickford"), &link).unwrap();
    link
}

fn assert_mounted(place: &Place) {
    assert_eq!(fs::read(place.mountpoint().join("f")).unwrap(), b"content");
    let entry = place.listed().unwrap();
    assert_eq!(
        (entry.fs_type.as_str(), entry.source.as_os_str()),
        ("fuse.bickford", place.source().as_os_str())
    );
}

#[test]
fn two_paths_and_generic_options() {
    let Some(place) = Place::new() else { return };
    let mut command = bickford();
    assert_silent(&run(command
        .args([place.source(), place.mountpoint()])
        .args(["-o", GENERIC])));
    assert_mounted(&place);
    assert_eq!(place.listed().unwrap().options, "rw,relatime");
}

#[test]
fn mount_fuse3_finds_the_command() {
    let Some(place) = Place::new() else { return };
    if !installed("mount.fuse3") {
        return;
    }
    link(&place, "bickford");
    let mut command = Command::new("mount.fuse3");
    command
        .env("PATH", path_with(&place.dir()))
        .args([place.source(), place.mountpoint()]);
    command.args([
        "-t",
        "fuse.bickford",
        "-o",
        &format!("{GENERIC},ro,preset=opt"),
    ]);
    let output = run(&mut command);
    assert!(output.status.success(), "{output:?}");
    assert_mounted(&place);
    assert!(fs::write(place.mountpoint().join("f"), "x").is_err(), "ro");
}

#[test]
fn mount_finds_the_command() {
    let Some(place) = Place::new() else { return };
    if !installed("mount.fuse") {
        return;
    }
    // mount(8) gives its helpers a PATH of its own: the program is part of the source then.
    let program = link(&place, "bickford");
    let source = format!("{}#{}", program.display(), place.source().display());
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        run(command
            .args(["-t", "fuse", "-o", options, &source])
            .arg(place.mountpoint()))
    };
    let output = mount("preset=base,x-test");
    assert!(output.status.success(), "{output:?}");
    assert_mounted(&place);
    place.unmount(&place.mountpoint());
    let refused = mount("presett=base");
    assert!(!refused.status.success());
    assert_refused(&refused, refused.status.code().unwrap(), &["'presett'"]);
}

/// Calls the command with options as mount(8) does.
fn helper(place: &Place) -> impl Fn(&str) -> Output {
    let helper = link(place, "mount.fuse.bickford");
    move |options| {
        let mut command = Command::new(&helper);
        run(command
            .args([place.source(), place.mountpoint()])
            .args(["-o", options]))
    }
}

#[test]
fn a_mount_gets_other_flags() {
    let Some(place) = Place::new() else { return };
    let call = helper(&place);
    assert_refused(&call("remount,ro"), 32, &["no FUSE mount"]);
    assert_silent(&call("dev,noexec,allow_other,preset=opt"));
    let options = || place.listed().unwrap().options;
    assert_eq!(options(), "rw,nosuid,noexec,relatime");
    // As mount(8) gives it, which knows the mount from mountinfo.
    let listed = "remount,user_id=0,group_id=0,default_permissions,allow_other,preset=opt";
    assert_silent(&call(&format!("ro,nosuid,noexec,relatime,{listed}")));
    assert_eq!(options(), "ro,nosuid,noexec,relatime");
    let file = place.mountpoint().join("f");
    let written = fs::write(&file, "x").unwrap_err();
    assert_eq!(written.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_silent(&call("remount,rw,exec,suid,noatime"));
    assert_eq!(options(), "rw,noatime");
    let open = fs::File::options().write(true).open(&file).unwrap();
    assert_refused(&call("remount,ro"), 32, &["open for writing"]);
    drop(open);
    assert_silent(&call("remount"));
    assert_eq!(options(), "rw,noatime");
    assert_refused(&call("remount,roo"), 32, &["'roo'"]);
    assert_mounted(&place);
}

#[test]
fn a_remount_takes_away_what_mount_does_not_list() {
    let Some(place) = Place::new() else { return };
    let call = helper(&place);
    assert_silent(&call("noexec,sync,nosymfollow,noatime"));
    let options = || place.listed().unwrap().options;
    // remount,suid,exec,async,atime with a mount(8) that keeps these words to itself.
    let listed = "remount,user_id=0,group_id=0,default_permissions";
    assert_silent(&call(&format!("rw,nodev,nosymfollow,{listed}")));
    assert_eq!(options(), "rw,nodev,relatime,nosymfollow");
    assert_silent(&call("remount,strictatime"));
    assert_silent(&call(&format!("ro,nodev,{listed}")));
    assert_eq!(options(), "ro,nodev");
}

#[test]
fn access_times_are_what_a_remount_says() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&["-o", "noatime,nodiratime"]));
    let remount = |options: &str| {
        let mut command = bickford();
        command.args(["mount", "-o", &format!("remount,{options}")]);
        assert_silent(&run(command.args([place.source(), place.mountpoint()])));
        place.listed().unwrap().options
    };
    let steps = [
        ("relatime", "nodiratime,relatime"),
        ("noatime", "noatime,nodiratime"),
        ("atime", "nodiratime,relatime"),
        ("diratime", "relatime"),
        ("strictatime", ""),
        ("noexec", "noexec"),
        ("exec,relatime", "relatime"),
    ];
    for (option, expected) in steps {
        let whole = format!("rw,nosuid,nodev,{expected}");
        assert_eq!(remount(option), whole.trim_end_matches(','), "{option}");
    }
}

#[test]
fn a_remount_refuses_what_it_cannot_change() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[
        "-o",
        "auto_unmount,max_read=65536,preset=opt",
        "--workers=3",
    ]));
    let remount = |arguments: &[&str]| {
        let mut command = bickford();
        command.args(["mount", "-o", "remount"]).args(arguments);
        run(command.args([place.source(), place.mountpoint()]))
    };
    let others: &[&[&str]] = &[
        &["-o", "allow_other"],
        &["-o", "max_read=4096"],
        &["-o", "fsname=x"],
        &["-o", "user_id=7"],
        &["-o", "dirsync"],
        &["-o", "preset=base"],
        &["--layer", "readonly"],
    ];
    for arguments in others {
        let option = arguments[1];
        let refused = remount(arguments);
        assert_refused(&refused, 1, &[option, "cannot be changed by remounting"]);
    }
    let source = format!("fsname={}", place.source().display());
    let same = "user_id=0,max_read=65536,auto_unmount,preset=opt,workers=3,nofail,subtype=bickford";
    assert_silent(&remount(&["-o", same, "-o", &source, "-o", "ro"]));
    let entry = place.listed().unwrap();
    assert!(entry.options.starts_with("ro,"));
    fs::remove_file(bickford::trace::control::socket_path(entry.minor)).unwrap();
    let refused = remount(&["-o", "preset=opt"]);
    assert_refused(&refused, 1, &["preset=opt", "no daemon answers"]);
}

#[test]
fn a_link_named_as_a_helper() {
    let Some(place) = Place::new() else { return };
    let helper = link(&place, "mount.fuse.bickford");
    let call = |arguments: &[&str]| {
        let mut command = Command::new(&helper);
        run(command
            .args([place.source(), place.mountpoint()])
            .args(arguments))
    };
    assert_silent(&call(&["-f", "-o", "ro"]));
    assert_eq!(place.listed(), None, "-f only checks");
    assert_refused(&call(&["-o", "alow_other"]), 32, &["'alow_other'"]);
    // "incorrect invocation or permissions" of mount(8).
    assert_refused(&call(&["-o", "preset=slow"]), 1, &["'slow'"]);
    assert_refused(&call(&["-x"]), 1, &["'-x'"]);
    for flag in ["-h", "--help", "-V", "--version"] {
        let told = run(Command::new(&helper).arg(flag));
        assert!(told.status.success() && told.stderr.is_empty(), "{told:?}");
    }
    let harmless = "silent,loud,lazytime,nolazytime,nomand,noiversion,nonempty";
    assert_silent(&call(&["-f", "-o", harmless]));
    let (key, passphrase) = (place.dir().join("key"), place.dir().join("passphrase"));
    fs::write(&passphrase, "x").unwrap();
    let crypt = format!(
        r"layer=crypt:key={}\,passphrase-file={}\,create=true",
        key.display(),
        passphrase.display()
    );
    assert_silent(&call(&["-f", "-o", &crypt]));
    assert!(!key.exists(), "-f only checks");
    assert_refused(&call(&["-f", "-o", "alow_other"]), 32, &["'alow_other'"]);
    assert_silent(&call(&[
        "-s",
        "-v",
        "-o",
        "alow_other,noexec",
        "-t",
        "fuse.bickford",
    ]));
    assert_mounted(&place);
    assert!(place.listed().unwrap().options.contains("noexec"));
}
