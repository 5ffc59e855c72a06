//! Attributes that cross a change, of a file system over inodes, which does nothing for that.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bickford::abi::Opcode;
use bickford::ops::{
    Attr, Attributes, Directory, DirectoryEntry, Entry, Getattr, Lookup, Mkdir, Readdirplus,
    Rename, Unlink,
};
use bickford::transport::memory::Kernel;
use bickford::{Context, FileSystem, NodeId, Reply};

use crate::client::{Client, ROOT, session};
use crate::crossing::{NONE, refused};

const HOUR: Duration = Duration::from_secs(3600);
const LINKED: NodeId = NodeId(2);
const ALONE: NodeId = NodeId(3);
const DIRECTORY: NodeId = NodeId(4);

/// Says that a method was called, which goes on when it may.
struct Gate {
    entered: Sender<()>,
    leave: Receiver<()>,
}

/// A file with two names, one with one, and a directory.
#[derive(Default)]
struct Inodes(Mutex<HashMap<&'static str, Gate>>);

impl Inodes {
    fn stop(&self, method: &'static str) -> (Receiver<()>, Sender<()>) {
        let ((entered, is_in), (go_on, leave)) = (channel(), channel());
        self.0
            .lock()
            .unwrap()
            .insert(method, Gate { entered, leave });
        (is_in, go_on)
    }

    fn enter(&self, method: &str) {
        let gate = self.0.lock().unwrap().remove(method);
        if let Some(gate) = gate {
            gate.entered.send(()).unwrap();
            gate.leave.recv().unwrap();
        }
    }
}

fn attr(node: NodeId) -> Attr {
    let links = if node == LINKED { 2 } else { 1 };
    match node {
        DIRECTORY | NodeId::ROOT => Attr::directory(node.0, 0o755),
        _ => Attr {
            links,
            ..Attr::file(node.0, 0o644, 0)
        },
    }
}

fn entry(node: NodeId) -> Entry {
    Entry::new(node, attr(node), HOUR)
}

impl FileSystem for Inodes {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        self.enter("lookup");
        reply.ok(entry(match op.name.to_bytes() {
            b"linked" => LINKED,
            b"alone" => ALONE,
            _ => DIRECTORY,
        }));
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        self.enter("getattr");
        reply.ok(Attributes {
            attr: attr(op.node),
            valid: HOUR,
        });
    }

    fn readdirplus(&self, _: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        let mut listing = op.listing();
        for (offset, node) in (1..).zip([LINKED, ALONE, DIRECTORY]) {
            let name = node.0.to_string();
            let name = DirectoryEntry {
                name: name.as_bytes(),
                ino: node.0,
                offset,
                mode: attr(node).mode,
            };
            assert!(listing.push_entry(&name, &entry(node)));
        }
        reply.ok(listing);
    }

    fn mkdir(&self, _: &Context<'_>, _: Mkdir<'_>, reply: Reply<Entry>) {
        reply.ok(entry(DIRECTORY));
    }

    fn unlink(&self, _: &Context<'_>, _: Unlink<'_>, reply: Reply<()>) {
        self.enter("unlink");
        reply.ok(());
    }

    fn rename(&self, cx: &Context<'_>, _: Rename<'_>, reply: Reply<()>) {
        cx.has_changed(ALONE);
        reply.ok(());
    }
}

struct Fixture {
    kernel: Kernel,
    client: Client,
    inodes: Arc<Inodes>,
}

fn fixture() -> Fixture {
    let inodes = Arc::<Inodes>::default();
    let kernel = session(Arc::clone(&inodes));
    Fixture {
        client: Client::new(&kernel, 1),
        kernel,
        inodes,
    }
}

impl Fixture {
    fn refused(&self) -> Vec<u64> {
        refused(&self.kernel)
    }

    fn is_kept(&self, node: NodeId) -> bool {
        self.client.getattr(node.0).unwrap().attr_valid > 0
    }
}

#[test]
fn what_has_several_names_is_refused_while_one_goes_however_it_is_asked_for() {
    let fixture = fixture();
    let client = &fixture.client;
    client.lookup(ROOT, "linked").unwrap();
    assert!(fixture.is_kept(LINKED));
    assert_eq!(fixture.refused(), NONE);
    let (is_in, go_on) = fixture.inodes.stop("unlink");
    thread::scope(|scope| {
        let unlinks = scope.spawn(|| client.unlink(ROOT, "link"));
        is_in.recv().unwrap();
        assert_eq!(client.lookup(ROOT, "linked").unwrap().attr_valid, 0);
        assert_eq!(fixture.refused(), [LINKED.0]);
        client
            .read_at(Opcode::Readdirplus, ROOT, 0, 0, 4096)
            .unwrap();
        assert_eq!(fixture.refused(), [LINKED.0]);
        assert!(!fixture.is_kept(LINKED) && fixture.is_kept(ALONE));
        assert!(fixture.is_kept(DIRECTORY));
        assert_eq!(fixture.refused(), [LINKED.0]);
        go_on.send(()).unwrap();
        unlinks.join().unwrap().unwrap();
    });
}

#[test]
fn what_a_rename_moves_is_told_and_directories_are_known() {
    let fixture = fixture();
    let client = &fixture.client;
    for node in [ROOT, ALONE.0] {
        client.getattr(node).unwrap();
    }
    client
        .rename((ROOT, "alone"), (DIRECTORY.0, "renamed"), 0)
        .unwrap();
    // Nobody asked for the other directory.
    assert_eq!(fixture.refused(), [ROOT, ALONE.0]);
}

#[test]
fn what_is_found_while_it_changes_is_not_kept() {
    let fixture = fixture();
    let client = &fixture.client;
    let (is_in, go_on) = fixture.inodes.stop("lookup");
    thread::scope(|scope| {
        let looks = scope.spawn(|| client.lookup(ROOT, "directory").unwrap().attr_valid);
        is_in.recv().unwrap();
        client.mkdir(DIRECTORY.0, "inner").unwrap();
        assert_eq!(fixture.refused(), NONE, "it was not found then");
        go_on.send(()).unwrap();
        assert_eq!(looks.join().unwrap(), 0);
    });
    assert_eq!(fixture.refused(), NONE, "the kernel asks again");
}

#[test]
fn an_answer_that_takes_long_looks_for_what_changed_meanwhile() {
    let fixture = fixture();
    let client = &fixture.client;
    let (is_in, go_on) = fixture.inodes.stop("getattr");
    thread::scope(|scope| {
        let asks = scope.spawn(|| client.getattr(DIRECTORY.0).unwrap().attr_valid);
        is_in.recv().unwrap();
        // So long that it is not thought of any more.
        thread::sleep(Duration::from_millis(1_100));
        client.mkdir(DIRECTORY.0, "inner").unwrap();
        assert_eq!(fixture.refused(), NONE);
        go_on.send(()).unwrap();
        assert_eq!(asks.join().unwrap(), 0);
    });
    assert_eq!(fixture.refused(), [DIRECTORY.0]);
}
