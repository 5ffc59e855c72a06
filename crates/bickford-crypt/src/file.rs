//! Open files: headers, and reading blocks.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bickford::abi::WriteFlags;
use bickford::ops::{Attr, Attributes, Data, Getattr, Opened, Read, Release, Write, Written};
use bickford::{DetachedContext, Errno, FileHandle, FileSystem, NodeId, Reply};

use crate::block::{self, Broken, FileId};
use crate::geometry::{BLOCK, HEADER, SLOT, last_block, lower_length, plain_size, position};
use crate::keys::Keys;
use crate::names;
use crate::queue::{Mode, Queues};

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) lower: Lower,
    pub(crate) keys: Keys,
    pub(crate) queues: Queues,
    opens: Mutex<Opens>,
}

/// What is known of open files.
#[derive(Debug, Default)]
struct Opens {
    /// Their ids, and how often each is open: handles need not differ.
    ids: HashMap<(NodeId, FileHandle), (FileId, u64)>,
    /// Those that rightly were empty when last seen.
    empty: HashSet<NodeId>,
}

/// The file system below.
pub(crate) struct Lower(pub(crate) Box<dyn FileSystem>);

impl std::fmt::Debug for Lower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lower")
    }
}

/// An open file during one operation.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) inner: Arc<Inner>,
    pub(crate) cx: DetachedContext,
    pub(crate) node: NodeId,
    pub(crate) handle: FileHandle,
    pub(crate) id: FileId,
    /// Flags of what is written: whether set-id bits are cleared, whether the caller is known.
    pub(crate) flags: WriteFlags,
    /// Of open(2): whether what is written is to be on the disk before it is answered.
    pub(crate) sync: u32,
}

/// Neighbouring blocks of a file.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// Their plaintext.
    pub(crate) plain: Vec<u8>,
    /// The bytes below.
    pub(crate) sealed: Vec<u8>,
    /// Whether the file ends with them.
    pub(crate) ends: bool,
}

/// Blocks of one operation: a request of 1 MiB at any offset, and more than the kernel asks for.
const BLOCKS_MAX: u64 = 4096;

impl Inner {
    pub(crate) fn new(lower: Box<dyn FileSystem>, keys: Keys) -> Self {
        Self {
            lower: Lower(lower),
            keys,
            queues: Queues::default(),
            opens: Mutex::default(),
        }
    }

    fn opens(&self) -> MutexGuard<'_, Opens> {
        self.opens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id_of(&self, node: NodeId, handle: FileHandle) -> Option<FileId> {
        self.opens().ids.get(&(node, handle)).map(|(id, _)| *id)
    }

    pub(crate) fn remember(&self, node: NodeId, handle: FileHandle, id: FileId) {
        let mut opens = self.opens();
        let known = opens.ids.entry((node, handle)).or_insert((id, 0));
        *known = (id, known.1 + 1);
    }

    pub(crate) fn forget_handle(&self, node: NodeId, handle: FileHandle) {
        let mut opens = self.opens();
        // Where it is open otherwise, that is found out again.
        opens.empty.remove(&node);
        if let Some((_, count)) = opens.ids.get_mut(&(node, handle)) {
            *count -= 1;
            if *count == 0 {
                opens.ids.remove(&(node, handle));
            }
        }
    }

    /// In the turn of its file: it rightly is empty, as an open file is known to be.
    pub(crate) fn found_empty(&self, node: NodeId, handle: FileHandle) {
        let mut opens = self.opens();
        if opens.ids.contains_key(&(node, handle)) {
            opens.empty.insert(node);
        }
    }

    /// It is, or becomes, longer.
    pub(crate) fn found_longer(&self, node: NodeId) {
        self.opens().empty.remove(&node);
    }

    /// Attributes as they are shown, and how long they are kept. Of an empty file nothing is read: as long as it is not
    /// known that it rightly is one, the kernel is to ask before.
    pub(crate) fn shown(&self, node: NodeId, attr: &mut Attr, valid: &mut Duration) {
        match attr.file_type() {
            0o100_000 => {
                match looks_empty(attr) {
                    true if self.opens().empty.contains(&node) => {}
                    true => *valid = Duration::ZERO,
                    false => self.found_longer(node),
                }
                attr.size = plain_size(attr.size);
            }
            0o120_000 => attr.size = names::plain_length(attr.size),
            _ => {}
        }
    }

    /// Ends an open file of our own.
    pub(crate) fn release(&self, cx: &DetachedContext, node: NodeId, opened: Opened, flags: u32) {
        let op = Release::new(node, opened.handle, flags);
        let reply = Reply::intercept(|_| ());
        let cx = cx.clone().uninterrupted();
        self.lower.0.release(&cx.context(), op, reply);
    }

    /// Reads the header of a file that was just opened, in its turn. To read it, makes sure of an empty
    /// file: nothing is read of it later. Who writes does so when it is not to become empty.
    pub(crate) fn identify(
        self: &Arc<Self>,
        cx: &DetachedContext,
        node: NodeId,
        handle: FileHandle,
        to_read: bool,
        then: impl FnOnce(Result<FileId, Errno>) + Send + 'static,
    ) {
        let (inner, cx) = (Arc::clone(self), cx.clone());
        self.queues.enter(node, Mode::Read, move |turn| {
            inner.read_header(&cx, node, handle, to_read, move |id| {
                drop(turn);
                then(id);
            });
        });
    }

    fn read_header(
        self: &Arc<Self>,
        cx: &DetachedContext,
        node: NodeId,
        handle: FileHandle,
        to_read: bool,
        then: impl FnOnce(Result<FileId, Errno>) + Send + 'static,
    ) {
        let size = u32::try_from(lower_length(0) + 1).unwrap_or(u32::MAX);
        let op = Read::new(node, handle, 0, size);
        let inner = Arc::clone(self);
        let reply = Reply::intercept(move |result: Result<Data, Errno>| {
            let id = bytes_of(result).and_then(|bytes| {
                let identified = block::file_id(&bytes).and_then(|id| {
                    if to_read && bytes.len() as u64 == lower_length(0) {
                        let sealed = bytes.get(HEADER as usize..).ok_or(Broken)?;
                        block::open(&inner.keys, &id, 0, true, sealed)?;
                        if inner.id_of(node, handle) == Some(id) {
                            inner.found_empty(node, handle);
                        }
                    }
                    Ok(id)
                });
                identified.map_err(|_| damaged(node, 0, "the header"))
            });
            then(id);
        });
        self.lower.0.read(&cx.context(), op, reply);
    }
}

/// Whether a file with these attributes below is shown as empty.
fn looks_empty(attr: &Attr) -> bool {
    attr.file_type() == 0o100_000 && attr.size == lower_length(0)
}

/// The bytes of an answer.
pub(crate) fn bytes_of(result: Result<Data, Errno>) -> Result<Vec<u8>, Errno> {
    let bytes = result?.into_bytes();
    bytes.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Says what is damaged; the caller gets EIO.
pub(crate) fn damaged(node: NodeId, block: u64, what: &str) -> Errno {
    tracing::warn!(
        layer = "crypt",
        node = node.0,
        block,
        "{what} cannot be decrypted: damaged, altered, or of another key"
    );
    Errno::IO
}

impl File {
    pub(crate) fn new(
        inner: Arc<Inner>,
        cx: DetachedContext,
        node: NodeId,
        handle: FileHandle,
        id: FileId,
    ) -> Self {
        Self {
            inner,
            cx,
            node,
            handle,
            id,
            flags: WriteFlags::empty(),
            sync: 0,
        }
    }

    /// The same, with calls below that do not end when the caller gets a signal.
    pub(crate) fn uninterrupted(mut self) -> Self {
        self.cx = self.cx.uninterrupted();
        self
    }

    /// Reads up to `count` blocks from `first` on; none when the file ends before.
    pub(crate) fn read_blocks(
        &self,
        first: u64,
        count: u64,
        then: impl FnOnce(Result<Region, Errno>) + Send + 'static,
    ) {
        let count = count.min(BLOCKS_MAX);
        let file = self.clone();
        self.read_sealed(first, count, move |bytes| {
            then(bytes.and_then(|bytes| file.decrypt(first, count, bytes)));
        });
    }

    /// Reads the bytes below of `count` blocks, and one more where there is one.
    pub(crate) fn read_sealed(
        &self,
        first: u64,
        count: u64,
        then: impl FnOnce(Result<Vec<u8>, Errno>) + Send + 'static,
    ) {
        // One byte more tells whether the last of them is the last of the file.
        let size = u32::try_from(count * SLOT + 1).unwrap_or(u32::MAX);
        let op = Read::new(self.node, self.handle, position(first), size);
        let reply = Reply::intercept(move |result| then(bytes_of(result)));
        self.inner.lower.0.read(&self.cx.context(), op, reply);
    }

    pub(crate) fn decrypt(
        &self,
        first: u64,
        count: u64,
        mut sealed: Vec<u8>,
    ) -> Result<Region, Errno> {
        let all = usize::try_from(count * SLOT).unwrap_or(usize::MAX);
        let ends = sealed.len() <= all;
        sealed.truncate(all);
        let mut plain = Vec::with_capacity(sealed.len());
        let blocks = sealed.chunks(SLOT as usize);
        let blocks_held = blocks.len() as u64;
        for (block, sealed) in (first..).zip(blocks) {
            let last = ends && block + 1 == first + blocks_held;
            let opened = block::open(&self.inner.keys, &self.id, block, last, sealed);
            let opened = opened.map_err(|_| damaged(self.node, block, "a block"))?;
            plain.extend_from_slice(&opened);
        }
        Ok(Region {
            plain,
            sealed,
            ends,
        })
    }

    /// Asks how long the file is.
    pub(crate) fn size(&self, then: impl FnOnce(Result<u64, Errno>) + Send + 'static) {
        self.length_below(|length| then(length.map(plain_size)));
    }

    /// Attributes below of an open file. Where it wrongly looks empty it gets a byte: whoever reads that meets the
    /// damage.
    pub(crate) fn verified(
        self,
        mut answer: Attributes,
        then: impl FnOnce(Result<Attributes, Errno>) + Send + 'static,
    ) {
        let known_empty = self.inner.opens().empty.contains(&self.node);
        if known_empty || !looks_empty(&answer.attr) {
            return then(Ok(answer));
        }
        let (cx, known) = (self.cx.clone(), self.id);
        let inner = Arc::clone(&self.inner);
        inner.identify(&cx, self.node, self.handle, true, move |id| {
            then(match id {
                Ok(id) if id == known => Ok(answer),
                Ok(_) | Err(Errno::IO) => {
                    answer.attr.size = lower_length(1);
                    answer.valid = Duration::ZERO;
                    Ok(answer)
                }
                // As at a signal, which says nothing of the file.
                Err(errno) => Err(errno),
            });
        });
    }

    /// Asks how long the file below is.
    pub(crate) fn length_below(&self, then: impl FnOnce(Result<u64, Errno>) + Send + 'static) {
        let op = Getattr::new(self.node, Some(self.handle));
        let reply = Reply::intercept(move |result: Result<Attributes, Errno>| {
            then(result.map(|answer| answer.attr.size));
        });
        self.inner.lower.0.getattr(&self.cx.context(), op, reply);
    }

    /// Writes bytes below; fewer are an error.
    pub(crate) fn write_below(
        &self,
        offset: u64,
        bytes: &[u8],
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let mut op = Write::new(self.node, self.handle, offset, bytes);
        op.write_flags = self.flags;
        op.flags = self.sync;
        let length = bytes.len();
        let reply = Reply::intercept(move |result: Result<Written, Errno>| {
            then(result.and_then(|written| {
                let all = written.0 as usize == length;
                // Mostly no space; a second write would say so, but not change the outcome.
                all.then_some(()).ok_or(Errno::NOSPC)
            }));
        });
        self.inner.lower.0.write(&self.cx.context(), op, reply);
    }

    /// Reads plaintext; fewer bytes are the end of the file.
    pub(crate) fn read(
        self,
        offset: u64,
        size: u32,
        then: impl FnOnce(Result<Data, Errno>) + Send + 'static,
    ) {
        if size == 0 || offset > crate::SIZE_MAX {
            return then(Ok(Data::Empty));
        }
        let first = offset / BLOCK;
        let count = (offset + u64::from(size) - 1) / BLOCK - first + 1;
        let file = self.clone();
        self.read_blocks(first, count, move |region| match region {
            Err(errno) => then(Err(errno)),
            Ok(region) if region.sealed.is_empty() => file.verify_end(offset, then),
            Ok(mut region) => {
                let skip = usize::try_from(offset % BLOCK).unwrap_or(0);
                region.plain.drain(..skip.min(region.plain.len()));
                region.plain.truncate(size as usize);
                then(Ok(region.plain.into()));
            }
        });
    }

    /// Nothing lies at `offset`: makes sure that the file rightly ends before.
    fn verify_end(self, offset: u64, then: impl FnOnce(Result<Data, Errno>) + Send + 'static) {
        let file = self.clone();
        self.size(move |size| match size {
            Err(errno) => then(Err(errno)),
            Ok(size) if offset < size => then(Err(damaged(file.node, offset / BLOCK, "the end"))),
            Ok(size) => {
                let last = last_block(size);
                let node = file.node;
                file.read_blocks(last, 1, move |region| {
                    then(region.and_then(|region| {
                        let right = region.ends && !region.sealed.is_empty();
                        let right = right.then_some(Data::Empty);
                        right.ok_or_else(|| damaged(node, last, "the end"))
                    }));
                });
            }
        });
    }
}
