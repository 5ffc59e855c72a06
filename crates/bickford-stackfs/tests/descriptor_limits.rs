//! Fewer descriptors than what is looked at and open.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use bickford_stackfs::{IoMode, Preset};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use support::{Mount, alone, can_mount, descriptors, has, with_io};

/// So many that the kernel has time to forget before there are none left.
const INODES: usize = 2048;
const OPEN: usize = 256;
/// Tens of thousands of requests are made of one mount.
const DEADLINE: Duration = Duration::from_secs(300);

/// A mount that keeps few descriptors, one for each inode unless `handles`.
fn mounted(preset: Preset, io: IoMode, handles: bool, limit: usize) -> Mount {
    let settings = with_io(preset.settings(), io);
    let lower = tempfile::tempdir().unwrap();
    let mount = Mount::for_at_most(DEADLINE, lower, |builder| {
        let builder = builder.settings(settings).descriptors(limit);
        builder.file_handles(handles)
    });
    eprintln!("preset {}, io {}", preset.name(), io.name());
    mount
}

/// What comes of `look`. On a busy machine what the kernel forgets may be waited for in vain, all the more by the one
/// thread of the preset base, which reads nothing of it meanwhile: it is asked again.
fn looked<T>(look: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match look() {
            Err(error) if Instant::now() < deadline => {
                assert_eq!(error.raw_os_error(), Some(libc::ENFILE), "{error}");
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

#[test]
fn more_inodes_are_looked_at_than_can_be_held() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    const FILES: usize = 2 * INODES;
    for (preset, io) in [
        (Preset::Base, IoMode::Plain),
        (Preset::Opt, IoMode::Plain),
        (Preset::Fast, IoMode::Cached),
        (Preset::Fast, IoMode::Passthrough),
    ]
    .into_iter()
    .filter(|(_, io)| has(io))
    {
        let mount = mounted(preset, io, false, INODES);
        fs::create_dir(mount.below("d")).unwrap();
        for number in 0..FILES {
            fs::write(mount.below(format!("d/{number}")), number.to_string()).unwrap();
        }
        for _ in 0..2 {
            for number in 0..FILES {
                let path = mount.path(format!("d/{number}"));
                let text = looked(|| fs::read_to_string(&path)).unwrap();
                assert_eq!(text, number.to_string());
            }
            let listed = fs::read_dir(mount.path("d")).unwrap();
            let found = listed.map(|entry| {
                let entry = entry.unwrap();
                looked(|| entry.metadata()).unwrap()
            });
            assert_eq!(found.filter(fs::Metadata::is_file).count(), FILES);
        }
        for number in 0..FILES {
            let path = mount.path(format!("d/new-{number}"));
            looked(|| fs::write(&path, "")).unwrap();
        }
        assert!(mount.stackfs.table_len() < INODES / 2);
    }
}

/// Over io_uring what the kernel forgets comes apart from the lookups, and later.
#[test]
fn lookups_wait_for_what_the_kernel_is_to_forget() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    const FILES: usize = 16 * OPEN;
    for (preset, io) in [
        (Preset::Base, IoMode::Plain),
        (Preset::Fast, IoMode::Cached),
        (Preset::Fast, IoMode::Passthrough),
    ]
    .into_iter()
    .filter(|(_, io)| has(io))
    {
        let mount = mounted(preset, io, false, OPEN);
        fs::create_dir(mount.below("d")).unwrap();
        for number in 0..FILES {
            fs::write(mount.below(format!("d/{number}")), "").unwrap();
        }
        for number in 0..FILES {
            let path = mount.path(format!("d/{number}"));
            let found = looked(|| fs::metadata(&path));
            let transport = mount.session.transport_name();
            assert!(found.is_ok(), "{number} over {transport}: {found:?}");
        }
        assert!(mount.stackfs.table_len() <= OPEN / 2);
    }
}

#[test]
fn whatever_is_open_takes_no_more_than_there_is_together() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for handles in [true, false] {
        let before = descriptors();
        let mount = mounted(Preset::Opt, IoMode::Plain, handles, OPEN);
        let own = descriptors() - before;
        for number in 0..OPEN {
            fs::create_dir(mount.below(format!("d{number}"))).unwrap();
            fs::write(mount.below(format!("f{number}")), "").unwrap();
        }
        let mut open = Vec::new();
        for number in 0..OPEN {
            for name in ["d", "f"] {
                match File::open(mount.path(format!("{name}{number}"))) {
                    Ok(file) => open.push(file),
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENFILE), "{error}"),
                }
            }
        }
        assert!(open.len() >= OPEN / 4, "{} open", open.len());
        for file in &open {
            for lock in [rustix::fs::flock, rustix::fs::fcntl_lock] {
                let locked = lock(file, FlockOperation::NonBlockingLockShared);
                assert!(matches!(locked, Ok(()) | Err(Errno::NOLCK)), "{locked:?}");
            }
        }
        let kept = descriptors() - before - own - open.len();
        assert!(kept <= OPEN, "{kept} descriptors kept");
        for number in 0..OPEN {
            let looked = fs::metadata(mount.path(format!("f{number}")));
            let looked = looked.map_err(|error| error.kind());
            assert!(!matches!(looked, Err(ErrorKind::NotFound)));
        }
        drop(open);
        // The kernel says later that they are closed.
        while File::open(mount.path("f0")).is_err() {
            std::thread::yield_now();
        }
    }
}

/// Makes one after the other until there are no descriptors, and answers the one that was refused.
fn until_refused<T>(mount: &Mount, make: impl Fn(&Path) -> std::io::Result<T>) -> String {
    let mut made = Vec::new();
    let mut refused = (0..2 * OPEN).map(|number| number.to_string());
    let refused = refused.find(|name| match make(&mount.path(name)) {
        Ok(one) => {
            made.push(one);
            false
        }
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENFILE), "{error}");
            true
        }
    });
    refused.unwrap()
}

#[test]
fn what_is_refused_for_want_of_descriptors_is_not_there() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let file = |path: &Path| File::create_new(path);
    let directory = |path: &Path| {
        fs::create_dir(path)?;
        Ok(rustix::fs::open(path, OFlags::PATH, Mode::empty())?)
    };
    let link = |path: &Path| {
        std::os::unix::fs::symlink("target", path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    };
    let is_absent = |mount: &Mount, name: String| {
        let below = fs::symlink_metadata(mount.below(&name));
        assert_eq!(below.unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    };
    for handles in [true, false] {
        let mount = mounted(Preset::Fast, IoMode::Direct, handles, OPEN);
        is_absent(&mount, until_refused(&mount, file));
    }
    // Each takes a descriptor while it is known.
    let mount = mounted(Preset::Fast, IoMode::Direct, false, OPEN);
    is_absent(&mount, until_refused(&mount, directory));
    let mount = mounted(Preset::Fast, IoMode::Direct, false, OPEN);
    is_absent(&mount, until_refused(&mount, link));
}
