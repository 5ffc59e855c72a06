//! A file system below may forget what a mount goes on to use: FUSE finds no file by a handle that it has not in memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;

use bickford::NodeId;
use bickford_stackfs::{IoMode, Preset};
use rustix::fs::{Mode, OFlags};
use support::{Mount, can_mount};

/// Has the file system below give up all below `directory`, as memory pressure and names that expire do.
fn forget(below: &Mount, directory: &Path) {
    let name = CString::new(directory.file_name().unwrap().as_bytes()).unwrap();
    let (sent, waits) = channel();
    let notifier = below.session.server().notifier();
    let told = notifier.invalidate_entry_then(NodeId::ROOT, &name, move |told| {
        sent.send(told).unwrap();
    });
    told.unwrap();
    waits.recv().unwrap().unwrap();
}

#[test]
fn what_is_open_outlives_what_is_forgotten_below() {
    if !can_mount() {
        return;
    }
    let below = Mount::new(Preset::Base);
    for io in [IoMode::Cached, IoMode::Plain, IoMode::Direct] {
        let lower = tempfile::tempdir_in(below.path("")).unwrap();
        let source = lower.path().to_owned();
        fs::write(source.join("file"), "text").unwrap();
        fs::create_dir(source.join("directory")).unwrap();
        let mut settings = Preset::Fast.settings();
        settings.io = io;
        let mount = Mount::over(lower, |builder| builder.settings(settings));
        let mut file = File::open(mount.path("file")).unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let directory = rustix::fs::open(mount.path("directory"), flags, Mode::empty()).unwrap();
        forget(&below, &source);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text", "{}", io.name());
        file.rewind().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4, "{}", io.name());
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&directory, "new", flags, Mode::RUSR);
        assert!(made.is_ok(), "{}: {made:?}", io.name());
        assert!(source.join("directory/new").exists(), "{}", io.name());
    }
}
