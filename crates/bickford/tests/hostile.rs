//! Bytes that no kernel sends: every message is answered or dropped, nothing panics, and the
//! session goes on. The seed is fixed; the fuzz targets explore further.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use bickford::abi::{InHeader, Opcode};
use bickford::ops::{
    Attr, Data, Directory, DirectoryEntry, Entry, Lookup, Read, Readdirplus, Write, Written,
};
use bickford::transport::memory::Kernel;
use bickford::{Blocking, Context, Errno, NodeId};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use zerocopy::IntoBytes;

/// Touches everything that a request brings.
struct Curious;

impl bickford::filesystem::blocking::FileSystem for Curious {
    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let groups = cx.extensions().groups().map_or(0, |groups| groups.len());
        let contexts = cx
            .extensions()
            .security_contexts()
            .map_or(0, |contexts| contexts.len());
        let attr = Attr::file(2, 0o644, (op.name.count_bytes() + groups + contexts) as u64);
        Ok(Entry::new(NodeId(2), attr, std::time::Duration::MAX))
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        Ok(vec![0; op.size.min(1 << 16) as usize].into())
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        let bytes = op.data.bytes().map_err(|_| Errno::IO)?;
        Ok(Written(bytes.iter().fold(0, |sum: u32, byte| {
            sum.wrapping_add(u32::from(*byte))
        })))
    }

    fn readdirplus(&self, _: &Context<'_>, op: Readdirplus) -> Result<Directory, Errno> {
        let mut listing = op.listing();
        let mut offset = op.offset;
        for _ in 0..1_000 {
            offset = offset.wrapping_add(1);
            let entry = DirectoryEntry {
                name: b"name",
                ino: offset,
                offset,
                mode: 0o100_644,
            };
            if !listing.push(&entry) {
                break;
            }
        }
        Ok(listing)
    }
}

fn runner(cases: u32) -> TestRunner {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0x5a; 32]);
    TestRunner::new_with_rng(
        Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        },
        rng,
    )
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..400),
        proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0xff), Just(b'a')],
            0..200
        ),
        (any::<[u64; 8]>(), "[a-z./]{0,20}").prop_map(|(numbers, name)| {
            [
                numbers.as_bytes(),
                name.as_bytes(),
                b"\0",
                name.as_bytes(),
                b"\0",
            ]
            .concat()
        }),
    ]
}

/// A kernel that sees each answer at once, since everything here answers in its handler. Beside them there are
/// notifications: of a file that could not be written back, a while later.
fn mounted() -> Kernel {
    let mut kernel = Kernel::new(Blocking(Curious));
    assert_eq!(kernel.init().unwrap().error, 0);
    kernel
}

#[test]
fn any_bytes_are_survived() {
    let kernel = std::cell::RefCell::new(mounted());
    let messages = (
        any::<bool>(),
        proptest::collection::vec(any::<u8>(), 0..600),
    );
    let outcome = runner(4_000).run(&messages, |(right, mut message)| {
        if right && message.len() >= size_of::<InHeader>() {
            // Beyond the checks of the length and of the opcode.
            let len = (message.len() as u32).to_ne_bytes();
            message[..4].copy_from_slice(&len);
            let opcode = u32::from(message[4]) % 64;
            message[4..8].copy_from_slice(&opcode.to_ne_bytes());
            if [Opcode::Init as u32, Opcode::Destroy as u32].contains(&opcode) {
                return Ok(());
            }
        }
        let mut kernel = kernel.borrow_mut();
        kernel.send_raw(&message);
        kernel.drain();
        prop_assert!(kernel.server().in_flight().is_empty());
        Ok(())
    });
    outcome.unwrap();
    let entry = kernel.borrow_mut().call(Opcode::Lookup, 1, b"name\0");
    assert_eq!(entry.unwrap().error, 0);
}

#[test]
fn every_opcode_with_any_body_is_answered_once() {
    let kernel = std::cell::RefCell::new(mounted());
    let opcodes = (0..Opcode::COUNT).prop_map(|index| Opcode::ALL[index]);
    let lengths = prop_oneof![Just(0i64), -64i64..64];
    let strategy = (opcodes, any::<u16>(), lengths, bodies());
    let outcome = runner(12_000).run(&strategy, |(opcode, extensions, off_by, body)| {
        if matches!(opcode, Opcode::Init | Opcode::Destroy) {
            return Ok(());
        }
        let mut kernel = kernel.borrow_mut();
        let length = (40 + body.len() as i64 + off_by).max(0);
        let header = InHeader {
            len: length as u32,
            opcode: opcode as u32,
            unique: 77,
            nodeid: 1,
            total_extlen: if extensions % 4 == 0 {
                extensions
            } else {
                extensions % 3
            },
            ..InHeader::default()
        };
        kernel.send_raw(&[header.as_bytes(), &body].concat());
        let mut answers = kernel.drain();
        answers.retain(|message| message.unique != 0);
        let fits = off_by <= 0 && length >= 40;
        if opcode.is_answered() && fits {
            prop_assert_eq!(answers.len(), 1, "{}: {:?}", opcode, answers);
        } else {
            prop_assert!(answers.len() <= 1, "{}: {:?}", opcode, answers);
        }
        prop_assert!(kernel.server().in_flight().is_empty());
        Ok(())
    });
    outcome.unwrap();
}
