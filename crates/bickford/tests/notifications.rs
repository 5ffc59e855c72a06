//! Notifications: what goes out, what does not, and what the kernel answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::ffi::CString;
use std::fs;
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

use bickford::abi::NotifyCode;
use bickford::notify::{NAME_MAX, Notifier, NotifyError};
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup};
use bickford::transport::memory::Kernel;
use bickford::{Context, Errno, FileSystem, NodeId, Reply};
use support::{Fixture, over_each_transport};

const FILE: NodeId = NodeId(2);
const UNKNOWN: NodeId = NodeId(99);
const MINUTE: Duration = Duration::from_secs(60);

/// One file, `file`.
struct Subject;

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1, 0o755),
        node => Attr::file(node.0, 0o644, 4096),
    }
}

impl FileSystem for Subject {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        match op.name.to_bytes() {
            b"file" => reply.ok(Entry::new(FILE, attr(FILE), MINUTE)),
            _ => reply.error(Errno::NOENT),
        }
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: attr(op.node),
            valid: MINUTE,
        });
    }
}

#[test]
fn names_that_no_file_has_are_refused_at_once() {
    let mut kernel = Kernel::new(Subject);
    kernel.init().unwrap();
    let notifier = kernel.server().notifier();
    let name = |length| CString::new(vec![b'x'; length]).unwrap();
    for wrong in [name(0), c"a/b".to_owned(), name(NAME_MAX + 1)] {
        let refused = Err(NotifyError::Name);
        let never = |_: io::Result<()>| panic!("it was refused");
        assert_eq!(notifier.invalidate_entry(FILE, &wrong), refused);
        assert_eq!(notifier.expire_entry(FILE, &wrong), refused);
        assert_eq!(notifier.delete(FILE, FILE, &wrong), refused);
        assert_eq!(notifier.invalidate_entry_then(FILE, &wrong, never), refused);
        assert_eq!(notifier.expire_entry_then(FILE, &wrong, never), refused);
        assert_eq!(notifier.delete_then(FILE, FILE, &wrong, never), refused);
    }
    notifier.invalidate_entry(FILE, &name(NAME_MAX)).unwrap();
    notifier.flush().unwrap();
    let sent = kernel.drain();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].body.len(), 16 + NAME_MAX + 1);
}

#[test]
fn many_nodes_are_pruned_in_several_messages() {
    let mut kernel = Kernel::new(Subject);
    kernel.init().unwrap();
    let notifier = kernel.server().notifier();
    let nodes: Vec<_> = (1..=10_000).map(NodeId).collect();
    notifier.prune(&nodes).unwrap();
    notifier.prune(&[]).unwrap();
    notifier.flush().unwrap();
    let sent = kernel.drain();
    let numbers = |bytes: &[u8]| -> Vec<u64> {
        let numbers = bytes.chunks(8);
        numbers
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
            .collect()
    };
    let mut told = Vec::new();
    for message in &sent {
        assert_eq!(message.error, NotifyCode::Prune as i32);
        let (fixed, rest) = message.body.split_at(16);
        let count = u32::from_ne_bytes(fixed[..4].try_into().unwrap()) as usize;
        assert_eq!(rest.len(), 8 * count);
        told.extend(numbers(rest).into_iter().map(NodeId));
    }
    assert!(sent.len() > 1 && told == nodes, "{} messages", sent.len());
}

/// Queues one notification and waits for the kernel's answer.
fn answer(
    queue: impl FnOnce(Box<dyn FnOnce(io::Result<()>) + Send>) -> Result<(), NotifyError>,
) -> Option<i32> {
    let (to, from) = channel();
    queue(Box::new(move |answer| to.send(answer).unwrap())).unwrap();
    let answer = from.recv_timeout(support::DEADLINE).unwrap();
    answer.err().map(|error| error.raw_os_error().unwrap())
}

#[test]
fn the_kernels_answer_reaches_whoever_asks_for_it() {
    over_each_transport(|config| {
        let fixture = Fixture::new(Subject, config);
        let notifier: &Notifier = fixture.session().notifier();
        let known = || assert_eq!(fs::metadata(fixture.path("file")).unwrap().len(), 4096);
        let (root, nobody) = (NodeId::ROOT, Some(libc::ENOENT));
        known();
        assert_eq!(
            answer(|done| notifier.store_then(FILE, 0, b"data", done)),
            None
        );
        let stored = answer(|done| notifier.store_then(UNKNOWN, 0, b"data", done));
        assert_eq!(stored, nobody);
        let (name, other) = (c"file", c"other");
        for parent in [root, UNKNOWN] {
            let expected = |known: bool| if known { None } else { nobody };
            for name in [other, name] {
                let there = expected(parent == root && name == c"file");
                let answers = [
                    answer(|done| notifier.expire_entry_then(parent, name, done)),
                    answer(|done| notifier.invalidate_entry_then(parent, name, done)),
                ];
                assert_eq!(answers, [there; 2], "{parent:?} {name:?}");
                known();
                let deleted = answer(|done| notifier.delete_then(parent, FILE, name, done));
                assert_eq!(deleted, there, "{parent:?} {name:?}");
                known();
            }
        }
        fixture.finish();
    });
}
