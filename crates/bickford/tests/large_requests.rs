//! Data of large requests are right while the memory that they go through comes to lie in huge pages.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bickford::abi::OpenOutFlags;
use bickford::ops::{
    Attr, Attributes, Data, Entry, Getattr, Lookup, Open, Opened, Read, Write, Written,
};
use bickford::transport::TransportChoice;
use bickford::{Blocking, Context, Errno, FileHandle, NodeId, SessionConfig};
use support::{Fixture, can_mount, can_use_io_uring, wait_until};

const LARGE: usize = 1 << 20;
const CLIENTS: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);

/// One file, `data`, whose requests come as they are made.
struct Subject(Arc<OwnedFd>);

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1, 0o755),
        _ => Attr::file(2, 0o644, (CLIENTS * LARGE) as u64),
    }
}

impl bickford::filesystem::blocking::FileSystem for Subject {
    fn lookup(&self, _: &Context<'_>, _: Lookup<'_>) -> Result<Entry, Errno> {
        Ok(Entry::new(NodeId(2), attr(NodeId(2)), HOUR))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: attr(op.node),
            valid: HOUR,
        })
    }

    fn open(&self, _: &Context<'_>, _: Open) -> Result<Opened, Errno> {
        Ok(Opened {
            flags: OpenOutFlags::DIRECT_IO,
            ..Opened::new(FileHandle(1))
        })
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        Ok(Data::range(Arc::clone(&self.0), op.offset, op.size))
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        let written = op.data.write_to(&*self.0, Some(op.offset));
        let length = written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Written(u32::try_from(length).unwrap()))
    }
}

/// Writes a part of the file and reads it, other bytes each time.
fn write_and_read(path: &Path, client: usize, ended: &AtomicBool, rounds: &AtomicUsize) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let at = (client * LARGE) as u64;
    let mut read = vec![0; LARGE];
    for first in (0..=250_u8).cycle() {
        let wrote: Vec<u8> = (0..=250_u8)
            .cycle()
            .skip(first.into())
            .take(LARGE)
            .collect();
        file.write_all_at(&wrote, at).unwrap();
        file.read_exact_at(&mut read, at).unwrap();
        assert!(wrote == read, "{client}: {first}");
        rounds.fetch_add(1, Ordering::Relaxed);
        if ended.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// KiB that lie in huge pages which were asked for (`hg` of proc_pid_smaps(5)).
fn huge() -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut found, mut last) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("AnonHugePages:") {
            last = size.trim().trim_end_matches(" kB").parse().unwrap();
        }
        if line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "hg") {
            found += last;
        }
    }
    found
}

/// Whether the system gives programs huge pages of 2 MiB.
fn has_huge_pages() -> bool {
    let of = |name: &str| {
        let path = format!("/sys/kernel/mm/transparent_hugepage/{name}");
        fs::read_to_string(path).unwrap_or_default()
    };
    let given = of("hpage_pmd_size").trim() == "2097152" && !of("enabled").contains("[never]");
    if !given {
        support::say(format_args!("SKIPPED: no huge pages of 2 MiB for programs"));
    }
    given
}

#[test]
fn data_are_right_while_their_memory_moves_into_huge_pages() {
    if !can_mount() || !can_use_io_uring() || !has_huge_pages() {
        return;
    }
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let fixture = Fixture::new(Blocking(Subject(file)), config);
    let path = fixture.path("data");
    fs::metadata(&path).unwrap();
    assert_eq!(huge(), 0, "before it pays");
    let (ended, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (path, ended, rounds) = (&path, &ended, &rounds);
            scope.spawn(move || write_and_read(path, client, ended, rounds));
        }
        wait_until("huge pages", || huge() > 0);
        let before = rounds.load(Ordering::Relaxed);
        wait_until("more requests", || {
            rounds.load(Ordering::Relaxed) > before + 4 * CLIENTS
        });
        ended.store(true, Ordering::Relaxed);
    });
    fixture.finish();
    assert_eq!(huge(), 0, "afterwards");
}
