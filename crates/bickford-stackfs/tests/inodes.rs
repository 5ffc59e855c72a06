//! What an inode that the kernel knows costs the daemon: no descriptor, and at most 150 bytes.
//!
//! 100,000 inodes by default. With `BICKFORD_LENGTH=full`, 3,000,000 through mounts over the
//! temporary directory and tmpfs, and 10,000,000 over the memory transport (12 GiB of memory, most
//! of it the kernel's for the files on tmpfs). `BICKFORD_INODES` says another number.
//!
//! `BICKFORD_LENGTH=full cargo test --release -p bickford-stackfs --test inodes -- --nocapture`
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bickford::abi::{EntryOut, Opcode};
use bickford::transport::memory::Kernel;
use bickford_stackfs::{Preset, StackFs};
use rustix::fs::{FileType, Mode};

use support::{Mount, Mounted, can_mount, descriptors};

const PER_DIRECTORY: usize = 1000;
const BYTES_MAX: usize = 150;
const DESCRIPTORS_MAX: usize = 1024;
const WALKS_MAX: usize = 10;
/// Generous: it ends what hangs.
const DEADLINE: Duration = Duration::from_secs(2 * 3600);

fn full() -> bool {
    std::env::var("BICKFORD_LENGTH").is_ok_and(|length| length == "full")
}

fn how_many(when_full: usize) -> usize {
    let said = std::env::var("BICKFORD_INODES").ok();
    match said.and_then(|text| text.parse().ok()) {
        Some(number) => number,
        None if full() => when_full,
        None => 100_000,
    }
}

/// A tmpfs of our own, on which no handle fits into a node id, and where it is mounted; to be dropped the other way round.
fn tmpfs() -> (tempfile::TempDir, Mounted) {
    let directory = tempfile::tempdir().unwrap();
    let options = Some(c"nr_inodes=0,size=100%");
    let mounted = Mounted::at(directory.path(), "tmpfs", options);
    (directory, mounted)
}

/// Empty files, a thousand to a directory.
fn make(directory: &Path, files: usize) {
    for folder in 0..files.div_ceil(PER_DIRECTORY) {
        let path = directory.join(folder.to_string());
        fs::create_dir(&path).unwrap();
        let parent = File::open(&path).unwrap();
        for file in 0..PER_DIRECTORY.min(files - folder * PER_DIRECTORY) {
            let (name, mode) = (file.to_string(), Mode::from_raw_mode(0o600));
            rustix::fs::mknodat(parent.as_fd(), name, FileType::RegularFile, mode, 0).unwrap();
        }
    }
}

/// Resident bytes of this process, which the kernel counts exactly here.
fn resident() -> usize {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup
        .lines()
        .find(|line| line.starts_with("Rss:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// What the inodes that were looked up between `before` and now have cost.
fn judge(what: &str, inodes: usize, held: usize, before: usize) {
    let (after, descriptors) = (resident(), descriptors());
    let bytes = after.saturating_sub(before).div_ceil(inodes);
    println!(
        "{what}: {inodes} inodes, {held} in the table: {bytes} bytes each \
         ({} KiB resident before, {} KiB after), {descriptors} descriptors",
        before >> 10,
        after >> 10,
    );
    assert!(bytes <= BYTES_MAX, "{bytes} bytes an inode");
    assert!(descriptors <= DESCRIPTORS_MAX, "{descriptors} descriptors");
}

/// Looks everything up, a thousand files to a directory, as the kernel would.
fn look_up(kernel: &mut Kernel, parent: u64, name: &str) -> u64 {
    let name = [name.as_bytes(), b"\0"].concat();
    let answer = kernel.call(Opcode::Lookup, parent, &name).unwrap();
    assert_eq!(answer.error, 0);
    answer.read::<EntryOut>().unwrap().nodeid
}

fn over_memory(files: usize) {
    let (top, _tmpfs) = tmpfs();
    let [warm, many] = ["warm", "many"].map(|name| top.path().join(name));
    fs::create_dir(&warm).unwrap();
    fs::create_dir(&many).unwrap();
    make(&warm, 10 * PER_DIRECTORY);
    make(&many, files);
    let stackfs = Arc::new(StackFs::builder(top.path()).build().unwrap());
    assert_eq!(stackfs.identity(), "table of file handles");
    let mut kernel = Kernel::new(Arc::clone(&stackfs));
    kernel.init().unwrap();
    let walk = |kernel: &mut Kernel, top: &str, files: usize| {
        let top = look_up(kernel, 1, top);
        for folder in 0..files.div_ceil(PER_DIRECTORY) {
            let parent = look_up(kernel, top, &folder.to_string());
            for file in 0..PER_DIRECTORY.min(files - folder * PER_DIRECTORY) {
                look_up(kernel, parent, &file.to_string());
            }
        }
    };
    walk(&mut kernel, "warm", 10 * PER_DIRECTORY);
    let (before, known) = (resident(), stackfs.table_len());
    walk(&mut kernel, "many", files);
    let held = stackfs.table_len() - known;
    assert_eq!(held, files + files.div_ceil(PER_DIRECTORY) + 1);
    judge("memory transport, tmpfs", held, held, before);
}

/// Looks at everything through a mount. The kernel keeps what it has looked up while there is
/// memory for it.
fn over_a_mount(what: &str, lower: tempfile::TempDir, files: usize, table: bool) {
    fs::create_dir(lower.path().join("warm")).unwrap();
    fs::create_dir(lower.path().join("many")).unwrap();
    make(&lower.path().join("warm"), 10 * PER_DIRECTORY);
    make(&lower.path().join("many"), files);
    let mount = Mount::for_at_most(DEADLINE, lower, |builder| builder.preset(Preset::Fast));
    let walk = |top: &str, files: usize| {
        for folder in 0..files.div_ceil(PER_DIRECTORY) {
            let path = mount.path(format!("{top}/{folder}"));
            let listed = fs::read_dir(&path).unwrap();
            let looked = listed.map(|entry| entry.unwrap().metadata().unwrap());
            assert!(looked.filter(fs::Metadata::is_file).count() > 0);
        }
    };
    walk("warm", 10 * PER_DIRECTORY);
    let (before, known) = (resident(), mount.stackfs.table_len());
    let inodes = files + files.div_ceil(PER_DIRECTORY) + 1;
    let mut held = 0;
    // What the kernel forgets for want of memory, or is told to, is looked up again.
    for _ in 0..WALKS_MAX {
        walk("many", files);
        held = mount.stackfs.table_len();
        if !table || held * 10 >= inodes * 9 {
            break;
        }
    }
    if table {
        assert!(held * 10 >= inodes * 9, "the kernel keeps only {held}");
        // The table had room for those before, whether or not they are still in it.
        judge(what, held - known, held, before);
    } else {
        assert_eq!(held, 0);
        judge(what, inodes, held, before);
    }
}

/// One after the other in one test: what is measured is the process's.
#[test]
fn inodes_that_the_kernel_knows_cost_no_descriptor_and_few_bytes() {
    if !can_mount() {
        return;
    }
    let (top, tmpfs) = tmpfs();
    let lower = tempfile::tempdir_in(top.path()).unwrap();
    over_a_mount("mount, tmpfs", lower, how_many(3_000_000), true);
    drop(tmpfs);
    let lower = tempfile::tempdir().unwrap();
    let magic = rustix::fs::statfs(lower.path()).unwrap().f_type;
    if magic == 0xef53 {
        // Fewer by default: nothing grows with their number, and removing them takes a while.
        let files = how_many(3_000_000);
        let files = if full() { files } else { files / 5 };
        over_a_mount("mount, ext4", lower, files, false);
    } else {
        support::say(format_args!(
            "left out: the temporary directory is not on ext4"
        ));
    }
    over_memory(how_many(10_000_000));
}
