//! A daemon that modes bind, as an ordinary user's, and files that are open whose mode forbids it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use bickford_stackfs::{IoMode, Preset};
use rustix::thread::CapabilitySet;
use support::{Mount, can_mount, permissions, with_io};

/// Served by threads that may open only what modes allow, as the owner.
fn mounted(io: IoMode) -> Mount {
    let mount = move || {
        let mut fewer = rustix::thread::capabilities(None).unwrap();
        fewer.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        rustix::thread::set_capabilities(None, fewer).unwrap();
        Mount::with(with_io(Preset::Fast.settings(), io))
    };
    let mount = std::thread::spawn(mount).join().unwrap();
    assert_eq!(mount.stackfs.io_mode(), io);
    mount
}

#[test]
fn what_is_open_is_read_and_written_whatever_its_mode_says() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Cached, IoMode::Plain, IoMode::Direct] {
        eprintln!("io {}", io.name());
        let mount = mounted(io);
        let mut made = OpenOptions::new();
        let made = made.read(true).write(true).create_new(true).mode(0o444);
        let made = made.open(mount.path("made")).unwrap();
        made.set_len(100).unwrap();
        made.write_all_at(b"made", 0).unwrap();
        made.sync_all().unwrap();
        let text = fs::read(mount.below("made")).unwrap();
        assert_eq!((text.len(), text.get(..4)), (100, Some(&b"made"[..])));

        for name in ["written", "read"] {
            fs::write(mount.below(name), "text").unwrap();
        }
        let both = File::options()
            .read(true)
            .write(true)
            .open(mount.path("written"));
        let written = both.unwrap();
        written.set_permissions(permissions(0o444)).unwrap();
        written.write_all_at(b"more", 4).unwrap();
        written.sync_all().unwrap();
        drop(written);
        assert_eq!(fs::read(mount.below("written")).unwrap(), b"textmore");

        let read = File::open(mount.path("read")).unwrap();
        read.set_permissions(permissions(0o000)).unwrap();
        let mut text = [0; 4];
        read.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"text");
    }
}

#[test]
fn what_may_only_be_written_is_written() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Plain, IoMode::Direct] {
        let mount = mounted(io);
        fs::write(mount.below("f"), "text").unwrap();
        fs::set_permissions(mount.below("f"), permissions(0o200)).unwrap();
        let mut options = File::options();
        let file = options.write(true).open(mount.path("f")).unwrap();
        file.write_all_at(b"T", 0).unwrap();
        let mut end = File::options().append(true).open(mount.path("f")).unwrap();
        end.write_all(b" end").unwrap();
        end.sync_all().unwrap();
        let text = fs::read_to_string(mount.below("f")).unwrap();
        assert_eq!(text, "Text end", "{}", io.name());
    }
}
