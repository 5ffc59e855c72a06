//! Lookup counts and handles below stay right whatever a post-call makes of a success.

use std::time::Duration;

use bickford::abi::{BatchForgetIn, ForgetOne, Opcode};
use bickford::layer::{
    About, Call, Done, Interest, Layer, Layered, OperationSet, PostCalls, PreCalls, Step, Switches,
};
use bickford::ops::{Attr, Directory, DirectoryEntry, Entry, Lookup, Readdirplus};
use bickford::transport::memory::Kernel;
use bickford::{Errno, NodeId};
use zerocopy::IntoBytes;

use super::subject::*;

fn fixture(layer: impl Layer) -> (Kernel, Journal) {
    let journal = Journal::default();
    let subject = Subject {
        journal: journal.clone(),
    };
    let mut kernel = Kernel::new(Layered::with_switches(layer, subject, &Switches::default()));
    assert_eq!(kernel.init().unwrap().error, 0);
    journal.take();
    (kernel, journal)
}

fn failing(panics: bool) -> Closures {
    Closures {
        interest: Interest {
            post: OperationSet::ALL,
            ..Interest::default()
        },
        after: Box::new(move |_, _, _| {
            assert!(!panics, "a panic of the layer");
            Some(Errno::NOSPC)
        }),
        ..Closures::default()
    }
}

#[test]
fn a_success_that_becomes_an_error_is_given_back() {
    for (panics, errno) in [(false, libc::ENOSPC), (true, libc::EIO)] {
        let (mut kernel, journal) = fixture(failing(panics));
        let mut call = |opcode, node, body: &[u8]| {
            let unique = kernel.send(opcode, node, body);
            assert_eq!(kernel.answer(unique).unwrap().error, -errno);
            let lines = journal.take();
            let tail = lines.get(1..).unwrap_or_default().to_vec();
            (unique, tail)
        };
        assert_eq!(call(Opcode::Lookup, 1, b"name\0").1, ["forget 7 by 1"]);
        assert!(call(Opcode::Lookup, 1, b"missing\0").1.is_empty());
        assert_eq!(call(Opcode::Mkdir, 1, &mkdir_body()).1, ["forget 7 by 1"]);
        let (unique, lines) = call(Opcode::Create, 1, &create_body());
        let release = format!("release 7 9 2 for {unique}");
        assert_eq!(lines, [release, "forget 7 by 1".to_owned()]);
        let (unique, lines) = call(Opcode::Open, 7, &open_body());
        assert_eq!(lines, [format!("release 7 9 1 for {unique}")]);
        let (_, lines) = call(Opcode::Opendir, 3, &open_body());
        assert_eq!(lines, ["releasedir 3 9"]);
        let (_, lines) = call(Opcode::Readdirplus, 3, &read_body());
        assert_eq!(lines, ["forget 7 by 1"], "one of two in the first line");
    }
}

#[test]
fn a_success_that_stays_is_not_given_back() {
    let mut layer = failing(false);
    layer.after = Box::new(|_, _, _| None);
    let (mut kernel, journal) = fixture(layer);
    for (opcode, body) in [
        (Opcode::Lookup, b"name\0".to_vec()),
        (Opcode::Create, create_body()),
        (Opcode::Readdirplus, read_body()),
        (Opcode::Opendir, open_body()),
    ] {
        assert_eq!(kernel.call(opcode, 1, &body).unwrap().error, 0);
    }
    let lines = journal.take();
    let given_back = |line: &&String| line.starts_with("forget") || line.starts_with("release");
    assert_eq!(lines.iter().find(given_back), None);
}

#[test]
fn what_is_open_below_is_closed_though_the_layer_denies_it() {
    for (panics, errno) in [(false, libc::EACCES), (true, libc::EIO)] {
        let denying = Closures {
            interest: Interest {
                pre: OperationSet::ENDS,
                ..Interest::default()
            },
            before: Box::new(move |_, _| {
                assert!(!panics, "a panic of the layer");
                Some(Errno::ACCESS)
            }),
            ..Closures::default()
        };
        let (mut kernel, journal) = fixture(denying);
        let mut close = |opcode| {
            let answer = kernel.call(opcode, 7, &release_body()).unwrap();
            (answer.error, journal.take().len())
        };
        assert_eq!(close(Opcode::Release), (-errno, 1));
        assert_eq!(close(Opcode::Releasedir), (-errno, 1));
    }
}

/// Leaves a name out of listings.
struct Hiding;

impl PreCalls for Hiding {}

impl PostCalls for Hiding {
    fn readdirplus(&self, _: &Done, op: &Readdirplus, result: &mut Result<Directory, Errno>) {
        let Ok(listing) = result else { return };
        let mut shown = op.listing();
        for (name, entry) in listing.iter().filter(|(name, _)| name.name != b"two") {
            let name = DirectoryEntry { ..name };
            assert!(shown.push_entry(&name, &entry.unwrap_or_default()));
        }
        *listing = shown;
    }
}

impl Layer for Hiding {
    fn name(&self) -> &str {
        "hiding"
    }

    fn interest(&self) -> Interest {
        Interest {
            post: OperationSet::ALL,
            ..Interest::default()
        }
    }
}

/// Answers LOOKUP with a node of its own and denies its RELEASE.
struct Own;

const OWN: NodeId = NodeId::FIRST_OF_LAYERS;

impl PreCalls for Own {
    fn every(&self, _: &Call<'_>, about: &About<'_>) -> Option<Errno> {
        (about.node == OWN).then_some(Errno::ACCESS)
    }

    fn lookup<'a>(&self, _: &Call<'a>, _: &mut Lookup<'a>) -> Step<Entry> {
        let attr = Attr::file(OWN.0, 0o444, 0);
        Step::Answer(Ok(Entry::new(OWN, attr, Duration::ZERO)))
    }
}

impl PostCalls for Own {}

impl Layer for Own {
    fn name(&self) -> &str {
        "own"
    }

    fn interest(&self) -> Interest {
        Interest {
            pre: OperationSet::ALL,
            forget: true,
            ..Interest::default()
        }
    }

    fn owns(&self, node: NodeId) -> bool {
        node == OWN
    }
}

fn forget_body(nodes: &[(u64, u64)]) -> Vec<u8> {
    let head = BatchForgetIn {
        count: nodes.len() as u32,
        dummy: 0,
    };
    let mut body = head.as_bytes().to_vec();
    for &(nodeid, nlookup) in nodes {
        body.extend(ForgetOne { nodeid, nlookup }.as_bytes());
    }
    body
}

#[test]
fn a_node_of_the_layer_is_nothing_to_the_file_system_below() {
    let (mut kernel, journal) = fixture(Own);
    assert_eq!(kernel.call(Opcode::Lookup, 1, b"own\0").unwrap().error, 0);
    let released = kernel.call(Opcode::Release, OWN.0, &release_body());
    assert_eq!(released.unwrap().error, -libc::EACCES);
    kernel.send(Opcode::BatchForget, 0, &forget_body(&[(OWN.0, 1)]));
    kernel.send(Opcode::BatchForget, 0, &forget_body(&[(OWN.0, 1), (7, 2)]));
    assert_eq!(journal.take(), ["forget 7 by 2"]);
}

#[test]
fn a_name_left_out_of_a_listing_is_given_back() {
    let (mut kernel, journal) = fixture(Hiding);
    let answer = kernel.call(Opcode::Readdirplus, 3, &read_body()).unwrap();
    assert!(!answer.body.windows(3).any(|window| window == b"two"));
    assert!(answer.body.windows(3).any(|window| window == b"one"));
    assert_eq!(journal.take(), ["forget 7 by 1"]);
}
