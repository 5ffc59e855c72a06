//! More files open at once than there are descriptors for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use bickford_stackfs::{IoMode, Preset, Settings};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;
use support::{Mount, alone, can_mount, descriptors, has, with_io};

const DESCRIPTORS: usize = 512;
const FILES: usize = 600;
/// Opened in this order: the first keep their descriptors.
const FIRST_AND_LAST: [usize; 2] = [0, FILES - 1];

fn passthrough(exclusive: bool) -> Settings {
    let mut settings = with_io(Preset::Fast.settings(), IoMode::Passthrough);
    settings.exclusive = exclusive;
    settings
}

fn mounted(settings: Settings) -> Mount {
    let lower = tempfile::tempdir().unwrap();
    let mount = Mount::over(lower, |builder| {
        builder.settings(settings).descriptors(DESCRIPTORS)
    });
    assert_eq!(mount.stackfs.io_mode(), IoMode::Passthrough);
    mount
}

fn both() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

/// All that is done to an open file by request, and a removal; `again` is another open of it.
fn use_it(mount: &Mount, name: &str, file: &File, again: &File) {
    let size = |file: &File| file.metadata().unwrap().len();
    file.write_all_at(b"text", 0).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(fs::read(mount.below(name)).unwrap(), b"text");
    file.set_len(2).unwrap();
    assert_eq!((size(file), size(again)), (2, 2));
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 8192).unwrap();
    assert_eq!(size(file), 8192);
    let below = File::open(mount.below(name)).unwrap();
    let hole = rustix::fs::seek(&below, SeekFrom::Hole(0)).unwrap();
    assert_eq!(rustix::fs::seek(file, SeekFrom::Hole(0)), Ok(hole));
    let mut start = 0;
    let mut end = 8192;
    let copied = rustix::fs::copy_file_range(again, Some(&mut start), file, Some(&mut end), 2);
    assert_eq!(copied, Ok(2));
    assert_eq!(size(again), 8194);
    let flags = rustix::fs::ioctl_getflags(file).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(again), Ok(flags));
    let lock = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(file, lock).unwrap();
    assert_eq!(rustix::fs::flock(again, lock), Err(Errno::WOULDBLOCK));
    rustix::fs::flock(file, FlockOperation::Unlock).unwrap();
    rustix::fs::flock(again, lock).unwrap();
    let record = |operation| rustix::fs::fcntl_lock(file, operation);
    record(lock).unwrap();
    record(FlockOperation::Unlock).unwrap();
    fs::remove_file(mount.path(name)).unwrap();
    file.write_all_at(b"more", 8192).unwrap();
    file.sync_all().unwrap();
    let mut text = [0; 4];
    again.read_exact_at(&mut text, 8192).unwrap();
    assert_eq!(&text, b"more");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(size(again), 8196);
}

#[test]
fn opens_do_not_end_where_descriptors_do() {
    let _alone = alone();
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    for exclusive in [true, false] {
        let mount = mounted(passthrough(exclusive));
        let before = descriptors();
        let made: Vec<File> = (0..FILES)
            .map(|number| {
                let file = both().create_new(true).open(mount.path(number.to_string()));
                file.unwrap_or_else(|error| panic!("file {number}: {error}"))
            })
            .collect();
        assert_eq!(mount.stackfs.passthrough_len(), FILES);
        let taken = descriptors() - before - FILES;
        assert!(taken < DESCRIPTORS / 2, "{taken} descriptors");
        for number in FIRST_AND_LAST {
            let name = number.to_string();
            let again = both().open(mount.path(&name)).unwrap();
            use_it(&mount, &name, &made[number], &again);
        }
        drop(made);
        for number in 1..FILES - 1 {
            fs::remove_file(mount.path(number.to_string())).unwrap();
        }
        assert_eq!(fs::read_dir(mount.below("")).unwrap().count(), 0);
    }
}

#[test]
fn files_that_are_only_read_keep_few_descriptors() {
    let _alone = alone();
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    let mount = mounted(passthrough(true));
    for number in 0..FILES {
        fs::write(mount.below(number.to_string()), number.to_string()).unwrap();
    }
    let before = descriptors();
    for _ in 0..2 {
        let opened: Vec<File> = (0..FILES)
            .map(|number| File::open(mount.path(number.to_string())).unwrap())
            .collect();
        let taken = descriptors() - before - FILES;
        assert!(taken < DESCRIPTORS / 2, "{taken} descriptors");
        for (number, file) in opened.iter().enumerate() {
            let mut text = [0; 4];
            let read = file.read_at(&mut text, 0).unwrap();
            assert_eq!(&text[..read], number.to_string().as_bytes());
        }
    }
    // As many as may stay registered, so that opening them again is cheap.
    while mount.stackfs.passthrough_len() > DESCRIPTORS / 8 {
        std::thread::yield_now();
    }
}

#[test]
fn nameless_files_live_without_a_descriptor() {
    let _alone = alone();
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    let mount = mounted(passthrough(true));
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let made: Vec<File> = (0..FILES)
        .map(|_| File::from(rustix::fs::open(mount.path("."), flags, mode).unwrap()))
        .collect();
    for (number, file) in made.iter().enumerate() {
        file.write_all_at(&number.to_ne_bytes(), 0).unwrap();
        file.sync_all().unwrap();
    }
    for (number, file) in made.iter().enumerate() {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(usize::from_ne_bytes(bytes), number);
        assert_eq!(file.metadata().unwrap().len(), 8);
    }
}
