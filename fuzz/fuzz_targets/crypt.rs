//! The crypt layer over files, names and targets that were altered below: `cargo +nightly fuzz run crypt`.
//!
//! The input is a run of alterations and calls. What is read is what was written, or EIO; names and
//! targets are those that were made, or not shown.
#![no_main]

mod lower;

use std::sync::{LazyLock, Mutex, PoisonError};

use bickford::Blocking;
use bickford::abi::{
    CreateIn, Opcode, OpenIn, OpenOut, ReadIn, ReleaseIn, SetattrIn, SetattrValid, WriteIn,
};
use bickford::transport::memory::{Kernel, Message};
use bickford_crypt::Crypt;
use libfuzzer_sys::fuzz_target;
use zerocopy::IntoBytes;

use lower::{FILE, LINK, Lower, ROOT};

const HEADER: usize = 32;
const SLOT: usize = 4096 + 40;
const SIZES: [usize; 5] = [0, 100, 4096, 9000, 12_288];
const NAMES: [&[u8]; 3] = [b"a", b"name", b"another name, a longer one"];
const TARGET: &[u8] = b"where the link leads";
const EIO: i32 = -5;
const STEPS_MAX: usize = 64;

/// A file as it was written, and what lies below.
struct Sealed {
    plain: Vec<u8>,
    below: Vec<u8>,
}

struct Subject {
    kernel: Kernel,
    lower: Lower,
    /// Two files of each size, with different contents.
    files: Vec<[Sealed; 2]>,
    names: Vec<Vec<u8>>,
    target: Vec<u8>,
}

/// An open file, and what may be read of it: that of the file whose header it had when it was opened.
struct File {
    handle: u64,
    plain: Option<Vec<u8>>,
}

static SUBJECT: LazyLock<Mutex<Subject>> = LazyLock::new(|| Mutex::new(Subject::new()));

/// The rest of the input; zeros when it has ended.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn word(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        front
    }
}

impl Subject {
    fn new() -> Self {
        let lower = Lower::default();
        let crypt = Crypt::with_master(Box::new(Blocking(lower.clone())), &[42; 32]);
        let mut kernel = Kernel::new(crypt);
        assert_eq!(kernel.init().map(|answer| answer.error), Some(0));
        let mut subject = Self {
            kernel,
            lower,
            files: Vec::new(),
            names: Vec::new(),
            target: Vec::new(),
        };
        for size in SIZES {
            let two = [subject.sealed(size, 1), subject.sealed(size, 2)];
            subject.files.push(two);
        }
        for name in NAMES {
            subject.create(name);
            let made = subject.lower.state().made.clone();
            subject.names.push(made);
        }
        let body = [b"link\0", TARGET, b"\0"].concat();
        assert_eq!(subject.call(Opcode::Symlink, ROOT, &body).error, 0);
        subject.target = subject.lower.state().target.clone();
        assert_eq!(subject.call(Opcode::Readlink, LINK, &[]).body, TARGET);
        subject
    }

    fn call(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Message {
        self.kernel.call(opcode, node, body).expect("an answer")
    }

    /// Makes a file, and closes it.
    fn create(&mut self, name: &[u8]) {
        let input = CreateIn {
            flags: 2,
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let body = [input.as_bytes(), name, b"\0"].concat();
        assert_eq!(self.call(Opcode::Create, ROOT, &body).error, 0);
        self.close(lower::HANDLE);
    }

    fn close(&mut self, handle: u64) {
        let input = ReleaseIn {
            fh: handle,
            ..ReleaseIn::default()
        };
        assert_eq!(self.call(Opcode::Release, FILE, input.as_bytes()).error, 0);
    }

    fn sealed(&mut self, size: usize, seed: usize) -> Sealed {
        self.create(b"file");
        let plain: Vec<u8> = (0..size).map(|at| (at / 7 + seed * 89) as u8).collect();
        let file = self.open().expect("a new file opens");
        assert!(plain.is_empty() || self.write(file.handle, 0, &plain).error == 0);
        self.close(file.handle);
        let below = self.lower.state().file.clone();
        Sealed { plain, below }
    }

    fn open(&mut self) -> Option<File> {
        let header = self.lower.state().file.get(..HEADER).map(<[u8]>::to_vec);
        let input = OpenIn {
            flags: 2,
            ..OpenIn::default()
        };
        let answer = self.call(Opcode::Open, FILE, input.as_bytes());
        if answer.error != 0 {
            assert_eq!(answer.error, EIO);
            return None;
        }
        let of_header = |file: &&Sealed| Some(&file.below[..HEADER]) == header.as_deref();
        let plain = self
            .files
            .iter()
            .flatten()
            .find(of_header)
            .map(|file| file.plain.clone());
        let handle = answer.read::<OpenOut>().expect("an open file").fh;
        Some(File { handle, plain })
    }

    fn read(&mut self, file: &File, offset: usize, size: usize, written: bool) {
        let input = ReadIn {
            fh: file.handle,
            offset: offset as u64,
            size: size as u32,
            ..ReadIn::default()
        };
        let answer = self.call(Opcode::Read, FILE, input.as_bytes());
        if answer.error != 0 {
            assert_eq!(answer.error, EIO);
        } else if !written {
            let plain = file
                .plain
                .as_deref()
                .expect("bytes of a file that nobody wrote");
            let rest = plain.get(offset..).unwrap_or_default();
            assert!(
                answer.body == rest[..size.min(rest.len())],
                "{size} bytes at {offset}"
            );
        }
    }

    fn write(&mut self, handle: u64, offset: usize, data: &[u8]) -> Message {
        let input = WriteIn {
            fh: handle,
            offset: offset as u64,
            size: data.len() as u32,
            ..WriteIn::default()
        };
        self.call(Opcode::Write, FILE, &[input.as_bytes(), data].concat())
    }

    fn truncate(&mut self, handle: Option<u64>, size: usize) {
        let mut valid = SetattrValid::SIZE;
        valid.set(SetattrValid::FH, handle.is_some());
        let fh = handle.unwrap_or_default();
        let input = SetattrIn {
            valid: valid.bits(),
            fh,
            size: size as u64,
            ..SetattrIn::default()
        };
        let answer = self.call(Opcode::Setattr, FILE, input.as_bytes());
        assert!([0, EIO].contains(&answer.error), "{}", answer.error);
    }

    /// Changes the bytes below as an attacker, a bad disk or a wrong copy would.
    fn alter(&mut self, how: u8, size: usize, input: &mut Input<'_>) {
        let mut state = self.lower.state();
        let bytes = &mut state.file;
        let border = |number: u8| HEADER + usize::from(number % 4) * SLOT;
        match how {
            0 => flip(bytes, input),
            1 => bytes.truncate(input.word()),
            2 => bytes.truncate(border(input.byte())),
            3 => bytes.resize(bytes.len() + input.word() % (2 * SLOT), 0),
            4 => {
                let (at, length) = (input.word(), input.byte());
                put(bytes, at, input.take(length.into()));
            }
            5 => {
                let (which, from, to) = (input.byte(), border(input.byte()), border(input.byte()));
                let below = &self.files[size][usize::from(which % 2)].below;
                let block = below.get(from..below.len().min(from + SLOT));
                put(bytes, to, block.unwrap_or_default());
            }
            6 => {
                let below = &self.files[size][usize::from(input.byte() % 2)].below;
                put(bytes, 0, &below[..HEADER]);
            }
            _ => {
                let (at, length) = (input.word().min(bytes.len()), input.word());
                bytes.drain(at..bytes.len().min(at + length));
            }
        }
    }

    /// Lists names that were made, altered or not, and others.
    fn list(&mut self, input: &mut Input<'_>) {
        let mut names = self.names.clone();
        for name in &mut names {
            match input.byte() % 4 {
                0 => flip(name, input),
                1 => name.truncate(input.byte().into()),
                2 => *name = input.take(255).to_vec(),
                _ => {}
            }
        }
        // A name below has no NUL and no slash: nothing else can be in a directory.
        names.retain(|name| !name.is_empty() && !name.iter().any(|byte| [0, b'/'].contains(byte)));
        self.lower.state().names = names;
        let input = ReadIn {
            size: 4096,
            ..ReadIn::default()
        };
        let answer = self.call(Opcode::Readdir, ROOT, input.as_bytes());
        assert_eq!(answer.error, 0);
        let mut rest = answer.body.as_slice();
        while let Some((head, tail)) = rest.split_at_checked(24) {
            let length = usize::from(u16::from_ne_bytes([head[16], head[17]]));
            assert!(
                NAMES.contains(&&tail[..length]) || [&b"."[..], b".."].contains(&&tail[..length])
            );
            rest = tail.get(length.next_multiple_of(8)..).unwrap_or_default();
        }
    }

    fn follow(&mut self, input: &mut Input<'_>) {
        let mut target = self.target.clone();
        match input.byte() % 3 {
            0 => flip(&mut target, input),
            1 => target = input.take(255).to_vec(),
            // A name is no target.
            _ => target.clone_from(&self.names[usize::from(input.byte()) % NAMES.len()]),
        }
        self.lower.state().target = target;
        let answer = self.call(Opcode::Readlink, LINK, &[]);
        assert!(
            answer.error == EIO || (answer.error == 0 && answer.body == TARGET),
            "{}",
            answer.error
        );
    }
}

fn flip(bytes: &mut [u8], input: &mut Input<'_>) {
    let (at, mask) = (input.word(), input.byte());
    let length = bytes.len().max(1);
    if let Some(byte) = bytes.get_mut(at % length) {
        *byte ^= mask;
    }
}

/// Puts bytes at a place, with zeros before it where there was nothing.
fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.resize(bytes.len().max(at + new.len()), 0);
    bytes[at..at + new.len()].copy_from_slice(new);
}

fuzz_target!(|input: &[u8]| {
    let subject = &mut *SUBJECT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input(input);
    let size = usize::from(input.byte()) % SIZES.len();
    let below = subject.files[size][0].below.clone();
    subject.lower.state().file = below;
    let (mut file, mut written) = (None, false);
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        match (input.byte() % 15, &file) {
            (how @ 0..8, _) => subject.alter(how, size, &mut input),
            (8, None) => file = subject.open(),
            (8 | 9, Some(open)) => {
                let (offset, size) = (input.word(), 1 + input.word());
                subject.read(open, offset, size, written);
            }
            (10, Some(open)) => {
                let (offset, length) = (input.word(), input.word() % 6000);
                written = true;
                let answer = subject.write(open.handle, offset, &vec![7; length]);
                assert!([0, EIO].contains(&answer.error), "{}", answer.error);
            }
            (11, open) => {
                written = true;
                subject.truncate(open.as_ref().map(|open| open.handle), input.word());
            }
            (12, _) => subject.list(&mut input),
            (13, _) => subject.follow(&mut input),
            (_, None) => {}
            (_, Some(open)) => {
                subject.close(open.handle);
                file = None;
            }
        }
    }
    // Whatever was altered is read, block by block, for a damaged one must not hide the others.
    if let Some(open) = file.or_else(|| subject.open()) {
        for block in 0..4 {
            subject.read(&open, block * 4096, 4096, written);
        }
        subject.close(open.handle);
    }
    assert_eq!(subject.lower.state().opens, 0);
});
