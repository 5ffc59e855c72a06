//! One file system, which answers at once and always the same, over each interface.

use std::sync::Arc;
use std::time::Duration;

use bickford::filesystem::{blocking, future};
use bickford::layer::{Interest, Layer, Layered, PostCalls, PreCalls};
use bickford::ops::{Attr, Data, Entry, Lookup, Read};
use bickford::path::{self, Subject};
use bickford::{Context, DetachedContext, Errno, FileSystem, NodeId, Reply};
use bickford_layers::{LayerError, LayerSpec, build};

static BLOCK: [u8; 4096] = [0; 4096];

fn attr() -> Attr {
    Attr::file(2, 0o644, 4096)
}

fn entry() -> Entry {
    Entry::new(NodeId(2), attr(), Duration::from_secs(1))
}

/// The subject.
pub(crate) struct Bare;

impl FileSystem for Bare {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>, reply: Reply<Entry>) {
        reply.ok(entry());
    }

    fn read(&self, _: &Context<'_>, _: Read, reply: Reply<Data>) {
        reply.ok(BLOCK.as_slice().into());
    }
}

impl blocking::FileSystem for Bare {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>) -> Result<Entry, Errno> {
        Ok(entry())
    }

    fn read(&self, _: &Context<'_>, _: Read) -> Result<Data, Errno> {
        Ok(BLOCK.as_slice().into())
    }
}

impl future::FileSystem for Bare {
    async fn lookup(
        self: Arc<Self>,
        _: DetachedContext,
        _: future::Owned<Lookup<'static>>,
    ) -> Result<Entry, Errno> {
        Ok(entry())
    }

    async fn read(
        self: Arc<Self>,
        _: DetachedContext,
        _: future::Owned<Read>,
    ) -> Result<Data, Errno> {
        Ok(BLOCK.as_slice().into())
    }
}

impl path::FileSystem for Bare {
    fn getattr(&self, _: &Context<'_>, _: Subject<'_>) -> Result<Attr, Errno> {
        Ok(attr())
    }

    fn read(&self, _: &Context<'_>, _: Subject<'_>, _: u64, _: u32) -> Result<Data, Errno> {
        Ok(BLOCK.as_slice().into())
    }
}

impl path::future::FileSystem for Bare {
    async fn getattr(&self, _: &Context<'_>, _: Subject<'_>) -> Result<Attr, Errno> {
        Ok(attr())
    }

    async fn read(&self, _: &Context<'_>, _: Subject<'_>, _: u64, _: u32) -> Result<Data, Errno> {
        Ok(BLOCK.as_slice().into())
    }
}

/// Does nothing, before and after the operations of its interest.
pub(crate) struct Empty(pub(crate) Interest);

impl PreCalls for Empty {}
impl PostCalls for Empty {}

impl Layer for Empty {
    fn name(&self) -> &str {
        "empty"
    }

    fn interest(&self) -> Interest {
        self.0
    }
}

/// Empty layers over a file system.
pub(crate) fn empty(
    count: usize,
    interest: Interest,
    below: Box<dyn FileSystem>,
) -> Box<dyn FileSystem> {
    (0..count).fold(below, |below, _| {
        Box::new(Layered::new(Empty(interest), below))
    })
}

/// A layer of the registry over a file system.
pub(crate) fn included(
    spec: &str,
    below: Box<dyn FileSystem>,
) -> Result<Box<dyn FileSystem>, LayerError> {
    let specs: [LayerSpec; 1] = [spec.parse()?];
    build(&specs, below).map(|(file_system, _)| file_system)
}
