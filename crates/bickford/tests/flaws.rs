//! Answers that the kernel does not take: the same over each transport.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bickford::abi::OpenOutFlags;
use bickford::ops::{
    Attr, Attributes, Copied, CopyFileRange, Create, Created, Entry, Getattr, Link, Lookup, Mkdir,
    Mknod, Open, Opened, Symlink, Tmpfile, Write, Written,
};
use bickford::{Blocking, Context, Errno, FileHandle, NodeId, Result, filesystem};
use log::Log;
use support::{Fixture, over_each_transport};

const FILE: NodeId = NodeId(2);
/// Opened for pass-through without a backing file, and with a flag that does not go with it.
const BARE: NodeId = NodeId(9);
const KEPT: NodeId = NodeId(10);

/// Answers what kernels do not take, but of `file` and the root.
#[derive(Default)]
struct Subject {
    /// Whether the attributes of `file` have no type the next time.
    spoilt: AtomicBool,
}

fn entry(node: NodeId, attr: Attr) -> Result<Entry> {
    Ok(Entry::new(node, attr, Duration::ZERO))
}

fn created(node: NodeId, attr: Attr) -> Result<Created> {
    Ok(Created {
        entry: entry(node, attr)?,
        opened: Opened::new(FileHandle(1)),
    })
}

impl filesystem::blocking::FileSystem for Subject {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry> {
        let file = Attr::file(2, 0o644, 0);
        match op.name.to_bytes() {
            b"file" => entry(FILE, file),
            b"one" => entry(NodeId::ROOT, file),
            b"typeless" => entry(
                NodeId(3),
                Attr {
                    mode: 0o644,
                    ..file
                },
            ),
            b"huge" => entry(NodeId(4), Attr::file(4, 0o644, u64::MAX)),
            b"full" => entry(NodeId(11), Attr::file(11, 0o644, 3)),
            b"bare" => entry(BARE, file),
            b"kept" => entry(KEPT, file),
            b"negative" => Ok(Entry::negative(Duration::ZERO)),
            _ => Err(Errno::NOENT),
        }
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes> {
        let mut attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            _ => Attr::file(2, 0o644, 0),
        };
        if op.node == FILE && self.spoilt.swap(false, Ordering::SeqCst) {
            attr.mode = 0o644;
        }
        Ok(Attributes {
            attr,
            valid: Duration::ZERO,
        })
    }

    fn mkdir(&self, _: &Context<'_>, op: Mkdir<'_>) -> Result<Entry> {
        // As the request has it, and as a program takes it over.
        let attr = Attr {
            mode: op.mode,
            ..Attr::directory(5, 0)
        };
        entry(NodeId(5), attr)
    }

    fn symlink(&self, _: &Context<'_>, _: Symlink<'_>) -> Result<Entry> {
        entry(NodeId(6), Attr::file(6, 0o777, 1))
    }

    fn mknod(&self, _: &Context<'_>, _: Mknod<'_>) -> Result<Entry> {
        Ok(Entry::negative(Duration::ZERO))
    }

    fn link(&self, _: &Context<'_>, _: Link<'_>) -> Result<Entry> {
        entry(NodeId::ROOT, Attr::directory(1, 0o755))
    }

    fn open(&self, _: &Context<'_>, op: Open) -> Result<Opened> {
        let (flags, backing_id) = match op.node {
            BARE => (OpenOutFlags::PASSTHROUGH, 0),
            KEPT => (OpenOutFlags::PASSTHROUGH | OpenOutFlags::KEEP_CACHE, 1),
            // So that a write is one request.
            _ => (OpenOutFlags::DIRECT_IO, 0),
        };
        Ok(Opened {
            flags,
            backing_id,
            ..Opened::default()
        })
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written> {
        Ok(Written(op.data.len() as u32 + 1))
    }

    fn copy_file_range(&self, _: &Context<'_>, op: CopyFileRange) -> Result<Copied> {
        Ok(Copied(op.length + 1))
    }

    fn create(&self, _: &Context<'_>, _: Create<'_>) -> Result<Created> {
        created(NodeId(7), Attr::directory(7, 0o755))
    }

    fn tmpfile(&self, _: &Context<'_>, _: Tmpfile) -> Result<Created> {
        created(NodeId(0), Attr::file(8, 0o644, 0))
    }
}

#[test]
fn an_answer_that_the_kernel_does_not_take_is_eio_and_said() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    over_each_transport(|config| {
        let subject = std::sync::Arc::new(Blocking(Subject::default()));
        let fixture = Fixture::new(std::sync::Arc::clone(&subject), config);
        let path = |name: &str| fixture.path(name);
        let is_said = |what: &str, done: io::Result<()>| {
            let code = done.unwrap_err().raw_os_error();
            let said = log.take().join("; ");
            let told = said.contains("does not take") && said.contains(what);
            assert!(code == Some(libc::EIO) && told, "{what}: {code:?}, {said}");
        };
        let look = |name: &str| fs::symlink_metadata(path(name)).map(drop);
        log.take();

        is_said("no type", look("typeless"));
        is_said("the size", look("huge"));
        is_said("begin with 2", look("one"));
        is_said("directory (S_IFDIR)", fs::create_dir(path("new")));
        is_said("link (S_IFLNK)", symlink("x", path("new")));
        is_said("node is 1", fs::hard_link(path("file"), path("new")));
        is_said("file (S_IFREG)", File::create(path("new")).map(drop));
        let mode = rustix::fs::Mode::RUSR;
        let fifo = rustix::fs::FileType::Fifo;
        let made = rustix::fs::mknodat(rustix::fs::CWD, path("new"), fifo, mode, 0);
        is_said("node is 0", made.map_err(io::Error::from));
        let mut unnamed = OpenOptions::new();
        unnamed.write(true).custom_flags(libc::O_TMPFILE);
        is_said("node is 0", unnamed.open(path("")).map(drop));
        subject.0.spoilt.store(true, Ordering::SeqCst);
        let file = File::open(path("file")).unwrap();
        is_said("no type", file.metadata().map(drop));
        is_said("no backing file", File::open(path("bare")).map(drop));
        is_said("FOPEN_NOFLUSH beside", File::open(path("kept")).map(drop));
        let writing = OpenOptions::new().write(true).open(path("file")).unwrap();
        is_said("more bytes", (&writing).write(b"one").map(drop));
        let full = File::open(path("full")).unwrap();
        let copied = rustix::fs::copy_file_range(&full, None, &writing, None, 3);
        is_said("more bytes", copied.map(drop).map_err(io::Error::from));
        drop((full, writing));

        // Nothing of it is for good.
        assert_eq!(file.metadata().unwrap().len(), 0);
        look("file").unwrap();
        fs::metadata(path("")).unwrap();
        let error = look("negative").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        drop(file);
        let said = log.take();
        assert!(said.is_empty(), "{said:?}");
        fixture.finish();
    });
}
