//! A path file system in memory beside a simple model of a tree: `cargo +nightly fuzz run paths`.
//!
//! The input is a run of operations on paths. The target plays a kernel that checks what Linux checks before it
//! asks: LOOKUP, READDIR, GETATTR and READ answer what the model has, and once all lookups are forgotten and all files
//! closed the adapter knows the names that it began with.
#![no_main]

mod memory;
mod tree;

use std::collections::{BTreeSet, HashMap};

use bickford::abi::{
    AttrOut, BatchForgetIn, CreateIn, Direntplus, EntryOut, ForgetIn, ForgetOne, GetattrIn, LinkIn,
    MkdirIn, MknodIn, Opcode, OpenIn, OpenOut, ReadIn, ReleaseIn, Rename2In, SetattrIn,
    SetattrValid, WriteIn,
};
use bickford::path::{Adapter, Names, Options};
use bickford::transport::memory::{Kernel, Message};
use libfuzzer_sys::fuzz_target;
use zerocopy::{FromBytes, IntoBytes};

use memory::MemFs;
use tree::{Id, Inode, Model, Path, ROOT_ID};

const ROOT: u64 = 1;
const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;
const ENOTEMPTY: i32 = -39;
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const NAMES: [&str; 4] = ["a", "b", "name", "a longer name"];
const DEPTH_MAX: usize = 3;
const STEPS_MAX: usize = 200;
const OPEN_MAX: usize = 8;
const OFFSET_MAX: usize = 10_000;

/// The rest of the input; zeros when it has ended.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % end
    }

    fn path(&mut self) -> Path {
        let byte = usize::from(self.byte());
        let depth = 1 + byte % DEPTH_MAX;
        let names = (0..depth).map(|level| NAMES[(byte >> (2 * level + 2)) % NAMES.len()]);
        names.collect()
    }
}

/// A node that the kernel knows.
struct Known {
    id: Id,
    lookups: u64,
}

struct Open {
    node: u64,
    handle: u64,
    id: Id,
}

struct World {
    kernel: Kernel,
    names: Names,
    use_ino: bool,
    model: Model,
    known: HashMap<u64, Known>,
    /// The last node that was answered for an inode.
    current: HashMap<Id, u64>,
    open: Vec<Open>,
}

fn named(fixed: &[u8], names: &[&str]) -> Vec<u8> {
    let mut body = fixed.to_vec();
    for name in names {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    body
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let choices = input.byte();
        let options = Options {
            use_ino: choices & 1 != 0,
            handles_only: choices & 2 != 0,
            ..Options::default()
        };
        let adapter = Adapter::new(MemFs::default(), options);
        let names = adapter.names();
        let mut kernel = Kernel::new(adapter);
        assert_eq!(kernel.init().map(|answer| answer.error), Some(0));
        Self {
            kernel,
            names,
            use_ino: options.use_ino,
            model: Model::default(),
            known: HashMap::new(),
            current: HashMap::new(),
            open: Vec::new(),
        }
    }

    fn call(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Message {
        self.kernel.call(opcode, node, body).expect("an answer")
    }

    /// Calls what the model says must succeed.
    fn done(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Message {
        let answer = self.call(opcode, node, body);
        assert_eq!(answer.error, 0, "{opcode:?}");
        answer
    }

    /// The kernel got an entry, which counts as a lookup.
    fn entered(&mut self, entry: &EntryOut, id: Id) -> u64 {
        let inode = &self.model.inodes[&id];
        assert_eq!(entry.attr.mode & 0o170_000, inode.kind());
        assert!(inode.directory || entry.attr.size == inode.bytes.len() as u64);
        assert!(inode.directory || entry.attr.nlink == self.model.links(id));
        let node = entry.nodeid;
        assert!(node > ROOT);
        let before = self.current.insert(id, node);
        if !self.use_ino {
            assert_eq!(entry.attr.ino, node);
        } else if let Some(before) = before.filter(|before| self.known.contains_key(before)) {
            // An inode that has one name left is not taken for one whose name was removed, unless that is open: numbers are
            // used again.
            let is_open = self.open.iter().any(|open| open.node == before);
            assert!(
                before == node || entry.attr.nlink == 1 && !is_open,
                "two nodes of one inode"
            );
        }
        let known = self.known.entry(node).or_insert(Known { id, lookups: 0 });
        assert_eq!(known.id, id, "a node became another file");
        known.lookups += 1;
        node
    }

    /// The directory a path is in, looked up from the root; `None` where there is none.
    fn parent(&mut self, path: &Path) -> Option<u64> {
        match path.split_last() {
            Some((_, parents)) if !parents.is_empty() => {
                let parents = parents.to_vec();
                let node = self.lookup(&parents)?;
                self.model
                    .find(&parents)
                    .is_some_and(|id| self.model.inodes[&id].directory)
                    .then_some(node)
            }
            _ => Some(ROOT),
        }
    }

    fn lookup(&mut self, path: &Path) -> Option<u64> {
        let parent = self.parent(path)?;
        let answer = self.call(Opcode::Lookup, parent, &named(&[], &[path.last()?]));
        match self.model.find(path) {
            None => {
                assert_eq!(answer.error, ENOENT);
                None
            }
            Some(id) => {
                assert_eq!(answer.error, 0);
                Some(self.entered(&answer.read().expect("an entry"), id))
            }
        }
    }

    /// A directory, and a name in it that leads nowhere, which Linux has looked up before.
    fn free(&mut self, path: &Path) -> Option<u64> {
        if self.lookup(path).is_some() {
            return None;
        }
        self.parent(path)
    }

    fn make(&mut self, path: &Path, directory: bool) {
        let Some(parent) = self.free(path) else {
            return;
        };
        let name = path[path.len() - 1];
        let (opcode, body) = match directory {
            true => {
                let input = MkdirIn {
                    mode: 0o755,
                    ..MkdirIn::default()
                };
                (Opcode::Mkdir, named(input.as_bytes(), &[name]))
            }
            false => {
                let input = MknodIn {
                    mode: 0o100_644,
                    ..MknodIn::default()
                };
                (Opcode::Mknod, named(input.as_bytes(), &[name]))
            }
        };
        let answer = self.done(opcode, parent, &body);
        let id = self.model.add(path, Inode::new(directory));
        self.entered(&answer.read().expect("an entry"), id);
    }

    fn create(&mut self, path: &Path) {
        if self.open.len() >= OPEN_MAX {
            return;
        }
        let Some(parent) = self.free(path) else {
            return;
        };
        let input = CreateIn {
            flags: 2,
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let answer = self.done(
            Opcode::Create,
            parent,
            &named(input.as_bytes(), &[path[path.len() - 1]]),
        );
        let id = self.model.add(path, Inode::new(false));
        let node = self.entered(&answer.read().expect("an entry"), id);
        let opened = answer.body.get(size_of::<EntryOut>()..).unwrap_or_default();
        let (opened, _) = OpenOut::read_from_prefix(opened).expect("an open file");
        self.open.push(Open {
            node,
            handle: opened.fh,
            id,
        });
    }

    fn remove(&mut self, path: &Path) {
        let (Some(_), Some(id)) = (self.lookup(path), self.model.find(path)) else {
            return;
        };
        let Some(parent) = self.parent(path) else {
            return;
        };
        let opcode = match self.model.inodes[&id].directory {
            true => Opcode::Rmdir,
            false => Opcode::Unlink,
        };
        let full = self.model.has_children(path);
        let answer = self.call(opcode, parent, &named(&[], &[path[path.len() - 1]]));
        assert_eq!(answer.error, if full { ENOTEMPTY } else { 0 });
        if !full {
            self.model.names.remove(path);
        }
    }

    fn link(&mut self, old: &Path, new: &Path) {
        let (Some(node), Some(id)) = (self.lookup(old), self.model.find(old)) else {
            return;
        };
        if self.model.inodes[&id].directory {
            return;
        }
        let Some(parent) = self.free(new) else { return };
        let body = named(LinkIn { oldnodeid: node }.as_bytes(), &[new[new.len() - 1]]);
        let answer = self.done(Opcode::Link, parent, &body);
        self.model.names.insert(new.clone(), id);
        self.entered(&answer.read().expect("an entry"), id);
    }

    fn rename(&mut self, from: &Path, to: &Path, flags: u32) {
        let (Some(_), Some(id)) = (self.lookup(from), self.model.find(from)) else {
            return;
        };
        let other = self.lookup(to).and_then(|_| self.model.find(to));
        let (Some(old), Some(new)) = (self.parent(from), self.parent(to)) else {
            return;
        };
        // What Linux refuses, or does nothing about, before it asks.
        let kinds = |id: Id| self.model.inodes[&id].directory;
        let refused = match other {
            Some(other) if flags == 0 => other == id || kinds(other) != kinds(id),
            Some(other) => flags == NOREPLACE || other == id,
            None => flags == EXCHANGE,
        };
        if refused || to.starts_with(from) || from.starts_with(to) {
            return;
        }
        let full = flags == 0 && self.model.has_children(to);
        let input = Rename2In {
            newdir: new,
            flags,
            padding: 0,
        };
        let body = named(input.as_bytes(), &[from[from.len() - 1], to[to.len() - 1]]);
        let answer = self.call(Opcode::Rename2, old, &body);
        assert_eq!(answer.error, if full { ENOTEMPTY } else { 0 });
        if !full {
            self.model.rename(from, to, flags == EXCHANGE);
        }
    }

    fn open(&mut self, path: &Path) {
        let (Some(node), Some(id)) = (self.lookup(path), self.model.find(path)) else {
            return;
        };
        if self.model.inodes[&id].directory || self.open.len() >= OPEN_MAX {
            return;
        }
        let input = OpenIn {
            flags: 2,
            ..OpenIn::default()
        };
        let answer = self.done(Opcode::Open, node, input.as_bytes());
        let handle = answer.read::<OpenOut>().expect("an open file").fh;
        self.open.push(Open { node, handle, id });
    }

    fn release(&mut self, at: usize) {
        let Open { node, handle, .. } = self.open.swap_remove(at);
        let input = ReleaseIn {
            fh: handle,
            ..ReleaseIn::default()
        };
        self.done(Opcode::Release, node, input.as_bytes());
    }

    /// Reads, writes, truncates or asks about an open file, whether it has a name still or not.
    fn use_file(&mut self, how: u8, input: &mut Input<'_>) {
        if self.open.is_empty() {
            return;
        }
        let at = usize::from(input.byte()) % self.open.len();
        let Open { node, handle, id } = self.open[at];
        let offset = input.below(OFFSET_MAX);
        let length = input.below(OFFSET_MAX);
        match how {
            0 => self.read(node, handle, id, offset, length),
            1 => {
                // Linux sends no WRITE without bytes.
                let length = length + 1;
                let data = vec![input.byte(); length];
                let input = WriteIn {
                    fh: handle,
                    offset: offset as u64,
                    size: length as u32,
                    ..WriteIn::default()
                };
                self.done(Opcode::Write, node, &[input.as_bytes(), &data].concat());
                self.inode(id).write(offset, &data);
            }
            2 => {
                let valid = SetattrValid::SIZE | SetattrValid::FH;
                let input = SetattrIn {
                    valid: valid.bits(),
                    fh: handle,
                    size: offset as u64,
                    ..SetattrIn::default()
                };
                let answer = self.done(Opcode::Setattr, node, input.as_bytes());
                self.inode(id).bytes.resize(offset, 0);
                assert_eq!(
                    answer.read::<AttrOut>().expect("attributes").attr.size,
                    offset as u64
                );
            }
            3 => {
                // FUSE_GETATTR_FH
                let input = GetattrIn {
                    getattr_flags: 1,
                    fh: handle,
                    ..GetattrIn::default()
                };
                let attr = self.done(Opcode::Getattr, node, input.as_bytes());
                let attr = attr.read::<AttrOut>().expect("attributes").attr;
                assert_eq!(attr.size, self.inode(id).bytes.len() as u64);
                assert_eq!(attr.nlink, self.model.links(id));
            }
            _ => self.release(at),
        }
    }

    fn inode(&mut self, id: Id) -> &mut Inode {
        self.model
            .inodes
            .get_mut(&id)
            .expect("an inode of the model")
    }

    fn read(&mut self, node: u64, handle: u64, id: Id, offset: usize, length: usize) {
        let input = ReadIn {
            fh: handle,
            offset: offset as u64,
            size: length as u32,
            ..ReadIn::default()
        };
        let answer = self.done(Opcode::Read, node, input.as_bytes());
        let rest = self.inode(id).bytes.get(offset..).unwrap_or_default();
        assert!(
            answer.body == rest[..length.min(rest.len())],
            "{length} bytes at {offset}"
        );
    }

    /// Lists a directory to its end.
    fn list(&mut self, path: &Path, plus: bool, size: u32) {
        let (node, id) = match path.as_slice() {
            [] => (ROOT, ROOT_ID),
            _ => match (self.lookup(path), self.model.find(path)) {
                (Some(node), Some(id)) => (node, id),
                _ => return,
            },
        };
        if !self.model.inodes[&id].directory {
            return;
        }
        let opened = self.call(Opcode::Opendir, node, OpenIn::default().as_bytes());
        assert!([0, ENOSYS].contains(&opened.error), "{}", opened.error);
        let handle = opened.read::<OpenOut>().map_or(0, |opened| opened.fh);
        let (mut offset, mut listed) = (0, BTreeSet::new());
        while let Some(last) =
            self.list_part((node, handle), path, (plus, size), offset, &mut listed)
        {
            offset = last;
        }
        let names = self.model.children(path).into_iter().map(str::to_owned);
        let names: BTreeSet<_> = names.chain([".".to_owned(), "..".to_owned()]).collect();
        assert_eq!(listed, names);
        if opened.error == 0 {
            let input = ReleaseIn {
                fh: handle,
                ..ReleaseIn::default()
            };
            self.done(Opcode::Releasedir, node, input.as_bytes());
        }
    }

    /// One READDIR or READDIRPLUS; the offset of the last entry that it answered.
    fn list_part(
        &mut self,
        (node, handle): (u64, u64),
        path: &Path,
        (plus, size): (bool, u32),
        offset: u64,
        listed: &mut BTreeSet<String>,
    ) -> Option<u64> {
        let input = ReadIn {
            fh: handle,
            offset,
            size,
            ..ReadIn::default()
        };
        let opcode = if plus {
            Opcode::Readdirplus
        } else {
            Opcode::Readdir
        };
        let answer = self.done(opcode, node, input.as_bytes());
        assert!(answer.body.len() <= size as usize);
        let (mut rest, mut last) = (answer.body.as_slice(), None);
        while !rest.is_empty() {
            // Without the entry, READDIR answers what READDIRPLUS does.
            let padding = if plus { 0 } else { size_of::<EntryOut>() };
            let whole = [&vec![0; padding], rest].concat();
            let (entry, tail) = Direntplus::read_from_prefix(&whole).expect("an entry");
            let name = &tail[..entry.dirent.namelen as usize];
            let name = std::str::from_utf8(name)
                .expect("a name of ours")
                .to_owned();
            if entry.entry_out.nodeid != 0 && ![".", ".."].contains(&name.as_str()) {
                let id = self.model.child(path, &name).expect("a name of the model");
                self.entered(&entry.entry_out, id);
            }
            assert!(listed.insert(name), "a name came twice");
            last = Some(entry.dirent.off);
            let length = size_of::<Direntplus>() - padding + entry.dirent.namelen as usize;
            rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
        }
        last
    }

    /// Forgets lookups of a node that no file is open of, as Linux does.
    fn forget(&mut self, input: &mut Input<'_>) {
        let mut nodes: Vec<u64> = self.known.keys().copied().collect();
        nodes.retain(|node| self.open.iter().all(|open| open.node != *node));
        nodes.sort_unstable();
        if nodes.is_empty() {
            return;
        }
        let node = nodes[usize::from(input.byte()) % nodes.len()];
        let count = 1 + u64::from(input.byte()) % self.known[&node].lookups;
        self.forget_of(node, count, input.byte() < 128);
    }

    fn forget_of(&mut self, node: u64, count: u64, batch: bool) {
        if batch {
            let head = BatchForgetIn { count: 1, dummy: 0 };
            let one = ForgetOne {
                nodeid: node,
                nlookup: count,
            };
            let body = [head.as_bytes(), one.as_bytes()].concat();
            self.kernel.send(Opcode::BatchForget, 0, &body);
        } else {
            let input = ForgetIn { nlookup: count };
            self.kernel.send(Opcode::Forget, node, input.as_bytes());
        }
        let known = self.known.get_mut(&node).expect("a known node");
        known.lookups -= count;
        if known.lookups == 0 {
            self.known.remove(&node);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 18 {
            0 => drop(self.lookup(&input.path())),
            1 | 2 => self.make(&input.path(), true),
            3 => self.make(&input.path(), false),
            4 => self.create(&input.path()),
            5 => self.remove(&input.path()),
            6 => self.link(&input.path(), &input.path()),
            7 | 8 => {
                let (from, to) = (input.path(), input.path());
                self.rename(
                    &from,
                    &to,
                    [0, NOREPLACE, EXCHANGE][usize::from(input.byte()) % 3],
                );
            }
            9 => self.open(&input.path()),
            how @ 10..15 => self.use_file(how - 10, input),
            15 | 16 => {
                let mut path = input.path();
                let how = input.byte();
                path.truncate(usize::from(how >> 2) % (DEPTH_MAX + 1));
                self.list(&path, how & 1 != 0, if how & 2 == 0 { 512 } else { 4096 });
            }
            _ => self.forget(input),
        }
    }

    /// Everything is read once more, closed and forgotten.
    fn end(mut self, at_first: bickford::path::Sizes) {
        while let Some(&Open { node, handle, id }) = self.open.last() {
            self.read(node, handle, id, 0, 2 * OFFSET_MAX);
            self.release(self.open.len() - 1);
        }
        let known: Vec<_> = self
            .known
            .iter()
            .map(|(node, known)| (*node, known.lookups))
            .collect();
        for (node, lookups) in known {
            self.forget_of(node, lookups, node < 5);
        }
        assert_eq!(self.names.sizes(), at_first);
        assert!(self.kernel.server().in_flight().list().is_empty());
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let mut world = World::new(&mut input);
    let at_first = world.names.sizes();
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end(at_first);
});
