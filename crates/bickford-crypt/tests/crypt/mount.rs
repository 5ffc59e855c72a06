//! The kernel's side: the calls of an application as requests.

use bickford::abi::{
    AttrOut, CreateIn, CreateOut, EntryOut, GetattrFlags, GetattrIn, InitFlags, MkdirIn, MknodIn,
    Opcode, OpenIn, OpenOut, ReadIn, ReleaseIn, SetattrIn, SetattrValid, WriteFlags, WriteIn,
};
use bickford::transport::memory::{Kernel, Message};
use bickford_crypt::Crypt;
use zerocopy::{Immutable, IntoBytes};

use super::lower::Lower;

pub(crate) const MASTER: [u8; 32] = [42; 32];

pub(crate) struct Mount {
    pub(crate) kernel: Kernel,
    pub(crate) lower: Lower,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) node: u64,
    pub(crate) handle: u64,
}

pub(crate) fn named(input: &(impl IntoBytes + Immutable), name: &[u8]) -> Vec<u8> {
    [input.as_bytes(), name, b"\0"].concat()
}

fn done<T>(message: &Message, value: impl FnOnce() -> T) -> Result<T, i32> {
    match message.error {
        0 => Ok(value()),
        error => Err(-error),
    }
}

impl Mount {
    pub(crate) fn over(lower: Lower) -> Self {
        Self::with_key(lower, &MASTER)
    }

    pub(crate) fn with_key(lower: Lower, master: &[u8; 32]) -> Self {
        let crypt = Crypt::with_master(Box::new(lower.clone()), master);
        let mut kernel = Kernel::new(crypt);
        assert_eq!(kernel.init().unwrap().error, 0);
        let flags = kernel.server().negotiated().unwrap().protocol.flags;
        let refused =
            InitFlags::PASSTHROUGH | InitFlags::NO_OPEN_SUPPORT | InitFlags::ATOMIC_O_TRUNC;
        assert!(!flags.intersects(refused));
        Self { kernel, lower }
    }

    pub(crate) fn call(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Message {
        self.kernel.call(opcode, node, body).unwrap()
    }

    pub(crate) fn create(&mut self, parent: u64, name: &[u8]) -> Result<File, i32> {
        let input = CreateIn {
            flags: libc::O_WRONLY as u32,
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let answer = self.call(Opcode::Create, parent, &named(&input, name));
        done(&answer, || {
            let out: CreateOut = answer.read().unwrap();
            assert_eq!(out.entry_out.attr.size, 0);
            File {
                node: out.entry_out.nodeid,
                handle: out.open_out.fh,
            }
        })
    }

    pub(crate) fn mkdir(&mut self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        let answer = self.call(Opcode::Mkdir, parent, &named(&MkdirIn::default(), name));
        done(&answer, || answer.read::<EntryOut>().unwrap().nodeid)
    }

    pub(crate) fn mknod(&mut self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        let input = MknodIn {
            mode: 0o100_644,
            ..MknodIn::default()
        };
        let answer = self.call(Opcode::Mknod, parent, &named(&input, name));
        done(&answer, || answer.read::<EntryOut>().unwrap().nodeid)
    }

    pub(crate) fn lookup(&mut self, parent: u64, name: &[u8]) -> Result<EntryOut, i32> {
        let answer = self.call(Opcode::Lookup, parent, &[name, b"\0"].concat());
        done(&answer, || answer.read().unwrap())
    }

    pub(crate) fn open(&mut self, node: u64, flags: i32) -> Result<File, i32> {
        let input = OpenIn {
            flags: flags as u32,
            ..OpenIn::default()
        };
        let answer = self.call(Opcode::Open, node, input.as_bytes());
        done(&answer, || File {
            node,
            handle: answer.read::<OpenOut>().unwrap().fh,
        })
    }

    pub(crate) fn close(&mut self, file: File) {
        let input = ReleaseIn {
            fh: file.handle,
            ..ReleaseIn::default()
        };
        assert_eq!(
            self.call(Opcode::Release, file.node, input.as_bytes())
                .error,
            0
        );
    }

    pub(crate) fn read(&mut self, file: File, offset: u64, size: u32) -> Result<Vec<u8>, i32> {
        let input = ReadIn {
            fh: file.handle,
            offset,
            size,
            ..ReadIn::default()
        };
        let answer = self.call(Opcode::Read, file.node, input.as_bytes());
        done(&answer, || answer.body.clone())
    }

    pub(crate) fn write_body(file: File, offset: u64, data: &[u8]) -> Vec<u8> {
        let input = WriteIn {
            fh: file.handle,
            offset,
            size: data.len() as u32,
            ..WriteIn::default()
        };
        [input.as_bytes(), data].concat()
    }

    pub(crate) fn write(&mut self, file: File, offset: u64, data: &[u8]) -> Result<(), i32> {
        let body = Self::write_body(file, offset, data);
        let answer = self.call(Opcode::Write, file.node, &body);
        done(&answer, || {
            assert_eq!(answer.body[..4], (data.len() as u32).to_ne_bytes());
        })
    }

    /// A write(2) of a file with these flags of open(2), and these of FUSE.
    pub(crate) fn write_with(
        &mut self,
        file: File,
        (flags, write_flags): (i32, WriteFlags),
        offset: u64,
        data: &[u8],
    ) -> Result<(), i32> {
        let input = WriteIn {
            fh: file.handle,
            offset,
            size: data.len() as u32,
            flags: flags as u32,
            write_flags: write_flags.bits(),
            ..WriteIn::default()
        };
        let body = [input.as_bytes(), data].concat();
        let answer = self.call(Opcode::Write, file.node, &body);
        done(&answer, || ())
    }

    pub(crate) fn truncate(&mut self, file: File, open: bool, size: u64) -> Result<u64, i32> {
        let mut valid = SetattrValid::SIZE;
        valid.set(SetattrValid::FH, open);
        let input = SetattrIn {
            valid: valid.bits(),
            fh: file.handle,
            size,
            ..SetattrIn::default()
        };
        let answer = self.call(Opcode::Setattr, file.node, input.as_bytes());
        done(&answer, || answer.read::<AttrOut>().unwrap().attr.size)
    }

    /// What the kernel asks for before it reads, where it has no attributes that are still valid: size, and seconds that
    /// it is kept.
    pub(crate) fn size_of_open(&mut self, file: File) -> Result<(u64, u64), i32> {
        let input = GetattrIn {
            getattr_flags: GetattrFlags::FH.bits(),
            fh: file.handle,
            ..GetattrIn::default()
        };
        let answer = self.call(Opcode::Getattr, file.node, input.as_bytes());
        done(&answer, || {
            let out: AttrOut = answer.read().unwrap();
            (out.attr.size, out.attr_valid)
        })
    }

    pub(crate) fn size(&mut self, node: u64) -> u64 {
        let answer = self.call(Opcode::Getattr, node, GetattrIn::default().as_bytes());
        answer.read::<AttrOut>().unwrap().attr.size
    }

    /// Reads to the end as an application does, in steps. The end is where nothing more comes.
    pub(crate) fn read_all(&mut self, file: File) -> Result<Vec<u8>, i32> {
        let mut all = Vec::new();
        loop {
            let read = self.read(file, all.len() as u64, 10_000)?;
            if read.is_empty() {
                return Ok(all);
            }
            all.extend_from_slice(&read);
        }
    }
}
