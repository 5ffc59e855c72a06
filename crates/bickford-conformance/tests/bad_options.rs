//! Every wrong option or place gets an error that names it, and nothing is mounted.

use std::fs;
use std::path::Path;
use std::process::Command;

use bickford_conformance::{
    BODY_DEADLINE, Finished, Scratch, Watchdog, command_path, fuse_mounts, require_root, run,
};

/// Wrong arguments, and what the error must name.
const WRONG: &[(&[&str], &[&str])] = &[
    (&["--preset=quick"], &["--preset", "quick"]),
    (&["--transport=pigeon"], &["--transport", "pigeon"]),
    (&["--io=telepathy"], &["--io", "telepathy"]),
    (&["--lower=maybe"], &["--lower", "maybe"]),
    (&["--workers=0"], &["--workers", "0"]),
    (&["--workers=many"], &["--workers", "many"]),
    (&["--no-such-flag"], &["--no-such-flag"]),
    (&["-o", "no_such_option"], &["no_such_option"]),
    (&["-o", "max_read=much"], &["max_read", "much"]),
    (
        &["-o", "allow_other,allow_root"],
        &["allow_other", "allow_root"],
    ),
];

fn mount(arguments: &[&str], places: &[&Path]) -> Finished {
    // Not in the foreground: what is wrong must be told before the parent returns.
    run(Command::new(command_path())
        .arg("mount")
        .args(arguments)
        .args(places))
}

/// Requires a failure that names `parts`, says what to do, and leaves nothing mounted.
fn refused(finished: &Finished, parts: &[&str], top: &Path) {
    assert!(!finished.status.success(), "{}", finished.report());
    assert!(finished.status.code().is_some(), "{}", finished.report());
    for part in parts {
        assert!(
            finished.errors.contains(part),
            "{part:?}: {}",
            finished.report()
        );
    }
    assert!(
        !finished.errors.contains("panicked"),
        "{}",
        finished.report()
    );
    assert!(fuse_mounts(top).is_empty(), "{}", finished.report());
}

#[test]
fn a_wrong_option_is_named() {
    let scratch = Scratch::new("options");
    let watchdog = Watchdog::start("options", BODY_DEADLINE).over(scratch.path());
    let lower = scratch.directory("lower");
    let mountpoint = scratch.directory("mnt");
    for (arguments, parts) in WRONG {
        let finished = mount(arguments, &[&lower, &mountpoint]);
        eprintln!(
            "{:?}: {}",
            arguments,
            finished.errors.lines().next().unwrap_or_default()
        );
        refused(&finished, parts, scratch.path());
    }
    drop(watchdog);
}

#[test]
fn a_wrong_place_is_named() {
    let scratch = Scratch::new("places");
    let watchdog = Watchdog::start("places", BODY_DEADLINE).over(scratch.path());
    let lower = scratch.directory("lower");
    let mountpoint = scratch.directory("mnt");
    let file = scratch.path().join("file");
    fs::write(&file, "x").expect("file");
    let missing = scratch.path().join("missing");
    let cases: &[(&str, [&Path; 2], &Path)] = &[
        ("the source is missing", [&missing, &mountpoint], &missing),
        ("the source is a file", [&file, &mountpoint], &file),
        ("the mount point is missing", [&lower, &missing], &missing),
        ("the mount point is a file", [&lower, &file], &file),
    ];
    for (case, places, named) in cases {
        let finished = mount(&[], places);
        eprintln!(
            "{case}: {}",
            finished.errors.lines().next().unwrap_or_default()
        );
        refused(&finished, &[named.to_str().expect("path")], scratch.path());
    }
    drop(watchdog);
}

/// SOURCE is held open before it is covered, so all of these work, and each is uncovered again.
#[test]
fn a_mount_may_cover_its_source_a_parent_of_it_or_another_mount() {
    require_root();
    let scratch = Scratch::new("covering");
    let watchdog = Watchdog::start("covering", BODY_DEADLINE).over(scratch.path());
    let lower = scratch.directory("lower");
    let below = lower.join("below");
    fs::create_dir(&below).expect("directory");
    fs::write(lower.join("name"), "lower").expect("write");
    fs::write(below.join("name"), "below").expect("write");
    let cover = |source: &Path, mountpoint: &Path, seen: &str| {
        let finished = mount(&[], &[source, mountpoint]);
        assert!(finished.status.success(), "{}", finished.report());
        let found = fs::read_to_string(mountpoint.join("name")).expect("read");
        assert_eq!(found, seen, "{}", finished.report());
    };
    let uncover = |mountpoint: &Path, seen: &str| {
        let finished = run(Command::new(command_path()).arg("unmount").arg(mountpoint));
        assert!(finished.status.success(), "{}", finished.report());
        let found = fs::read_to_string(mountpoint.join("name")).expect("read");
        assert_eq!(found, seen, "{}", finished.report());
    };
    cover(&lower, &lower, "lower");
    uncover(&lower, "lower");
    cover(&below, &lower, "below");
    uncover(&lower, "lower");
    cover(&lower, &below, "lower");
    cover(&below, &below, "lower");
    uncover(&below, "lower");
    uncover(&below, "below");
    assert!(fuse_mounts(scratch.path()).is_empty());
    drop(watchdog);
}

#[test]
fn unmounting_what_is_not_mounted_is_told() {
    let scratch = Scratch::new("none");
    let watchdog = Watchdog::start("not mounted", BODY_DEADLINE).over(scratch.path());
    let directory = scratch.directory("plain");
    for place in [directory.clone(), scratch.path().join("missing")] {
        let finished = run(Command::new(command_path()).arg("unmount").arg(&place));
        refused(&finished, &[place.to_str().expect("path")], scratch.path());
    }
    drop(watchdog);
}
