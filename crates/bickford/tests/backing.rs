//! Kernel pass-through, as the blocking, the asynchronous and the path API have it, over each transport.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bickford::abi::{InitFlags, OpenOutFlags};
use bickford::backing::Backing;
use bickford::filesystem::future::{Owned, Spawned, Task};
use bickford::filesystem::{blocking, future};
use bickford::ops::{Attr, Attributes, Entry, Getattr, Kept, Lookup, Open, Opened, Release};
use bickford::path::{self, Adapter, Options, Subject};
use bickford::{
    Blocking, Context, DetachedContext, Errno, FileSystem, Negotiation, NodeId, Result,
    SessionConfig,
};
use support::{DEADLINE, Fixture, over_each_transport};

const TEXT: &str = "fourteen bytes";

/// One file, `file`, which is another one. Reads and writes have no methods.
#[derive(Clone)]
struct Through {
    lower: PathBuf,
    /// What is open, and by how many.
    backing: Arc<Mutex<Option<(Backing, usize)>>>,
}

impl Through {
    fn negotiate(negotiation: &mut Negotiation) {
        if negotiation.want(InitFlags::PASSTHROUGH) {
            negotiation.set_max_stack_depth(1);
        }
    }

    fn attr(node: NodeId) -> Attr {
        match node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            _ => Attr::file(2, 0o644, TEXT.len() as u64),
        }
    }

    fn open(&self, cx: &Context<'_>) -> Result<Opened> {
        let mut backing = self.backing.lock().unwrap();
        if let Some((_, opens)) = &mut *backing {
            *opens += 1;
        } else {
            let file = File::open(&self.lower).map_err(|_| Errno::IO)?;
            let backings = cx.backings().ok_or(Errno::OPNOTSUPP)?;
            let opened = backings
                .open(file)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            *backing = Some((opened, 1));
        }
        Ok(Opened {
            flags: OpenOutFlags::PASSTHROUGH,
            backing_id: backing.as_ref().map_or(0, |(backing, _)| backing.id()),
            ..Opened::default()
        })
    }

    fn release(&self) {
        let mut backing = self.backing.lock().unwrap();
        if let Some((_, opens)) = &mut *backing {
            *opens -= 1;
            if *opens == 0 {
                *backing = None;
            }
        }
    }

    fn attributes(node: NodeId) -> Attributes {
        Attributes {
            attr: Self::attr(node),
            valid: Duration::ZERO,
        }
    }

    fn entry(name: &[u8]) -> Result<Entry> {
        match name {
            b"file" => Ok(Entry::new(NodeId(2), Self::attr(NodeId(2)), Duration::ZERO)),
            _ => Err(Errno::NOENT),
        }
    }
}

impl blocking::FileSystem for Through {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Self::negotiate(negotiation);
        Ok(())
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry> {
        Self::entry(op.name.to_bytes())
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes> {
        Ok(Self::attributes(op.node))
    }

    fn open(&self, cx: &Context<'_>, _: Open) -> Result<Opened> {
        self.open(cx)
    }

    fn release(&self, _: &Context<'_>, _: Release) -> Result<()> {
        self.release();
        Ok(())
    }
}

impl future::FileSystem for Through {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Self::negotiate(negotiation);
        Ok(())
    }

    async fn lookup(
        self: Arc<Self>,
        _: DetachedContext,
        op: Owned<Lookup<'static>>,
    ) -> Result<Entry> {
        Self::entry(op.operation().name.to_bytes())
    }

    async fn getattr(
        self: Arc<Self>,
        _: DetachedContext,
        op: Owned<Getattr>,
    ) -> Result<Attributes> {
        Ok(Self::attributes(op.node))
    }

    async fn open(self: Arc<Self>, cx: DetachedContext, _: Owned<Open>) -> Result<Opened> {
        Through::open(&self, &cx.context())
    }

    async fn release(self: Arc<Self>, _: DetachedContext, _: Owned<Release>) -> Result<()> {
        Through::release(&self);
        Ok(())
    }
}

impl path::FileSystem for Through {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Self::negotiate(negotiation);
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        match subject.path()?.to_str() {
            Some("/") => Ok(Self::attr(NodeId::ROOT)),
            Some("/file") => Ok(Self::attr(NodeId(2))),
            _ => Err(Errno::NOENT),
        }
    }

    fn open(&self, cx: &Context<'_>, _: &Path, _: path::Open) -> Result<Opened> {
        self.open(cx)
    }

    fn release(&self, _: &Context<'_>, _: Subject<'_>) -> Result<()> {
        self.release();
        Ok(())
    }
}

/// Data go both ways, through two opens at a time.
fn check(subject: &Through, filesystem: impl FileSystem, config: SessionConfig) {
    fs::write(&subject.lower, TEXT).unwrap();
    let fixture = Fixture::new(filesystem, config);
    let negotiated = fixture.session().negotiated().unwrap();
    if !negotiated.protocol.flags.contains(InitFlags::PASSTHROUGH) {
        support::say(format_args!("SKIPPED: kernel pass-through needs Linux 6.9"));
        return fixture.finish();
    }
    let path = fixture.path("file");
    let mut read = String::new();
    let mut reading = File::open(&path).unwrap();
    reading.read_to_string(&mut read).unwrap();
    assert_eq!(read, TEXT);
    let mut writing = OpenOptions::new().write(true).open(&path).unwrap();
    writing.write_all(b"FOURTEEN").unwrap();
    assert_eq!(
        fs::read_to_string(&subject.lower).unwrap(),
        "FOURTEEN bytes"
    );
    let mut again = [0; 8];
    reading.read_exact_at(&mut again, 0).unwrap();
    assert_eq!(&again, b"FOURTEEN");
    drop((reading, writing));
    // Nobody waits for RELEASE, and an unmount may come before it.
    let deadline = Instant::now() + DEADLINE;
    while subject.backing.lock().unwrap().is_some() {
        assert!(Instant::now() < deadline, "not released");
        std::thread::sleep(Duration::from_millis(1));
    }
    fixture.finish();
}

#[test]
fn each_api_lets_the_kernel_read_and_write() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    over_each_transport(|config| {
        let place = tempfile::tempdir().unwrap();
        let subject = Through {
            lower: place.path().join("lower"),
            backing: Arc::default(),
        };
        check(&subject, Blocking(subject.clone()), config);
        let options = Options {
            kernel_cache: true,
            direct_io: true,
            auto_cache: true,
            ..Options::default()
        };
        check(&subject, Adapter::new(subject.clone(), options), config);
        let handle = runtime.handle().clone();
        let spawned = Spawned::new(subject.clone(), move |task: Task| drop(handle.spawn(task)));
        check(&subject, spawned, config);
    });
}
