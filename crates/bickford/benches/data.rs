//! Reads and writes of a file below, without the page cache above: spliced and copied over
//! /dev/fuse, and over io_uring. `cargo bench -p bickford --bench data`. The first round is
//! discarded; the rows of one size are measured in turn.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bickford::abi::OpenOutFlags;
use bickford::ops::{
    Attr, Attributes, Data, Entry, Getattr, Lookup, Open, Opened, Read, Write, Written,
};
use bickford::transport::TransportChoice;
use bickford::{Blocking, Context, Errno, FileHandle, Negotiation, NodeId, SessionConfig};

const FILE_SIZE: usize = 64 << 20;
const ROUNDS: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);

struct OneFile {
    below: Arc<OwnedFd>,
    zero_copy: bool,
    /// Requests fit into the pipes of a process without CAP_SYS_RESOURCE.
    splice: bool,
}

impl bickford::filesystem::blocking::FileSystem for OneFile {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        negotiation.set_splice_writes(self.zero_copy);
        if self.splice {
            negotiation.set_max_write(512 << 10);
        }
        Ok(())
    }

    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>) -> Result<Entry, Errno> {
        let attr = Attr::file(2, 0o644, FILE_SIZE as u64);
        Ok(Entry::new(NodeId(2), attr, HOUR))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        let attr = match op.node {
            NodeId::ROOT => Attr::directory(1, 0o755),
            _ => Attr::file(2, 0o644, FILE_SIZE as u64),
        };
        Ok(Attributes { attr, valid: HOUR })
    }

    fn open(&self, _: &Context<'_>, _: Open) -> Result<Opened, Errno> {
        Ok(Opened {
            flags: OpenOutFlags::DIRECT_IO | OpenOutFlags::NOFLUSH,
            ..Opened::new(FileHandle(1))
        })
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        let range = Data::range(Arc::clone(&self.below), op.offset, op.size);
        if self.zero_copy {
            return Ok(range);
        }
        let bytes = range.into_bytes();
        bytes.map(Data::from).map_err(|_| Errno::IO)
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        let written = op.data.write_to(&*self.below, Some(op.offset));
        let length = written.map_err(|_| Errno::IO)?;
        Ok(Written(u32::try_from(length).unwrap_or(u32::MAX)))
    }
}

/// Gigabytes per second of one pass over the file.
fn pass(file: &File, buffer: &mut [u8], write: bool) -> f64 {
    let start = Instant::now();
    for offset in (0..FILE_SIZE).step_by(buffer.len()) {
        let moved = if write {
            file.write_all_at(buffer, offset as u64)
        } else {
            file.read_exact_at(buffer, offset as u64)
        };
        if let Err(error) = moved {
            println!("at {offset}: {error}");
        }
    }
    FILE_SIZE as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn below() -> std::io::Result<OwnedFd> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&vec![7; FILE_SIZE])?;
    Ok(file.into())
}

fn main() -> std::io::Result<()> {
    if !support::can_mount() {
        return Ok(());
    }
    let mut ways = vec![
        ("spliced", TransportChoice::DevFuse, true),
        ("copied", TransportChoice::DevFuse, false),
    ];
    if support::can_use_io_uring() {
        ways.push(("io_uring", TransportChoice::IoUring, true));
    }
    let mut mounts = Vec::new();
    for (name, transport, zero_copy) in ways {
        let below = Arc::new(below()?);
        let filesystem = Blocking(OneFile {
            below,
            zero_copy,
            splice: name == "spliced",
        });
        let config = SessionConfig::default().transport(transport);
        let fixture = support::Fixture::new(filesystem, config);
        let file = File::options()
            .read(true)
            .write(true)
            .open(fixture.path("file"))?;
        mounts.push((name, fixture, file));
    }
    println!("GB/s: median (lowest to highest)");
    for write in [false, true] {
        for kib in [16, 32, 64, 128, 256, 512, 1024] {
            let mut buffer = vec![9; kib << 10];
            let mut results = vec![Vec::new(); mounts.len()];
            for round in 0..=ROUNDS {
                for (row, (_, _, file)) in results.iter_mut().zip(&mounts) {
                    let speed = pass(file, &mut buffer, write);
                    if round > 0 {
                        row.push(speed);
                    }
                }
            }
            let what = if write { "write" } else { "read" };
            print!("{what:<5} {kib:>5} KiB");
            for (row, (name, _, _)) in results.iter_mut().zip(&mounts) {
                row.sort_by(f64::total_cmp);
                let last = row.len() - 1;
                print!(
                    "  {name} {:.2} ({:.2} to {:.2})",
                    row[last / 2],
                    row[0],
                    row[last]
                );
            }
            println!();
        }
    }
    for (_, fixture, file) in mounts {
        drop(file);
        fixture.finish();
    }
    Ok(())
}
