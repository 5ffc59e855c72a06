//! The file system below: names and bytes in memory, with a journal of what changed bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bickford::abi::InitFlags;
use bickford::ops::{
    Attr, Attributes, Create, Created, Data, Directory, DirectoryEntry, Entry, Forget, Getattr,
    Link, Lookup, Mkdir, Mknod, Open, Opened, Read, Readdir, Readdirplus, Readlink, Release,
    Rename, Setattr, Symlink, Target, Unlink, Write, Written,
};
use bickford::{Context, Errno, FileHandle, FileSystem, Interrupt, Negotiation, NodeId, Reply};

/// What changed the bytes of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mutation {
    Write(u64, Vec<u8>),
    Resize(u64),
}

impl Mutation {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                let offset = *offset as usize;
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Resize(size) => bytes.resize(*size as usize, 0),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, NodeId>),
    Symlink(Vec<u8>),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) nodes: HashMap<NodeId, Node>,
    pub(crate) lookups: HashMap<NodeId, i64>,
    pub(crate) opens: i64,
    pub(crate) journal: Vec<Mutation>,
    /// Bytes by which files may still grow before there is no space.
    pub(crate) space: Option<usize>,
    /// How many changes still succeed, and how many bytes of the one after are written before it fails.
    pub(crate) fails: Option<(usize, usize)>,
    /// Whether files are made by mknod alone, and whether they can be opened.
    pub(crate) no_create: bool,
    pub(crate) no_open: bool,
    /// How many changes still begin before the caller gets a signal.
    pub(crate) signal: Option<usize>,
    /// How the next read fails.
    pub(crate) read_fails: Option<Errno>,
    /// Flags of open(2) of each write.
    pub(crate) written_with: Vec<i32>,
    /// Whether a write-back cache is asked for.
    pub(crate) write_back: bool,
    /// Of the request that last asked for attributes.
    interrupt: Arc<Interrupt>,
    next: u64,
}

/// A file system in memory; shared, so that the test sees what lies below.
#[derive(Clone)]
pub(crate) struct Lower {
    state: Arc<Mutex<State>>,
    later: Option<Sender<Box<dyn FnOnce() + Send>>>,
}

impl State {
    fn attr(&self, node: NodeId) -> Attr {
        match &self.nodes[&node] {
            Node::File(bytes) => Attr::file(node.0, 0o644, bytes.len() as u64),
            Node::Directory(_) => Attr::directory(node.0, 0o755),
            Node::Symlink(target) => Attr {
                mode: 0o120_777,
                ..Attr::file(node.0, 0, target.len() as u64)
            },
        }
    }

    fn entry(&mut self, node: NodeId) -> Entry {
        *self.lookups.entry(node).or_default() += 1;
        Entry::new(node, self.attr(node), Duration::from_secs(1))
    }

    /// How much of a change is done before it fails, where it is to fail.
    fn failing(&mut self) -> Option<usize> {
        let (left, done) = self.fails.take()?;
        match left.checked_sub(1) {
            None => Some(done),
            Some(left) => {
                self.fails = Some((left, done));
                None
            }
        }
    }

    pub(crate) fn names(&mut self, node: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(names)) => names,
            other => panic!("{other:?} is no directory"),
        }
    }

    pub(crate) fn file(&mut self, node: NodeId) -> &mut Vec<u8> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(bytes)) => bytes,
            other => panic!("{other:?} is no file"),
        }
    }

    fn make(&mut self, parent: NodeId, name: &[u8], node: Node) -> Result<Entry, Errno> {
        assert!(name.len() <= 255, "a name below is too long");
        if self.names(parent).contains_key(name) {
            return Err(Errno::EXIST);
        }
        self.next += 1;
        let id = NodeId(self.next);
        self.nodes.insert(id, node);
        self.names(parent).insert(name.to_vec(), id);
        Ok(self.entry(id))
    }
}

impl Lower {
    pub(crate) fn new() -> Self {
        let mut state = State {
            next: 1,
            ..State::default()
        };
        state
            .nodes
            .insert(NodeId::ROOT, Node::Directory(BTreeMap::new()));
        Self {
            state: Arc::new(Mutex::new(state)),
            later: None,
        }
    }

    /// The same, with answers that come from another thread, in an order of its own.
    pub(crate) fn later(seed: u64) -> Self {
        let (sender, jobs): (_, Receiver<Box<dyn FnOnce() + Send>>) = channel();
        std::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut waiting = Vec::new();
            while let Ok(job) = jobs.recv() {
                waiting.push(job);
                waiting.extend(jobs.try_iter());
                random.shuffle(&mut waiting);
                while let Some(job) = waiting.pop() {
                    job();
                    waiting.extend(jobs.try_iter());
                }
            }
        });
        Self {
            later: Some(sender),
            ..Self::new()
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The only file there is.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let state = self.state();
        let files = state.nodes.values().filter_map(|node| match node {
            Node::File(bytes) => Some(bytes.clone()),
            _ => None,
        });
        let files: Vec<_> = files.collect();
        assert_eq!(files.len(), 1);
        files[0].clone()
    }

    /// Where requests are tasks, none begins once its caller got a signal.
    fn begin_change(&self, cx: &Context<'_>) -> Result<(), Errno> {
        let mut state = self.state();
        if let Some(left) = state.signal {
            state.signal = left.checked_sub(1);
            if left == 0 {
                state.interrupt.raise();
            }
        }
        match cx.interrupt().is_raised() {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }

    fn answer(&self, job: impl FnOnce() + Send + 'static) {
        match &self.later {
            Some(later) => later.send(Box::new(job)).unwrap(),
            None => job(),
        }
    }
}

impl FileSystem for Lower {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        if self.state().write_back {
            negotiation.want(InitFlags::WRITEBACK_CACHE);
        }
        Ok(())
    }

    fn forget(&self, forgets: &[Forget]) {
        let mut state = self.state();
        for forget in forgets {
            *state.lookups.get_mut(&forget.node).unwrap() -= forget.count as i64;
        }
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        let mut state = self.state();
        let found = state.names(op.parent).get(op.name.to_bytes()).copied();
        let entry = found.map(|node| state.entry(node));
        drop(state);
        reply.complete(entry.ok_or(Errno::NOENT));
    }

    fn getattr(&self, cx: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        if cx.interrupt().is_raised() {
            return reply.error(Errno::INTR);
        }
        let mut state = self.state();
        state.interrupt = cx.interrupt();
        let attr = state.attr(op.node);
        drop(state);
        self.answer(move || {
            reply.ok(Attributes {
                attr,
                valid: Duration::from_secs(1),
            });
        });
    }

    fn setattr(&self, cx: &Context<'_>, op: Setattr, reply: Reply<Attributes>) {
        if let Err(errno) = self.begin_change(cx) {
            return reply.error(errno);
        }
        let mut state = self.state();
        if op.size.is_some() && state.failing().is_some() {
            drop(state);
            return reply.error(Errno::IO);
        }
        if let Some(size) = op.size {
            let mutation = Mutation::Resize(size);
            mutation.apply(state.file(op.node));
            state.journal.push(mutation);
        }
        let attr = state.attr(op.node);
        drop(state);
        self.answer(move || {
            reply.ok(Attributes {
                attr,
                valid: Duration::from_secs(1),
            });
        });
    }

    fn mkdir(&self, _: &Context<'_>, op: Mkdir<'_>, reply: Reply<Entry>) {
        let node = Node::Directory(BTreeMap::new());
        let made = self.state().make(op.parent, op.name.to_bytes(), node);
        reply.complete(made);
    }

    fn symlink(&self, _: &Context<'_>, op: Symlink<'_>, reply: Reply<Entry>) {
        assert!(op.target.count_bytes() <= 4095);
        let node = Node::Symlink(op.target.to_bytes().to_vec());
        let made = self.state().make(op.parent, op.name.to_bytes(), node);
        reply.complete(made);
    }

    fn readlink(&self, _: &Context<'_>, op: Readlink, reply: Reply<Target>) {
        let target = match &self.state().nodes[&op.node] {
            Node::Symlink(target) => Ok(Target(target.clone())),
            _ => Err(Errno::INVAL),
        };
        reply.complete(target);
    }

    fn unlink(&self, _: &Context<'_>, op: Unlink<'_>, reply: Reply<()>) {
        let removed = self.state().names(op.parent).remove(op.name.to_bytes());
        reply.complete(removed.map(|_| ()).ok_or(Errno::NOENT));
    }

    fn rename(&self, _: &Context<'_>, op: Rename<'_>, reply: Reply<()>) {
        let mut state = self.state();
        let moved = state.names(op.parent).remove(op.name.to_bytes());
        if let Some(node) = moved {
            let name = op.new_name.to_bytes().to_vec();
            state.names(op.new_parent).insert(name, node);
        }
        drop(state);
        reply.complete(moved.map(|_| ()).ok_or(Errno::NOENT));
    }

    fn link(&self, _: &Context<'_>, op: Link<'_>, reply: Reply<Entry>) {
        let mut state = self.state();
        let name = op.new_name.to_bytes().to_vec();
        state.names(op.new_parent).insert(name, op.node);
        let entry = state.entry(op.node);
        drop(state);
        reply.ok(entry);
    }

    fn mknod(&self, _: &Context<'_>, op: Mknod<'_>, reply: Reply<Entry>) {
        let node = Node::File(Vec::new());
        let made = self.state().make(op.parent, op.name.to_bytes(), node);
        reply.complete(made);
    }

    fn create(&self, _: &Context<'_>, op: Create<'_>, reply: Reply<Created>) {
        assert_eq!(op.flags & 3, 2, "a file is made for reading and writing");
        let mut state = self.state();
        if state.no_create {
            drop(state);
            return reply.error(Errno::NOSYS);
        }
        let made = state.make(op.parent, op.name.to_bytes(), Node::File(Vec::new()));
        state.opens += i64::from(made.is_ok());
        drop(state);
        reply.complete(made.map(|entry| Created {
            entry,
            opened: Opened::new(FileHandle(entry.node.0 + 1000)),
        }));
    }

    fn open(&self, _: &Context<'_>, op: Open, reply: Reply<Opened>) {
        assert_ne!(op.flags & 3, 1, "a file is never opened for writing alone");
        let mut state = self.state();
        if state.no_open {
            drop(state);
            return reply.error(Errno::MFILE);
        }
        state.opens += 1;
        drop(state);
        reply.ok(Opened::new(FileHandle(op.node.0 + 1000)));
    }

    fn release(&self, cx: &Context<'_>, _: Release, reply: Reply<()>) {
        if cx.interrupt().is_raised() {
            return reply.error(Errno::INTR);
        }
        self.state().opens -= 1;
        reply.ok(());
    }

    fn read(&self, _: &Context<'_>, op: Read, reply: Reply<Data>) {
        assert_eq!(op.handle.0, op.node.0 + 1000);
        let mut state = self.state();
        if let Some(errno) = state.read_fails.take() {
            drop(state);
            return reply.error(errno);
        }
        let bytes = state.file(op.node);
        let from = (op.offset as usize).min(bytes.len());
        let to = (from + op.size as usize).min(bytes.len());
        let data = bytes[from..to].to_vec();
        drop(state);
        self.answer(move || reply.ok(data.into()));
    }

    fn write(&self, cx: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        if let Err(errno) = self.begin_change(cx) {
            return reply.error(errno);
        }
        assert_eq!(op.handle.0, op.node.0 + 1000);
        let flags = op.flags as i32;
        assert_eq!(flags & libc::O_APPEND, 0, "bytes go where they belong");
        let mut data = op.data.bytes().unwrap().into_owned();
        let mut state = self.state();
        state.written_with.push(flags);
        if let Some(space) = state.space {
            // What is there already is overwritten without more space; what is left out takes it.
            let (offset, length) = (op.offset as usize, state.file(op.node).len());
            let room = (length + space).saturating_sub(offset);
            if room == 0 {
                drop(state);
                return reply.error(Errno::NOSPC);
            }
            data.truncate(room);
            state.space = Some(space - (offset + data.len()).saturating_sub(length));
        }
        let failing = state.failing();
        if failing == Some(0) {
            drop(state);
            return reply.error(Errno::IO);
        }
        data.truncate(failing.unwrap_or(usize::MAX));
        let length = data.len() as u32;
        let mutation = Mutation::Write(op.offset, data);
        mutation.apply(state.file(op.node));
        state.journal.push(mutation);
        drop(state);
        self.answer(move || reply.ok(Written(length)));
    }

    fn readdir(&self, _: &Context<'_>, op: Readdir, reply: Reply<Directory>) {
        let mut state = self.state();
        let listing = fill(&mut state, op.node, op.offset, op.listing());
        drop(state);
        reply.ok(listing);
    }

    fn readdirplus(&self, _: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        let mut state = self.state();
        let listing = fill(&mut state, op.node, op.offset, op.listing());
        drop(state);
        reply.ok(listing);
    }
}

fn fill(state: &mut State, node: NodeId, offset: u64, mut listing: Directory) -> Directory {
    let dots = [(b".".to_vec(), node), (b"..".to_vec(), node)];
    let names: Vec<_> = dots.into_iter().chain(state.names(node).clone()).collect();
    for (at, (name, node)) in (1..).zip(names).skip(offset as usize) {
        let entry = DirectoryEntry {
            name: &name,
            ino: node.0,
            offset: at,
            mode: state.attr(node).mode,
        };
        if !listing.fits(name.len()) {
            break;
        }
        let with = if listing.is_plus() && at > 2 {
            state.entry(node)
        } else {
            Entry::default()
        };
        assert!(listing.push_entry(&entry, &with));
    }
    listing
}
