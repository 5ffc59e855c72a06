//! `crypt` by sizes, over a file in memory, against that file without it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bickford::abi::{CreateIn, Opcode, ReadIn, WriteIn};
use bickford::ops::{
    Attr, Attributes, Create, Created, Data, Entry, Getattr, Opened, Read, Write, Written,
};
use bickford::{Context, Errno, FileHandle, FileSystem, NodeId, Reply};
use bickford_crypt::Crypt;
use zerocopy::IntoBytes;

use crate::bench::{Bench, Outcome, interleave};
use crate::report::Report;

/// A file in memory, whatever its name.
#[derive(Default)]
struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attr(&self) -> Attr {
        Attr::file(2, 0o644, self.bytes().len() as u64)
    }
}

impl FileSystem for Memory {
    fn create(&self, _: &Context<'_>, _: Create<'_>, reply: Reply<Created>) {
        reply.ok(Created {
            entry: Entry::new(NodeId(2), self.attr(), Duration::from_secs(1)),
            opened: Opened::new(FileHandle(0)),
        });
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: self.attr(),
            valid: Duration::ZERO,
        });
    }

    fn read(&self, _: &Context<'_>, op: Read, reply: Reply<Data>) {
        let bytes = self.bytes();
        let from = usize::try_from(op.offset).unwrap_or(usize::MAX);
        let rest = bytes.get(from..).unwrap_or_default();
        let data = rest.get(..op.size as usize).unwrap_or(rest).to_vec();
        drop(bytes);
        reply.ok(data.into());
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        let Ok(data) = op.data.bytes() else {
            return reply.error(Errno::IO);
        };
        let from = usize::try_from(op.offset).unwrap_or(usize::MAX);
        {
            let mut bytes = self.bytes();
            let end = from.saturating_add(data.len());
            if end > 1 << 24 {
                return reply.error(Errno::FBIG);
            }
            let length = bytes.len().max(end);
            bytes.resize(length, 0);
            if let Some(room) = bytes.get_mut(from..end) {
                room.copy_from_slice(&data);
            }
        }
        reply.ok(Written(u32::try_from(data.len()).unwrap_or(u32::MAX)));
    }
}

/// WRITE or READ of `size` bytes at the front of a file of 1 MiB.
fn bench(
    name: &str,
    file_system: Box<dyn FileSystem>,
    opcode: Opcode,
    size: u32,
) -> Outcome<Bench> {
    let mut bench = Bench::new(name, file_system)?;
    let create = [CreateIn::default().as_bytes(), b"f\0"].concat();
    let made = bench.kernel.call(Opcode::Create, 1, &create);
    made.filter(|answer| answer.error == 0).ok_or("no file")?;
    let write = |size: u32| {
        let input = WriteIn {
            size,
            ..WriteIn::default()
        };
        [input.as_bytes(), &vec![0; size as usize]].concat()
    };
    let written = bench.kernel.call(Opcode::Write, 2, &write(1 << 20));
    written
        .filter(|answer| answer.error == 0)
        .ok_or("no contents")?;
    if opcode == Opcode::Write {
        bench.add(opcode, 2, &write(size));
    } else {
        let input = ReadIn {
            size,
            ..ReadIn::default()
        };
        bench.add(opcode, 2, input.as_bytes());
    }
    Ok(bench)
}

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Outcome {
    for (size, turns) in [(4096, 500), (128 << 10, 50), (1 << 20, 8)] {
        for (opcode, what) in [(Opcode::Write, "WRITE"), (Opcode::Read, "READ")] {
            let crypt = Crypt::with_master(Box::new(Memory::default()), &[1; 32]);
            let mut pair = [
                bench("memory", Box::new(Memory::default()), opcode, size)?,
                bench("crypt", Box::new(crypt), opcode, size)?,
            ];
            interleave(&mut pair, rounds, turns)?;
            report.add(&format!("{what} of {size} bytes"), &pair)?;
        }
    }
    Ok(())
}
