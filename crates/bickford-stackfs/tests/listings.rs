//! Listings that the kernel keeps: how many requests a second listing takes, and that changes show;
//! and how much the kernel reads ahead.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bickford::abi::Opcode;
use bickford_stackfs::{IoMode, Lower, Preset};
use rustix::fs::OFlags;

use support::{Mount, Mounted, can_mount, has, until, with_io};

const FILES: usize = 300;
const TRIES: usize = 50;
/// More than one request lists.
const CHANGED: usize = 3000;
const EXT_MAGIC: u64 = 0xef53;

/// Requests so far: of listings, and of opening and closing directories.
fn requests(mount: &Mount) -> (u64, u64) {
    let stats = mount.session.stats();
    let count = |opcodes: [Opcode; 2]| opcodes.map(|one| stats.of(one).count).iter().sum();
    (
        count([Opcode::Readdir, Opcode::Readdirplus]),
        count([Opcode::Opendir, Opcode::Releasedir]),
    )
}

/// Makes files whose names take some room in an answer.
fn fill(directory: &Path, count: usize) {
    for number in 0..count {
        let name = format!("a-name-of-some-length-{number}");
        fs::write(directory.join(name), "").unwrap();
    }
}

fn list(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The same listing once more: how many requests it takes. RELEASEDIR of earlier ones comes when it
/// will, so those are counted from above.
fn again(mount: &Mount, expected: &[String]) -> (u64, u64) {
    let before = requests(mount);
    assert_eq!(list(&mount.path("d")), expected);
    let after = requests(mount);
    (after.0 - before.0, after.1 - before.1)
}

/// Lists until a listing takes no request, and gives what opening and closing took then. The kernel
/// may drop what it keeps at any time, when it is short of memory or told to.
fn kept(mount: &Mount, expected: &[String]) -> u64 {
    for _ in 0..TRIES {
        if let (0, openings) = again(mount, expected) {
            return openings;
        }
    }
    panic!("an unchanged directory is listed by request, {TRIES} times");
}

/// What does not depend on who else changes the directory.
fn listed_twice(mount: &Mount) {
    let asked = !mount.stackfs.lets_directories_open();
    fs::create_dir(mount.below("d")).unwrap();
    for number in 0..FILES {
        fs::write(mount.below(format!("d/file-{number}")), "").unwrap();
    }
    let mut names = list(&mount.path("d"));
    assert_eq!(names, list(&mount.below("d")));
    assert_eq!(kept(mount, &names) > 0, asked);
    // Each change through the mount is seen in the next listing.
    fs::write(mount.path("d/new"), "").unwrap();
    names.push("new".into());
    names.sort();
    assert!(again(mount, &names).0 > 0);
    kept(mount, &names);
    fs::rename(mount.path("d/new"), mount.path("d/newer")).unwrap();
    names.retain(|name| name != "new");
    names.push("newer".into());
    names.sort();
    assert!(again(mount, &names).0 > 0);
    fs::remove_file(mount.path("d/newer")).unwrap();
    names.retain(|name| name != "newer");
    assert!(again(mount, &names).0 > 0);
    kept(mount, &names);
}

#[test]
fn an_unchanged_directory_of_an_exclusive_lower_is_listed_once() {
    if !can_mount() {
        return;
    }
    let fast = Preset::Fast.settings();
    for io in [IoMode::Passthrough, IoMode::Plain, IoMode::Cached]
        .into_iter()
        .filter(has)
    {
        listed_twice(&Mount::with(with_io(fast, io)));
    }
    listed_twice(&Mount::with(Preset::Opt.settings().lower(Lower::Exclusive)));
}

/// Lists a directory that loses each name as it is listed, and then one whose names all change; whether
/// opening directories is a request.
fn changed_while_listed(kind: &str, io: IoMode) -> bool {
    let settings = with_io(Preset::Fast.settings(), io);
    let lower = tempfile::tempdir().unwrap();
    let own = Mounted::at(lower.path(), kind, None);
    let mount = Mount::over(lower, |builder| builder.settings(settings));
    // What is served is a copy of the mount.
    drop(own);
    let (removed, renamed) = (mount.path("removed"), mount.path("renamed"));
    for directory in [&removed, &renamed] {
        fs::create_dir(directory).unwrap();
        fill(directory, CHANGED);
    }
    for entry in fs::read_dir(&removed).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(
        list(&removed),
        Vec::<String>::new(),
        "{kind}, {}",
        io.name()
    );
    let listing = fs::read_dir(&renamed).unwrap().map(Result::unwrap);
    for entry in listing.take(10 * CHANGED) {
        fs::rename(entry.path(), entry.path().with_extension("new")).unwrap();
    }
    let names = list(&renamed);
    assert_eq!(names.len(), CHANGED);
    assert!(names.iter().all(|name| name.ends_with(".new")));
    let asked = !mount.stackfs.lets_directories_open();
    // The first is asked for in any case.
    assert_eq!(requests(&mount).1 > 1, asked);
    asked
}

/// Names that are removed while they are listed must not hide others, which they do where the position of a
/// listing is not kept.
#[test]
fn directories_that_change_are_listed_to_the_end() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Passthrough, IoMode::Cached]
        .into_iter()
        .filter(has)
    {
        assert!(changed_while_listed("ramfs", io), "by request");
        changed_while_listed("tmpfs", io);
    }
}

#[test]
fn directories_are_opened_by_request_where_another_file_system_is_mounted_below() {
    if !can_mount() {
        return;
    }
    let alone = Mount::with(Preset::Fast.settings());
    let kind = rustix::fs::statfs(alone.below("")).unwrap().f_type;
    let lower = tempfile::tempdir().unwrap();
    let below = lower.path().join("below");
    fs::create_dir(&below).unwrap();
    let own = Mounted::at(&below, "ramfs", None);
    let mount = Mount::over(lower, |builder| builder.preset(Preset::Fast));
    assert!(!mount.stackfs.lets_directories_open());
    drop(own);
    if kind as u64 == EXT_MAGIC {
        assert!(alone.stackfs.lets_directories_open());
        assert_eq!(list(&alone.path("")), Vec::<String>::new());
        assert_eq!(requests(&alone).1, 1, "the one that was refused");
    } else {
        support::say(format_args!(
            "skipped: the temporary directory is not on ext4"
        ));
    }
}

/// A mount of a tmpfs, whose directories the kernel opens without a request, and the device of that; not before
/// Linux 6.14.
fn opening_unasked() -> Option<(Mount, u64)> {
    let lower = tempfile::tempdir().unwrap();
    let own = Mounted::at(lower.path(), "tmpfs", None);
    let device = fs::metadata(lower.path()).unwrap().dev();
    let mount = Mount::over(lower, |builder| builder.preset(Preset::Fast));
    drop(own);
    let opens = mount.stackfs.lets_directories_open();
    if !opens {
        support::say(format_args!(
            "skipped: directories are opened by request here"
        ));
    }
    opens.then_some((mount, device))
}

/// How many descriptors of this process read a directory of the device.
fn reading(device: u64) -> usize {
    let reads = |entry: fs::DirEntry| {
        let number = entry.file_name().into_string().unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        let found = fs::metadata(entry.path()).ok()?;
        let path = flags & OFlags::PATH.bits() != 0;
        (!path && found.is_dir() && found.dev() == device).then_some(())
    };
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| reads(entry.unwrap())).count()
}

#[test]
fn a_listing_that_is_given_up_does_not_keep_its_directory_open_for_good() {
    if !can_mount() {
        return;
    }
    let Some((mount, device)) = opening_unasked() else {
        return;
    };
    let others = reading(device);
    let names: Vec<String> = (0..100).map(|number| format!("d{number}")).collect();
    for name in &names {
        fs::create_dir(mount.path(name)).unwrap();
        fs::write(mount.path(name).join("file"), "").unwrap();
    }
    for name in &names {
        assert_eq!(list(&mount.path(name)), ["file"]);
    }
    assert_eq!(reading(device), others, "all were listed to the end");
    for name in &names {
        fs::write(mount.path(name).join("other"), "").unwrap();
        fs::read_dir(mount.path(name))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
    }
    let kept = reading(device) - others;
    assert!((1..=16).contains(&kept), "{kept}");
    for name in &names {
        fs::remove_dir_all(mount.path(name)).unwrap();
    }
    until("removed directories are closed", || {
        reading(device) <= others
    });
}

#[test]
fn two_who_list_a_directory_at_a_time_get_all_of_it_each() {
    if !can_mount() {
        return;
    }
    let Some((mount, _)) = opening_unasked() else {
        return;
    };
    let directory = mount.path("d");
    fs::create_dir(&directory).unwrap();
    fill(&directory, CHANGED);
    let expected = (0..CHANGED).map(|number| format!("a-name-of-some-length-{number}"));
    let expected: HashSet<_> = expected.collect();
    let mut listings = [Vec::new(), Vec::new()];
    let mut both = [(); 2].map(|()| fs::read_dir(&directory).unwrap());
    for _ in 0..CHANGED {
        for (entries, names) in both.iter_mut().zip(&mut listings) {
            let entry = entries.next().unwrap().unwrap();
            names.push(entry.file_name().into_string().unwrap());
        }
    }
    assert!(both.iter_mut().all(|entries| entries.next().is_none()));
    for names in listings {
        assert_eq!(names.len(), CHANGED);
        assert_eq!(HashSet::from_iter(names), expected);
    }
}

/// One who begins to list and stops, and others who list what has changed since: they must not get what was read for
/// the first.
#[test]
fn what_was_read_for_an_earlier_listing_is_not_shown_in_a_later_one() {
    if !can_mount() {
        return;
    }
    let Some((mount, _)) = opening_unasked() else {
        return;
    };
    let directory = mount.path("d");
    fs::create_dir(&directory).unwrap();
    fill(&directory, FILES);
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    // What the kernel has kept of that is out of date.
    let last = names.pop().unwrap();
    fs::remove_file(directory.join(last)).unwrap();
    for _ in 0..3 {
        fs::read_dir(&directory).unwrap().next().unwrap().unwrap();
        for name in names.drain(names.len() - 20..) {
            fs::remove_file(directory.join(name)).unwrap();
        }
        let mut expected = names.clone();
        expected.sort();
        for _ in 0..2 {
            assert_eq!(list(&directory), expected);
        }
    }
}

/// Who goes on with a listing that began before names changed fills in what the kernel has begun to keep since.
#[test]
fn a_listing_from_before_a_change_is_not_kept() {
    if !can_mount() {
        return;
    }
    let mount = Mount::with(Preset::Fast.settings().lower(Lower::Watch));
    assert!(mount.stackfs.is_watched());
    let watch = mount.stackfs.watch_lower(mount.session.server()).unwrap();
    let directory = mount.path("d");
    fs::create_dir(&directory).unwrap();
    fill(&directory, FILES);
    let begin = || {
        let mut listing = fs::read_dir(&directory).unwrap();
        listing.next().unwrap().unwrap();
        listing
    };
    for to_the_end in [true, false] {
        let mut early = begin();
        let names: Vec<_> = fs::read_dir(&directory).unwrap().collect();
        for removed in names.into_iter().rev().take(20) {
            fs::remove_file(removed.unwrap().path()).unwrap();
        }
        drop(begin());
        if to_the_end {
            early.by_ref().for_each(drop);
        } else {
            // One request further.
            early.by_ref().take(FILES / 4 * 3).for_each(drop);
        }
        drop(early);
        let expected = list(&mount.below("d"));
        until("a listing without what was removed", || {
            list(&directory) == expected
        });
        assert_eq!(list(&directory), expected);
    }
    drop(watch);
}

#[test]
fn a_watched_directory_is_listed_once_and_again_when_others_change_it() {
    if !can_mount() {
        return;
    }
    let mount = Mount::with(Preset::Fast.settings().lower(Lower::Watch));
    assert!(mount.stackfs.is_watched());
    let watch = mount.stackfs.watch_lower(mount.session.server()).unwrap();
    listed_twice(&mount);
    assert!(!mount.stackfs.lets_directories_open());
    let names = list(&mount.path("d"));
    for script in [": > other", "mv other moved", "rm moved"] {
        // By another process: changes of our own are not told.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", script]).current_dir(mount.below("d"));
        assert!(shell.status().unwrap().success());
        let expected = list(&mount.below("d"));
        until(script, || list(&mount.path("d")) == expected);
    }
    assert_eq!(list(&mount.path("d")), names);
    drop(watch);
}

#[test]
fn without_either_every_listing_is_asked_for() {
    if !can_mount() {
        return;
    }
    let mount = Mount::with(Preset::Opt.settings());
    fs::create_dir(mount.below("d")).unwrap();
    let names = list(&mount.path("d"));
    let before = requests(&mount).0;
    for _ in 0..TRIES {
        assert_eq!(list(&mount.path("d")), names);
    }
    // A request is counted when it has been answered, which may be after the caller goes on.
    until("each is counted", || {
        requests(&mount).0 - before >= TRIES as u64
    });
}

#[test]
fn the_mount_reads_ahead_what_the_preset_says() {
    if !can_mount() {
        return;
    }
    for (preset, kib) in [
        (Preset::Base, 128),
        (Preset::Opt, 128),
        (Preset::Fast, 1024),
    ] {
        let mount = Mount::new(preset);
        if mount.session.connection().is_none() {
            support::say(format_args!(
                "left out: the kernel does not tell the connection of a device before 6.16"
            ));
            return;
        }
        let device = fs::metadata(mount.path("")).unwrap();
        let device = device.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        let found = fs::read_to_string(&file).unwrap();
        assert_eq!(found.trim(), kib.to_string(), "{file} of {}", preset.name());
    }
}

/// How many LOOKUPs there are for `old` and for `new`, after a listing with attributes.
fn looked_up_after_listing(mount: &Mount) -> [u64; 2] {
    let lookups = || mount.session.stats().of(Opcode::Lookup).count;
    fs::metadata(mount.path("d")).unwrap();
    list(&mount.path("d"));
    ["old", "new"].map(|name| {
        let before = lookups();
        fs::metadata(mount.path("d").join(name)).unwrap();
        lookups() - before
    })
}

#[test]
fn listings_leave_out_what_is_changing_where_the_kernel_would_keep_its_size() {
    if !can_mount() {
        return;
    }
    for (preset, expected) in [(Preset::Base, [0, 0]), (Preset::Opt, [0, 1])] {
        let mut seen = [0, 0];
        for _ in 0..5 {
            let mount = Mount::new(preset);
            fs::create_dir(mount.below("d")).unwrap();
            fs::write(mount.below("d/old"), "").unwrap();
            // Until that is some time ago.
            std::thread::sleep(std::time::Duration::from_millis(2_100));
            fs::write(mount.below("d/new"), "").unwrap();
            seen = looked_up_after_listing(&mount);
            // Who is short of memory may look up anything again.
            if seen == expected {
                break;
            }
        }
        assert_eq!(seen, expected, "{preset:?}");
    }
}
