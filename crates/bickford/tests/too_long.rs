//! Answers that are longer than what was asked for: the same over each transport.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bickford::abi::{InitFlags, OpenOutFlags};
use bickford::ops::{
    Attr, Attributes, Data, Directory, DirectoryEntry, Entry, Getattr, Getxattr, Listxattr, Lookup,
    Open, Opened, Read, Readdir, Readdirplus, Readlink, Target, XattrAnswer,
};
use bickford::{Context, Errno, FileHandle, FileSystem, Negotiation, NodeId, Reply};
use log::Log;
use support::{Fixture, over_each_transport};

const LINK: NodeId = NodeId(2);
const WHOLE_LINK: NodeId = NodeId(3);
const FILE: NodeId = NodeId(4);
/// A file below that ends before its range does.
const SHORT: NodeId = NodeId(5);
/// The listing of the root is too long with entries, or without.
const DIRECTORY: NodeId = NodeId(6);

/// Answers more than it was asked for.
struct Subject {
    short: Arc<OwnedFd>,
    plus: bool,
}

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT | DIRECTORY => Attr::directory(node.0, 0o755),
        LINK | WHOLE_LINK => Attr {
            mode: 0o120_777,
            ..Attr::file(node.0, 0o777, 10)
        },
        _ => Attr::file(node.0, 0o644, 1 << 20),
    }
}

/// The kernel has a page for it.
fn longest_target() -> usize {
    rustix::param::page_size() - 1
}

fn listing(size: u32, plus: bool) -> Directory {
    let mut listing = Directory::new(size + 4096, plus);
    let mut offset = 1;
    while listing.push(&DirectoryEntry {
        name: format!("name-{offset}").as_bytes(),
        ino: 7,
        offset,
        mode: 0o100_000,
    }) {
        offset += 1;
    }
    listing
}

impl FileSystem for Subject {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        if self.plus {
            negotiation.want(InitFlags::DO_READDIRPLUS);
        }
        Ok(())
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        let node = match op.name.to_bytes() {
            b"link" => LINK,
            b"whole" => WHOLE_LINK,
            b"file" => FILE,
            b"short" => SHORT,
            b"directory" => DIRECTORY,
            _ => return reply.error(Errno::NOENT),
        };
        reply.ok(Entry::new(node, attr(node), Duration::from_secs(60)));
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: attr(op.node),
            valid: Duration::from_secs(60),
        });
    }

    fn readlink(&self, _: &Context<'_>, op: Readlink, reply: Reply<Target>) {
        let longer = if op.node == LINK { 4905 } else { 0 };
        reply.ok(Target(vec![b'x'; longest_target() + longer]));
    }

    fn open(&self, _: &Context<'_>, op: Open, reply: Reply<Opened>) {
        reply.ok(Opened {
            flags: OpenOutFlags::DIRECT_IO,
            ..Opened::new(FileHandle(op.node.0))
        });
    }

    fn read(&self, _: &Context<'_>, op: Read, reply: Reply<Data>) {
        if op.node == SHORT {
            let file = Arc::clone(&self.short);
            return reply.ok(Data::range(file, op.offset, op.size + (1 << 20)));
        }
        reply.ok(vec![1; op.size as usize + 4096].into());
    }

    fn getxattr(&self, _: &Context<'_>, op: Getxattr<'_>, reply: Reply<XattrAnswer>) {
        match op.name.to_bytes() {
            b"user.whole" => reply.ok(XattrAnswer::Value(vec![1; op.size as usize])),
            _ => reply.ok(XattrAnswer::Value(vec![1; op.size as usize + 9])),
        }
    }

    fn listxattr(&self, _: &Context<'_>, op: Listxattr, reply: Reply<XattrAnswer>) {
        reply.ok(XattrAnswer::Value(vec![0; op.size as usize + 9]));
    }

    fn readdir(&self, _: &Context<'_>, op: Readdir, reply: Reply<Directory>) {
        reply.ok(listing(op.size, false));
    }

    fn readdirplus(&self, _: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        reply.ok(listing(op.size, true));
    }
}

#[test]
fn an_answer_that_is_too_long_is_eio_and_said() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    over_each_transport(|config| {
        for plus in [false, true] {
            let mut short = tempfile::tempfile().unwrap();
            short.write_all(&[7; 100]).unwrap();
            let short = Arc::new(OwnedFd::from(short));
            let fixture = Fixture::new(Subject { short, plus }, config);
            let path = |name: &str| fixture.path(name);
            let is_eio = |what: &str, code: Option<i32>| {
                assert_eq!(code, Some(libc::EIO), "{what}, {:?}", config.transport);
                let said = log.take();
                let line = "an answer is longer than what was asked for; the caller gets EIO";
                assert_eq!(said, [line], "{what}, {:?}", config.transport);
            };
            let mut buffer = [0; 5000];
            log.take();

            let error = fs::read_link(path("link")).unwrap_err();
            is_eio("readlink", error.raw_os_error());
            let read = File::open(path("file")).unwrap().read(&mut buffer);
            is_eio("read", read.unwrap_err().raw_os_error());
            for (what, room) in [("getxattr", 64), ("getxattr of the length", 0)] {
                let room = &mut buffer[..room];
                let error = rustix::fs::getxattr(path("file"), "user.long", room).unwrap_err();
                is_eio(what, Some(error.raw_os_error()));
            }
            let error = rustix::fs::listxattr(path("file"), &mut buffer[..64]).unwrap_err();
            is_eio("listxattr", Some(error.raw_os_error()));
            let mut names = fs::read_dir(path("directory")).unwrap();
            let error = names.next().unwrap().unwrap_err();
            is_eio("a listing", error.raw_os_error());
            drop(names);

            let target = fs::read_link(path("whole")).unwrap();
            assert_eq!(target.as_os_str().len(), longest_target());
            let whole = rustix::fs::getxattr(path("file"), "user.whole", &mut buffer[..64]);
            assert_eq!(whole, Ok(64));
            let mut file = File::open(path("short")).unwrap();
            assert_eq!(file.read(&mut buffer).unwrap(), 100);
            drop(file);
            let said = log.take();
            assert!(said.is_empty(), "{said:?}");
            fixture.finish();
        }
    });
}
