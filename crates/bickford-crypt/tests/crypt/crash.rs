//! What a crash leaves: any part of the writes below since the last sync, whole or torn, in any
//! order. Every block that can be read is one that was written there, and a file that can be read
//! to its end is as long as it once was.

use bickford::NodeId;

use super::full_length;
use super::lower::{Lower, Mutation};
use super::mount::{File, Mount};

const SECTOR: usize = 512;

/// Versions of the plaintext since the last sync, that of the sync first.
struct History {
    versions: Vec<Vec<u8>>,
    synced: Vec<u8>,
}

fn apply(random: &mut fastrand::Rng, mount: &mut Mount, file: File, model: &mut Vec<u8>) {
    let offset = match random.u8(..3) {
        0 => model.len() as u64,
        1 => random.u64(0..5) * 4096,
        _ => random.u64(0..=model.len() as u64),
    };
    if random.u8(..4) == 0 {
        let size = random.u64(0..20_000);
        mount.truncate(file, true, size).unwrap();
        model.resize(size as usize, 0);
        return;
    }
    let data: Vec<u8> = (0..random.usize(1..9000)).map(|_| random.u8(..)).collect();
    mount.write(file, offset, &data).unwrap();
    Mutation::Write(offset, data).apply(model);
}

/// What the disk may hold when these changes were under way.
fn crashed(random: &mut fastrand::Rng, synced: &[u8], journal: &[Mutation]) -> Vec<u8> {
    let mut disk = synced.to_vec();
    let mut changes = journal.to_vec();
    match random.u8(..4) {
        // The daemon was killed: a front of the changes, the last one whole or torn.
        0 => changes.truncate(random.usize(0..=changes.len())),
        // The machine stopped: any of them, in any order.
        1 => random.shuffle(&mut changes),
        _ => {}
    }
    for change in changes {
        match (random.u8(..4), &change) {
            (0, _) => {}
            (1, Mutation::Write(offset, data)) => {
                // Sectors of the disk, some of them.
                let mut at = 0;
                while at < data.len() {
                    let left = SECTOR - (*offset as usize + at) % SECTOR;
                    let end = (at + left).min(data.len());
                    if random.bool() {
                        Mutation::Write(offset + at as u64, data[at..end].to_vec())
                            .apply(&mut disk);
                    }
                    at = end;
                }
            }
            _ => change.apply(&mut disk),
        }
    }
    disk
}

fn check(history: &History, disk: Vec<u8>) -> (usize, usize) {
    let lower = Lower::new();
    let mut mount = Mount::over(lower.clone());
    let made = mount.create(1, b"file").unwrap();
    mount.close(made);
    *lower.state().file(NodeId(made.node)) = disk;
    let Ok(file) = mount.open(made.node, libc::O_RDONLY) else {
        return (0, 1);
    };
    let (mut right, mut refused) = (0, 0);
    for block in 0..8 {
        match mount.read(file, block * 4096, 4096) {
            Err(error) => {
                assert_eq!(error, libc::EIO);
                refused += 1;
            }
            Ok(read) => {
                let from = |version: &Vec<u8>| {
                    let from = (block as usize * 4096).min(version.len());
                    version[from..(from + 4096).min(version.len())] == read[..]
                };
                let known = history.versions.iter().any(from);
                assert!(known, "block {block} reads as it never was");
                right += 1;
            }
        }
    }
    if let Ok(all) = mount.read_all(file) {
        let lengths = history.versions.iter().any(|v| v.len() == all.len());
        assert!(lengths, "a file of {} bytes never was", all.len());
    }
    (right, refused)
}

#[test]
fn a_crash_leaves_nothing_that_never_was() {
    let (mut right, mut refused) = (0, 0);
    for seed in 0..if full_length() { 20_000 } else { 150 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let lower = Lower::new();
        let mut mount = Mount::over(lower.clone());
        let file = mount.create(1, b"file").unwrap();
        let mut model = Vec::new();
        for _ in 0..random.usize(0..4) {
            apply(&mut random, &mut mount, file, &mut model);
        }
        lower.state().journal.clear();
        let mut history = History {
            synced: lower.bytes(),
            versions: vec![model.clone()],
        };
        for _ in 0..random.usize(1..4) {
            apply(&mut random, &mut mount, file, &mut model);
            history.versions.push(model.clone());
        }
        let journal = lower.state().journal.clone();
        for _ in 0..10 {
            let disk = crashed(&mut random, &history.synced, &journal);
            let (some, others) = check(&history, disk);
            right += some;
            refused += others;
        }
    }
    // Both happen, or the test would show nothing.
    assert!(right > 1000 && refused > 1000, "{right} {refused}");
}

#[test]
fn an_append_that_was_cut_short_can_be_cut_off() {
    for size in [0, 1, 100, 4096, 5000, 8192] {
        let lower = Lower::new();
        let mut mount = Mount::over(lower.clone());
        let file = mount.create(1, b"file").unwrap();
        let before: Vec<u8> = (0..size).map(|n: u32| (n / 3) as u8).collect();
        mount.write(file, 0, &before).unwrap();
        lower.state().journal.clear();
        let mut disk = lower.bytes();
        mount.write(file, u64::from(size), &[1; 9000]).unwrap();
        let journal = lower.state().journal.clone();
        assert_eq!(journal.len(), 2);
        for change in journal {
            change.apply(&mut disk);
            for open in [true, false] {
                *lower.state().file(NodeId(file.node)) = disk.clone();
                let cut = mount.truncate(file, open, u64::from(size));
                assert_eq!(cut, Ok(u64::from(size)));
                let all = mount.read_all(file);
                assert!(all.is_ok_and(|all| all == before), "{size} bytes");
            }
        }
    }
}

#[test]
fn what_was_synced_and_not_touched_since_is_kept() {
    let lower = Lower::new();
    let mut mount = Mount::over(lower.clone());
    let file = mount.create(1, b"file").unwrap();
    let before: Vec<u8> = (0..40_000).map(|n: u32| (n / 3) as u8).collect();
    mount.write(file, 0, &before).unwrap();
    lower.state().journal.clear();
    let synced = lower.bytes();
    // An append touches the last block and what follows, whatever happens to it.
    mount.write(file, 40_000, &[1; 9000]).unwrap();
    let journal = lower.state().journal.clone();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..200 {
        *lower.state().file(NodeId(file.node)) = crashed(&mut random, &synced, &journal);
        let whole = 40_000 / 4096 * 4096;
        assert_eq!(
            mount.read(file, 0, whole).unwrap(),
            before[..whole as usize]
        );
    }
}
