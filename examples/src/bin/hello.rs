//! One file that says hello, over inodes: `hello MOUNTPOINT`, then `cat MOUNTPOINT/hello`.

use std::process::ExitCode;
use std::time::Duration;

use bickford::filesystem::blocking;
use bickford::ops::{
    Attr, Attributes, Data, Directory, DirectoryEntry, Entry, Getattr, Lookup, Read, Readdir,
};
use bickford::{Blocking, Context, Errno, NodeId};
use bickford_program::Program;

const TEXT: &[u8] = b"Hello, world!\n";
const HELLO: NodeId = NodeId(2);
/// How long the kernel may use names and attributes without asking.
const VALID: Duration = Duration::from_secs(1);

struct Hello;

fn attr(node: NodeId) -> Result<Attr, Errno> {
    match node {
        NodeId::ROOT => Ok(Attr::directory(1, 0o755)),
        HELLO => Ok(Attr::file(2, 0o644, TEXT.len() as u64)),
        _ => Err(Errno::NOENT),
    }
}

impl blocking::FileSystem for Hello {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        match (op.parent, op.name.to_bytes()) {
            (NodeId::ROOT, b"hello") => Ok(Entry::new(HELLO, attr(HELLO)?, VALID)),
            _ => Err(Errno::NOENT),
        }
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let attr = attr(op.node)?;
        Ok(Attributes { attr, valid: VALID })
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        Ok(Data::part(TEXT, op.offset, op.size))
    }

    fn readdir(&self, _: &Context<'_>, op: Readdir) -> Result<Directory, Errno> {
        let names: [(&[u8], u64, u32); 3] = [
            (b".", 1, 0o040_000),
            (b"..", 1, 0o040_000),
            (b"hello", 2, 0o100_000),
        ];
        let mut listing = op.listing();
        for ((name, ino, mode), offset) in names.into_iter().zip(1..).skip(op.offset as usize) {
            if !listing.push(&DirectoryEntry {
                name,
                ino,
                offset,
                mode,
            }) {
                break;
            }
        }
        Ok(listing)
    }
}

fn main() -> ExitCode {
    Program::new("hello")
        .about("One file that says hello, over inodes")
        .run(|_| Ok(Blocking(Hello)))
}
