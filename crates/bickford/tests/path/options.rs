//! Options of the adapter, and what an empty file system answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bickford::abi::{Opcode, OpenOutFlags};
use bickford::ops::{Attr, Opened, Timestamp};
use bickford::path::{self, Adapter, New, Open, Options, Subject};
use bickford::{Context, Errno};

use crate::client::{Client, ROOT, session};
use crate::mirror::Served;

const ENOSYS: i32 = 38;

struct Nothing;

impl path::FileSystem for Nothing {}

struct Prompt;

impl path::FileSystem for Prompt {
    fn is_prompt(&self) -> bool {
        true
    }
}

#[test]
fn an_adapter_is_as_prompt_as_its_file_system() {
    use bickford::FileSystem;
    assert!(!Adapter::new(Nothing, Options::default()).is_prompt());
    assert!(Adapter::new(Prompt, Options::default()).is_prompt());
}

#[test]
fn what_is_not_implemented_is_enosys() {
    let kernel = session(Adapter::new(Nothing, Options::default()));
    let client = Client::new(&kernel, 1);
    let empty = [0u8; 64];
    for opcode in [
        Opcode::Getattr,
        Opcode::Readlink,
        Opcode::Open,
        Opcode::Read,
        Opcode::Flush,
        Opcode::Fsync,
        Opcode::Getxattr,
        Opcode::Listxattr,
        Opcode::Access,
        Opcode::Getlk,
        Opcode::Poll,
        Opcode::Fallocate,
        Opcode::Lseek,
        Opcode::CopyFileRange,
        Opcode::Statx,
        Opcode::Syncfs,
    ] {
        let node = if opcode == Opcode::CopyFileRange {
            ROOT
        } else {
            1
        };
        let mut body = empty;
        if opcode == Opcode::CopyFileRange {
            body[16] = 1;
        }
        assert_eq!(
            client.call(opcode, node, &body),
            Err(ENOSYS),
            "{}",
            opcode.name()
        );
    }
    assert_eq!(client.call(Opcode::Ioctl, ROOT, &empty), Err(25), "ENOTTY");
    assert!(client.call(Opcode::Statfs, ROOT, &[]).is_ok());
    assert!(client.opendir(ROOT).is_ok());
    assert!(client.release(Opcode::Release, ROOT, 0).is_ok());
}

#[test]
fn a_node_that_is_not_known_is_stale() {
    let kernel = session(Adapter::new(Nothing, Options::default()));
    let client = Client::new(&kernel, 1);
    for node in [0, 2, 77, u64::MAX, 1 << 32 | 1] {
        assert_eq!(client.getattr(node).unwrap_err(), 116);
        client.forget(node, u64::MAX);
    }
}

/// Where every name is there by the time that it is to be made.
struct Taken;

impl path::FileSystem for Taken {
    fn create(&self, _: &Context<'_>, _: &Path, _: New, open: Open) -> Result<Opened, Errno> {
        let said = open.flags.cast_signed() & (libc::O_CREAT | libc::O_EXCL);
        assert_eq!(said, 0, "whether the caller wants it so is not told");
        Err(Errno::EXIST)
    }
}

#[test]
fn a_name_that_is_there_by_now_is_opened_unless_the_caller_is_to_make_it() {
    let kernel = session(Adapter::new(Taken, Options::default()));
    let client = Client::new(&kernel, 1);
    let makes = libc::O_RDWR | libc::O_CREAT;
    let create = |flags| client.create_with(ROOT, "name", flags).map(drop);
    assert_eq!(create(makes), Err(libc::ESTALE), "the kernel looks again");
    assert_eq!(create(makes | libc::O_EXCL), Err(libc::EEXIST));
}

/// One file whose size the test sets.
struct One(Arc<AtomicU64>);

impl path::FileSystem for One {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        let attr = match subject.path()?.to_str() {
            Some("/") => Attr::directory(10, 0o755),
            Some("/one") => Attr::file(11, 0o640, self.0.load(Ordering::SeqCst)),
            _ => return Err(Errno::NOENT),
        };
        Ok(Attr {
            modified: Timestamp {
                seconds: 5,
                nanoseconds: 0,
            },
            ..attr
        })
    }
}

#[test]
fn attributes_and_timeouts_are_as_asked_for() {
    let options = Options {
        entry_timeout: Duration::from_secs(7),
        attr_timeout: Duration::from_millis(1500),
        negative_timeout: Duration::from_secs(3),
        use_ino: true,
        uid: Some(1000),
        gid: Some(1001),
        umask: Some(0o027),
        ..Options::default()
    };
    let kernel = session(Adapter::new(One(Arc::default()), options));
    let client = Client::new(&kernel, 1);
    let entry = client.lookup(ROOT, "one").unwrap();
    assert_eq!(
        (entry.entry_valid, entry.attr_valid, entry.attr_valid_nsec),
        (7, 1, 500_000_000)
    );
    let attr = entry.attr;
    assert_eq!(
        (attr.ino, attr.uid, attr.gid, attr.mode),
        (11, 1000, 1001, 0o100_750)
    );
    let missing = client.lookup(ROOT, "missing").unwrap();
    assert_eq!((missing.nodeid, missing.entry_valid), (0, 3));
    assert_eq!(client.getattr(ROOT).unwrap().attr.mode, 0o040_750);
}

#[test]
fn the_page_cache_is_kept_as_asked_for() {
    let flags = |options: Options, size: &Arc<AtomicU64>| {
        let kernel = session(Adapter::new(One(Arc::clone(size)), options));
        let client = Client::new(&kernel, 1);
        let node = client.lookup(ROOT, "one").unwrap().nodeid;
        let flags = |new: u64| {
            size.store(new, Ordering::SeqCst);
            client
                .open(node)
                .map(|opened| OpenOutFlags::from_bits_retain(opened.open_flags))
        };
        [flags(1), flags(1), flags(2), flags(2)]
    };
    let size = Arc::default();
    let none = OpenOutFlags::empty();
    let keep = OpenOutFlags::KEEP_CACHE;
    let auto = Options {
        auto_cache: true,
        ..Options::default()
    };
    assert_eq!(flags(auto, &size), [none, keep, none, keep].map(Ok));
    let direct = Options {
        direct_io: true,
        ..Options::default()
    };
    assert_eq!(flags(direct, &size), [OpenOutFlags::DIRECT_IO; 4].map(Ok));
    assert_eq!(flags(Options::default(), &size), [Err(ENOSYS); 4]);
}

#[test]
fn noforget_keeps_names() {
    let options = Options {
        noforget: true,
        ..Options::default()
    };
    let adapter = Adapter::new(Served(Arc::default()), options);
    let names = adapter.names();
    let kernel = session(adapter);
    let client = Client::new(&kernel, 1);
    let node = client.mknod(ROOT, "file").unwrap().nodeid;
    client.forget(node, 1);
    assert_eq!(client.lookup(ROOT, "file").unwrap().nodeid, node);
    assert_eq!(names.node("/file"), Some(bickford::NodeId(node)));
    assert_eq!(names.path(bickford::NodeId(node)), Some("/file".into()));
}
