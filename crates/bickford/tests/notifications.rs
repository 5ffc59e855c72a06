//! Notifications: what goes out, what does not, and what the kernel answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::ffi::CString;
use std::fs;
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

use bickford::abi::{ForgetIn, NotifyCode, Opcode, WriteFlags, WriteIn};
use bickford::notify::{NAME_MAX, Notifier, NotifyError, QUEUE_BYTES_MAX};
use bickford::ops::{Attr, Attributes, Entry, Getattr, Lookup, Write, Written};
use bickford::transport::memory::Kernel;
use bickford::{Context, Errno, FileSystem, NodeId, Reply};
use zerocopy::IntoBytes;

use support::{Fixture, over_each_transport, wait_until};

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

    /// There is room below the offset 10.
    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        match 10_u64.saturating_sub(op.offset) {
            0 => reply.error(Errno::DQUOT),
            room => reply.ok(Written(op.data.len().min(room as usize) as u32)),
        }
    }
}

/// A WRITE of 8 bytes.
fn write(offset: u64, flags: WriteFlags) -> Vec<u8> {
    let input = WriteIn {
        offset,
        size: 8,
        write_flags: flags.bits(),
        ..WriteIn::default()
    };
    [input.as_bytes(), b"contents"].concat()
}

#[test]
fn what_is_written_back_in_part_has_failed() {
    let mut kernel = Kernel::new(Subject);
    kernel.init().unwrap();
    let mut error = |offset, flags| {
        let answer = kernel.call(Opcode::Write, FILE.0, &write(offset, flags));
        answer.unwrap().error
    };
    let (none, cached) = (WriteFlags::empty(), WriteFlags::CACHE);
    assert_eq!((error(2, none), error(2, cached)), (0, 0));
    assert_eq!(
        (error(4, none), error(4, cached)),
        (0, -Errno::NOSPC.raw_os_error())
    );
    let refused = -Errno::DQUOT.raw_os_error();
    assert_eq!((error(10, none), error(10, cached)), (refused, refused));
}

/// Nodes that the kernel is asked to forget within a second.
fn pruned(kernel: &Kernel) -> Vec<u64> {
    std::thread::sleep(Duration::from_secs(1));
    let sent = kernel.drain();
    let nodes = sent.iter().flat_map(|message| {
        assert_eq!(message.error, NotifyCode::Prune as i32);
        let (_, nodes) = message.body.split_at(16);
        nodes.chunks(8).collect::<Vec<_>>()
    });
    let mut nodes: Vec<_> = nodes
        .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[test]
fn a_file_that_was_not_written_back_is_to_be_forgotten_until_it_is() {
    let mut kernel = Kernel::new(Subject);
    kernel.init().unwrap();
    let mut fail = |node, flags| {
        let answer = kernel.call(Opcode::Write, node, &write(10, flags));
        assert_ne!(answer.unwrap().error, 0);
    };
    fail(5, WriteFlags::CACHE);
    fail(6, WriteFlags::CACHE);
    fail(7, WriteFlags::empty());
    // What was asked for just before, or comes late on a busy machine, is of the second before.
    let are_asked_for = |kernel: &Kernel, nodes: &[u64]| {
        wait_until("the kernel is asked to forget just these", || {
            pruned(kernel) == nodes
        });
    };
    are_asked_for(&kernel, &[5, 6]);
    // While it is open, the kernel does not.
    are_asked_for(&kernel, &[5, 6]);
    let forget = ForgetIn { nlookup: 1 };
    kernel.send(Opcode::Forget, 5, forget.as_bytes());
    are_asked_for(&kernel, &[6]);
    kernel.send(Opcode::Forget, 6, forget.as_bytes());
    are_asked_for(&kernel, &[]);
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
fn no_more_data_wait_than_their_bound() {
    let mut kernel = Kernel::new(Subject);
    kernel.init().unwrap();
    let notifier = kernel.server().notifier();
    let (started, starts) = channel();
    let (go_on, waits) = channel::<()>();
    let block = move |_: io::Result<()>| {
        started.send(()).unwrap();
        waits.recv().unwrap();
    };
    notifier.store_then(FILE, 0, b"first", block).unwrap();
    starts.recv().unwrap();

    let data = vec![1; QUEUE_BYTES_MAX / 4];
    let taken = (0..8).take_while(|_| notifier.store(FILE, 0, &data).is_ok());
    assert_eq!(taken.count(), 3, "each has a header, too");
    assert_eq!(notifier.store(FILE, 0, &data), Err(NotifyError::Full));
    notifier.invalidate_inode(FILE, 0, 0).unwrap();

    go_on.send(()).unwrap();
    notifier.flush().unwrap();
    // What is alone may be larger.
    notifier.store(FILE, 0, &data.repeat(5)).unwrap();
    notifier.flush().unwrap();
    assert_eq!(kernel.drain().len(), 6);
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
