//! FUSE below: it finds no file by a handle that it has not in memory, and may tell any inode numbers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use bickford::filesystem::blocking;
use bickford::mount::MountOptions;
use bickford::ops::{Attr, Attributes, Data, Entry, Getattr, Lookup, Read as ReadRequest, Setattr};
use bickford::session::MountedSession;
use bickford::{Blocking, Context, Errno, NodeId, Session, SessionConfig};
use bickford_stackfs::{IoMode, Preset};
use rustix::fs::{Mode, OFlags};
use support::{Mount, can_mount, with_io};

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
        let settings = with_io(Preset::Fast.settings(), io);
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

/// Files of which all have the same inode number.
struct Alike;

const FILES: [(NodeId, &str); 2] = [(NodeId(2), "one"), (NodeId(3), "other")];
const VALID: Duration = Duration::from_secs(1);

/// What a file is named, and contains.
fn text(node: NodeId) -> Result<&'static str, Errno> {
    let mut all = FILES.into_iter();
    all.find_map(|(other, text)| (other == node).then_some(text))
        .ok_or(Errno::NOENT)
}

fn attr(node: NodeId) -> Result<Attr, Errno> {
    match node {
        NodeId::ROOT => Ok(Attr::directory(1, 0o755)),
        node => Ok(Attr::file(7, 0o644, text(node)?.len() as u64)),
    }
}

impl blocking::FileSystem for Alike {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let mut all = FILES.into_iter();
        let found = all.find(|(_, name)| name.as_bytes() == op.name.to_bytes());
        let (node, _) = found.ok_or(Errno::NOENT)?;
        Ok(Entry::new(node, attr(node)?, VALID))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let attr = attr(op.node)?;
        Ok(Attributes { attr, valid: VALID })
    }

    fn setattr(&self, _: &Context<'_>, op: Setattr) -> Result<Attributes, Errno> {
        let attr = attr(op.node)?;
        Ok(Attributes { attr, valid: VALID })
    }

    fn read(&self, _: &Context<'_>, op: ReadRequest) -> Result<Data, Errno> {
        Ok(Data::part(text(op.node)?.as_bytes(), op.offset, op.size))
    }
}

/// At `point` until it is dropped.
fn mounted_alike(point: &Path) -> MountedSession {
    let config = SessionConfig::default();
    Session::mount(Blocking(Alike), point, &MountOptions::new(), config).unwrap()
}

#[test]
fn files_with_the_same_inode_number_are_not_taken_for_one() {
    if !can_mount() {
        return;
    }
    for (below, handles) in [("", true), ("", false), ("below", true), ("below", false)] {
        let place = tempfile::tempdir().unwrap();
        let lower = tempfile::tempdir_in(place.path()).unwrap();
        let point = lower.path().join(below);
        fs::create_dir_all(&point).unwrap();
        let alike = mounted_alike(&point);
        let mount = Mount::over(lower, |builder| builder.file_handles(handles));
        let shown = mount.path(below);
        let held = ["one", "other"].map(|name| File::open(shown.join(name)).unwrap());
        for name in ["one", "other"] {
            let text = fs::read_to_string(shown.join(name)).unwrap();
            assert_eq!(text, name, "{below:?}, handles: {handles}");
        }
        drop(held);
        drop(mount);
        drop(alike);
    }
}
