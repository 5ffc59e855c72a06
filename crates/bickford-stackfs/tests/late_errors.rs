//! What the lower file system is asked when what was written is synced, and when a file is closed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSlice, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::mount::MountOptions;
use bickford::ops::{
    Attr, Attributes, Entry, Flush, Fsync, Getattr, Lookup, Setattr, Write, Written,
};
use bickford::session::MountedSession;
use bickford::{Blocking, Context, Errno, NodeId, Session, SessionConfig, filesystem::blocking};
use bickford_stackfs::{IoMode, Preset};
use rustix::io::ReadWriteFlags;
use rustix::mount::MountFlags;
use support::{Mount, Mounted, can_mount, has, with_io};

const FILE: NodeId = NodeId(2);
const VALID: Duration = Duration::from_secs(1);

/// A directory with one file.
#[derive(Clone, Default)]
struct Strict {
    /// Each sync of the file: whether the data were enough.
    syncs: Arc<Mutex<Vec<bool>>>,
}

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1, 0o755),
        _ => Attr::file(2, 0o644, 0),
    }
}

fn attributes(node: NodeId) -> Attributes {
    let (attr, valid) = (attr(node), VALID);
    Attributes { attr, valid }
}

impl blocking::FileSystem for Strict {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        match op.name.to_bytes() {
            b"file" => Ok(Entry::new(FILE, attr(FILE), VALID)),
            _ => Err(Errno::NOENT),
        }
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(attributes(op.node))
    }

    fn setattr(&self, _: &Context<'_>, op: Setattr) -> Result<Attributes, Errno> {
        Ok(attributes(op.node))
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        Ok(Written(op.data.len() as u32))
    }

    fn flush(&self, _: &Context<'_>, _: Flush) -> Result<(), Errno> {
        Err(Errno::NOSPC)
    }

    fn fsync(&self, _: &Context<'_>, op: Fsync) -> Result<(), Errno> {
        self.syncs.lock().unwrap().push(op.data_only);
        Ok(())
    }
}

/// At `point` until it is dropped.
fn mounted(strict: Strict, point: &Path) -> MountedSession {
    let config = SessionConfig::default();
    Session::mount(Blocking(strict), point, &MountOptions::new(), config).unwrap()
}

fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

#[test]
fn a_single_write_past_the_cache_is_synced_where_it_is_to_be() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let lower = tempfile::tempdir_in(place.path()).unwrap();
    let strict = Strict::default();
    let below = mounted(strict.clone(), lower.path());
    let settings = with_io(Preset::Fast.settings(), IoMode::Direct);
    let mount = Mount::over(lower, |builder| builder.settings(settings));
    let file = writer(&mount.path("file"));
    let mut seen = Vec::new();
    for (flags, synced) in [
        (ReadWriteFlags::empty(), None),
        (ReadWriteFlags::DSYNC, Some(true)),
        (ReadWriteFlags::SYNC, Some(false)),
    ] {
        let text = [IoSlice::new(b"text")];
        rustix::io::pwritev2(file.as_fd(), &text, 0, flags).unwrap();
        seen.extend(synced);
        assert_eq!(*strict.syncs.lock().unwrap(), seen);
    }
    drop((file, mount, below));
}

#[test]
fn closing_tells_what_a_file_system_below_source_says_then() {
    if !can_mount() {
        return;
    }
    for (preset, io) in [
        (Preset::Base, IoMode::Plain),
        (Preset::Fast, IoMode::Plain),
        (Preset::Fast, IoMode::Passthrough),
        (Preset::Fast, IoMode::Direct),
        (Preset::Fast, IoMode::Cached),
    ]
    .into_iter()
    .filter(|(_, io)| has(io))
    {
        for directory in ["", "below"] {
            let place = tempfile::tempdir().unwrap();
            let lower = tempfile::tempdir_in(place.path()).unwrap();
            let point = lower.path().join(directory);
            fs::create_dir_all(&point).unwrap();
            let below = mounted(Strict::default(), &point);
            let settings = with_io(preset.settings(), io);
            let mount = Mount::over(lower, |builder| builder.settings(settings));
            for name in ["file", "file", "beside"] {
                let path = match name {
                    "file" => mount.path(directory).join(name),
                    _ if directory.is_empty() => continue,
                    name => mount.path(name),
                };
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).open(path).unwrap();
                // It says whether closing failed.
                let mut echo = Command::new("/bin/echo");
                echo.arg("text").stdout(file).stderr(Stdio::null());
                let told = !echo.status().unwrap().success();
                assert_eq!(told, name == "file", "{} {directory:?} {name}", io.name());
            }
            drop((mount, below));
        }
    }
}

/// The kernel opens files without asking, and takes what is written into its cache.
#[test]
fn what_is_written_to_a_read_only_source_is_refused_at_once() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    fs::write(lower.path().join("file"), "text").unwrap();
    let settings = with_io(Preset::Fast.settings(), IoMode::Cached);
    let place = lower.path().to_owned();
    let mut bound = None;
    let mount = Mount::over(lower, |builder| {
        rustix::mount::mount_bind(&place, &place).unwrap();
        bound = Some(Mounted(place.clone()));
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&place, flags, c"").unwrap();
        builder.settings(settings)
    });
    drop(bound);
    assert_eq!(mount.stackfs.io_mode(), IoMode::Cached);
    for append in [true, false] {
        let opened = File::options()
            .write(true)
            .append(append)
            .open(mount.path("file"));
        let refused = opened.unwrap().write_all(b"lost").unwrap_err();
        assert_eq!(
            refused.kind(),
            ErrorKind::ReadOnlyFilesystem,
            "append: {append}"
        );
    }
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
}
