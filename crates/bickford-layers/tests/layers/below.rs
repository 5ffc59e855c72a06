//! The file system below: a tree of names without contents.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::abi::{
    CreateIn, ForgetIn, MkdirIn, Opcode, OpenIn, ReadIn, Rename2In, SetattrIn, WriteIn,
};
use bickford::ops::{
    Attr, Attributes, Create, Created, Data, Directory, DirectoryEntry, Entry, Getattr, Lookup,
    Mkdir, Open, Opened, Read, Readdirplus, Rename, Setattr, Unlink, Write, Written,
};
use bickford::transport::memory::{Kernel, Message};
use bickford::{Context, Errno, FileHandle, FileSystem, NodeId, Reply};
use bickford_layers::{LayerSpec, Summary, build};
use zerocopy::IntoBytes;

/// A node whose reads are answered by a range of a file of five bytes.
pub(crate) const LOWER_FILE: NodeId = NodeId(1000);

#[derive(Default)]
pub(crate) struct Below {
    nodes: Mutex<HashMap<(NodeId, Vec<u8>), NodeId>>,
}

fn entry(node: NodeId) -> Entry {
    Entry::new(node, Attr::file(node.0, 0o644, 5), Duration::from_secs(1))
}

impl Below {
    fn make(&self, parent: NodeId, name: &[u8]) -> NodeId {
        let mut nodes = self.nodes.lock().unwrap();
        let next = NodeId(nodes.len() as u64 + 2);
        *nodes.entry((parent, name.to_vec())).or_insert(next)
    }
}

impl FileSystem for Below {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        let key = (op.parent, op.name.to_bytes().to_vec());
        let found = self.nodes.lock().unwrap().get(&key).copied();
        reply.complete(found.map(entry).ok_or(Errno::NOENT));
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: entry(op.node).attr,
            valid: Duration::ZERO,
        });
    }

    fn setattr(&self, _: &Context<'_>, op: Setattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: entry(op.node).attr,
            valid: Duration::ZERO,
        });
    }

    fn mkdir(&self, _: &Context<'_>, op: Mkdir<'_>, reply: Reply<Entry>) {
        let made = entry(self.make(op.parent, op.name.to_bytes()));
        reply.ok(Entry {
            attr: Attr::directory(made.node.0, 0o755),
            ..made
        });
    }

    fn create(&self, _: &Context<'_>, op: Create<'_>, reply: Reply<Created>) {
        reply.ok(Created {
            entry: entry(self.make(op.parent, op.name.to_bytes())),
            opened: Opened::new(FileHandle(9)),
        });
    }

    fn unlink(&self, _: &Context<'_>, _: Unlink<'_>, reply: Reply<()>) {
        reply.ok(());
    }

    fn rename(&self, _: &Context<'_>, _: Rename<'_>, reply: Reply<()>) {
        reply.ok(());
    }

    fn open(&self, _: &Context<'_>, _: Open, reply: Reply<Opened>) {
        reply.ok(Opened::new(FileHandle(9)));
    }

    fn read(&self, _: &Context<'_>, op: Read, reply: Reply<Data>) {
        if op.node == LOWER_FILE {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"hello").unwrap();
            return reply.ok(Data::range(Arc::new(file), op.offset, op.size));
        }
        reply.ok(vec![b'h'; op.size as usize].into());
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        reply.ok(Written(op.data.len() as u32));
    }

    fn readdirplus(&self, _: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        let mut listing = op.listing();
        let name = DirectoryEntry {
            name: b"listed",
            ino: 5,
            offset: 1,
            mode: 0o100_000,
        };
        let node = self.make(op.node, b"listed");
        assert!(listing.push_entry(&name, &entry(node)));
        reply.ok(listing);
    }
}

/// The specs over [`Below`], with INIT done.
pub(crate) struct Fixture {
    pub(crate) kernel: Kernel,
    pub(crate) summary: Summary,
}

pub(crate) fn specs(texts: &[&str]) -> Vec<LayerSpec> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn fixture(texts: &[&str]) -> Fixture {
    let (filesystem, summary) = build(&specs(texts), Box::new(Below::default())).unwrap();
    let mut kernel = Kernel::new(filesystem);
    assert_eq!(kernel.init().unwrap().error, 0);
    Fixture { kernel, summary }
}

impl Fixture {
    pub(crate) fn call(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Message {
        self.kernel.call(opcode, node, body).unwrap()
    }

    /// The errno of an operation; zero for success.
    pub(crate) fn errno(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> i32 {
        -self.call(opcode, node, body).error
    }

    pub(crate) fn node(&mut self, opcode: Opcode, parent: u64, body: &[u8]) -> u64 {
        let answer = self.call(opcode, parent, body);
        assert_eq!(answer.error, 0);
        answer.read::<bickford::abi::EntryOut>().unwrap().nodeid
    }
}

pub(crate) fn mkdir(name: &[u8]) -> Vec<u8> {
    [MkdirIn::default().as_bytes(), name, b"\0"].concat()
}

pub(crate) fn create(name: &[u8]) -> Vec<u8> {
    [CreateIn::default().as_bytes(), name, b"\0"].concat()
}

pub(crate) fn rename(old: &[u8], new_parent: u64, new: &[u8], flags: u32) -> Vec<u8> {
    let input = Rename2In {
        newdir: new_parent,
        flags,
        ..Rename2In::default()
    };
    [input.as_bytes(), old, b"\0", new, b"\0"].concat()
}

pub(crate) fn open(flags: u32) -> Vec<u8> {
    let input = OpenIn {
        flags,
        ..OpenIn::default()
    };
    input.as_bytes().to_vec()
}

pub(crate) fn read(size: u32) -> Vec<u8> {
    let input = ReadIn {
        fh: 9,
        size,
        ..ReadIn::default()
    };
    input.as_bytes().to_vec()
}

pub(crate) fn write(data: &[u8]) -> Vec<u8> {
    let input = WriteIn {
        fh: 9,
        size: data.len() as u32,
        ..WriteIn::default()
    };
    [input.as_bytes(), data].concat()
}

pub(crate) fn setattr() -> Vec<u8> {
    SetattrIn::default().as_bytes().to_vec()
}

pub(crate) fn forget(nlookup: u64) -> Vec<u8> {
    ForgetIn { nlookup }.as_bytes().to_vec()
}
