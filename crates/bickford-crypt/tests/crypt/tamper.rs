//! Bytes below that are not as they were written give EIO, and never plaintext.

use bickford::{Errno, NodeId};

use super::full_length;
use super::lower::Lower;
use super::mount::{File, Mount};

const SLOT: usize = 4096 + 40;

/// A file of these contents, closed, and what lies below.
fn written(contents: &[u8]) -> (Mount, u64, Vec<u8>) {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    if !contents.is_empty() {
        mount.write(file, 0, contents).unwrap();
    }
    mount.close(file);
    let below = mount.lower.bytes();
    (mount, file.node, below)
}

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n / 7) as u8).collect()
}

/// Opens and reads to the end.
fn read(mount: &mut Mount, node: u64) -> Result<Vec<u8>, i32> {
    let file = mount.open(node, libc::O_RDONLY)?;
    // The kernel asks no further than the size that it was told.
    let size = mount.size(node);
    let read = mount.read_all(file).inspect(|all| {
        assert_eq!(all.len() as u64, size);
    });
    mount.close(file);
    read
}

fn put(mount: &Mount, node: u64, bytes: Vec<u8>) {
    *mount.lower.state().file(NodeId(node)) = bytes;
}

#[test]
fn every_altered_byte_is_noticed() {
    for length in [0, 1, 4096, 9000] {
        let (mut mount, node, below) = written(&contents(length));
        let step = if below.len() < 200 { 1 } else { 13 };
        for at in (0..below.len()).step_by(step).chain([below.len() - 1]) {
            let mut altered = below.clone();
            altered[at] ^= 0x10;
            put(&mount, node, altered);
            assert_eq!(read(&mut mount, node), Err(libc::EIO), "byte {at}");
        }
        put(&mount, node, below);
        assert_eq!(read(&mut mount, node).unwrap(), contents(length));
        assert_eq!(mount.lower.state().opens, 0);
    }
}

#[test]
fn every_truncation_and_extension_is_noticed() {
    for length in [0, 100, 4096, 12_288, 9000] {
        let (mut mount, node, below) = written(&contents(length));
        let borders = (0..4).flat_map(|block| {
            let begins = 32 + block * SLOT;
            [
                begins.saturating_sub(1),
                begins,
                begins + 1,
                begins + 40,
                begins + 41,
            ]
        });
        for cut in (0..below.len()).step_by(101).chain(borders) {
            if cut < below.len() {
                put(&mount, node, below[..cut].to_vec());
                assert_eq!(read(&mut mount, node), Err(libc::EIO), "{cut} of {length}");
            }
        }
        for more in [1, 40, 41, SLOT] {
            let mut longer = below.clone();
            longer.resize(below.len() + more, 0);
            put(&mount, node, longer);
            assert_eq!(read(&mut mount, node), Err(libc::EIO), "{more} more");
        }
    }
}

#[test]
fn truncation_below_an_open_file_is_noticed() {
    let (mut mount, node, below) = written(&contents(12_288));
    let file = mount.open(node, libc::O_RDONLY).unwrap();
    put(&mount, node, below[..32 + 2 * SLOT].to_vec());
    for offset in [4096, 8192, 12_288] {
        assert_eq!(mount.read(file, offset, 4096), Err(libc::EIO), "{offset}");
    }
    assert_eq!(mount.read(file, 0, 4096).unwrap(), contents(4096));
}

#[test]
fn an_open_file_that_is_cut_to_the_length_of_an_empty_one_is_not_empty() {
    let (mut mount, node, below) = written(&contents(9000));
    let file = mount.open(node, libc::O_RDONLY).unwrap();
    let mut other = Mount::over(mount.lower.clone());
    let found = other.lookup(1, b"file").unwrap().nodeid;
    let writer = other.open(found, libc::O_RDWR).unwrap();
    // What was found to be empty before, and has grown since, is no exception.
    for _ in 0..2 {
        put(&mount, node, below[..72].to_vec());
        // No size is kept that would tell the kernel not to read.
        assert_eq!(mount.lookup(1, b"file").unwrap().attr_valid, 0);
        assert_eq!(mount.size_of_open(file), Ok((1, 0)));
        assert_eq!(mount.read(file, 0, 4096), Err(libc::EIO));
        put(&mount, node, below.clone());
        // Others may empty it.
        assert_eq!(other.truncate(writer, true, 0).unwrap(), 0);
        assert_eq!(mount.size_of_open(file), Ok((0, 1)));
        assert_eq!(mount.read(file, 0, 4096).unwrap(), b"");
        put(&mount, node, below.clone());
        assert_eq!(mount.size(node), 9000);
    }
    // One of another file is none.
    let (_, _, empty) = written(b"");
    put(&mount, node, empty);
    assert_eq!(mount.size_of_open(file), Ok((1, 0)));
    mount.close(file);
    other.close(writer);
}

#[test]
fn an_empty_file_that_cannot_be_read_at_the_moment_is_not_longer() {
    let (mut mount, node, _) = written(b"");
    let file = mount.open(node, libc::O_RDONLY).unwrap();
    mount.lower.state().read_fails = Some(Errno::INTR);
    assert_eq!(mount.size_of_open(file), Err(libc::EINTR));
    assert_eq!(mount.size_of_open(file), Ok((0, 1)));
    mount.close(file);
}

#[test]
fn what_the_mount_itself_made_empty_is_so_until_it_grows() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    let empty = mount.lower.bytes();
    for last in [false, true] {
        // Nothing is read below.
        put(&mount, file.node, vec![0; 72]);
        assert_eq!(mount.size_of_open(file), Ok((0, 1)));
        put(&mount, file.node, empty.clone());
        mount.write(file, 0, b"x").unwrap();
        put(&mount, file.node, vec![0; 72]);
        assert_eq!(mount.size_of_open(file), Ok((1, 0)));
        if !last {
            assert_eq!(mount.truncate(file, true, 0).unwrap(), 0);
        }
    }
    put(&mount, file.node, empty);
    assert_eq!(mount.size_of_open(file), Ok((0, 1)));
    mount.close(file);
    assert_eq!(mount.lookup(1, b"file").unwrap().attr_valid, 0);
}

#[test]
fn blocks_do_not_stand_for_each_other() {
    let (mut mount, node, below) = written(&contents(3 * 4096));
    let block = |n: usize| below[32 + n * SLOT..32 + (n + 1) * SLOT].to_vec();
    for order in [[1, 0, 2], [0, 0, 2], [0, 2, 1], [2, 1, 0], [1, 1, 2]] {
        let blocks = order.map(block).concat();
        put(&mount, node, [&below[..32], &blocks].concat());
        assert_eq!(read(&mut mount, node), Err(libc::EIO), "{order:?}");
    }
    // Nor do those of another file with the same contents.
    let (_, _, other) = written(&contents(3 * 4096));
    put(&mount, node, [&below[..32], &other[32..]].concat());
    assert_eq!(read(&mut mount, node), Err(libc::EIO));
    put(&mount, node, [&other[..32], &below[32..]].concat());
    assert_eq!(read(&mut mount, node), Err(libc::EIO));
}

/// Whether a block is the right one must not be told by its plaintext.
#[test]
fn blocks_of_equal_plaintext_are_refused_elsewhere() {
    let plain = vec![7; 4 * 4096];
    let (mut mount, node, below) = written(&plain);
    let (_, _, other) = written(&plain);
    let place = |block: usize| 32 + block * SLOT..32 + (block + 1) * SLOT;
    let places = || (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
    let moved = places().filter(|(from, to)| from != to);
    let moved = moved.map(|(from, to)| (&below, "this file", from, to));
    let foreign = places().map(|(from, to)| (&other, "another file", from, to));
    for (source, whose, from, to) in moved.chain(foreign) {
        let mut altered = below.clone();
        altered[place(to)].copy_from_slice(&source[place(from)]);
        put(&mount, node, altered);
        let file = mount.open(node, libc::O_RDONLY).unwrap();
        for block in 0..4 {
            let read = mount.read(file, block as u64 * 4096, 4096);
            let case = format!("block {from} of {whose} as block {to}, read at {block}");
            match block == to {
                true => assert!(read == Err(libc::EIO), "{case}"),
                false => assert!(read.unwrap() == plain[..4096], "{case}"),
            }
        }
        mount.close(file);
    }
}

#[test]
fn another_key_reads_nothing() {
    let (mount, node, _) = written(&contents(5000));
    let mut other = Mount::with_key(mount.lower.clone(), &[43; 32]);
    assert_eq!(other.lookup(1, b"file").err(), Some(libc::ENOENT));
    let file = other.open(node, libc::O_RDWR).unwrap();
    assert_eq!(other.read(file, 0, 4096), Err(libc::EIO));
    // Nor does it change what it cannot read.
    assert_eq!(other.write(file, 100, b"x"), Err(libc::EIO));
    assert_eq!(other.write(file, 5000, b"x"), Err(libc::EIO));
    assert_eq!(other.truncate(file, true, 4000), Err(libc::EIO));
    let mut again = Mount::over(mount.lower.clone());
    assert_eq!(read(&mut again, node).unwrap(), contents(5000));
}

#[test]
fn an_empty_file_of_another_key_is_not_empty() {
    let (mount, node, _) = written(b"");
    let mut other = Mount::with_key(mount.lower.clone(), &[43; 32]);
    assert_eq!(other.open(node, libc::O_RDONLY).err(), Some(libc::EIO));
    assert_eq!(other.lower.state().opens, 0);
}

/// What is written there says again that the file ends with it.
#[test]
fn a_cut_is_not_hidden_by_overwriting_what_is_the_end_since() {
    let plain = contents(9000);
    let (mut mount, node, below) = written(&plain);
    let cut = 32 + 2 * SLOT + 40 + 100;
    for (length, offset, over) in [
        (32 + SLOT, 0, 4096),
        (32 + 2 * SLOT, 4096, 4096),
        (32 + 2 * SLOT, 0, 8192),
        (cut, 8192, 100),
    ] {
        put(&mount, node, below[..length].to_vec());
        let file = mount.open(node, libc::O_RDWR).unwrap();
        let written = mount.write(file, offset, &vec![9; over]);
        assert_eq!(written, Err(libc::EIO), "{length} bytes");
        mount.close(file);
        assert_eq!(read(&mut mount, node), Err(libc::EIO), "{length} bytes");
    }
    put(&mount, node, below);
    let file = mount.open(node, libc::O_RDWR).unwrap();
    mount.write(file, 8192, &vec![9; 808]).unwrap();
    mount.close(file);
    let all = [&plain[..8192], &[9; 808]].concat();
    assert_eq!(read(&mut mount, node).unwrap(), all);
}

#[test]
fn a_damaged_end_can_be_cut_off() {
    let (mut mount, node, mut below) = written(&contents(3 * 4096));
    *below.last_mut().unwrap() ^= 1;
    put(&mount, node, below);
    let file = File { node, handle: 0 };
    assert_eq!(mount.truncate(file, false, 8192), Ok(8192));
    assert_eq!(read(&mut mount, node).unwrap(), contents(8192));
    assert_eq!(mount.lower.state().opens, 0);
}

#[test]
fn a_damaged_empty_file_can_be_emptied() {
    for open in [true, false] {
        let (mut mount, node, mut below) = written(b"");
        below[40] ^= 1;
        put(&mount, node, below);
        for flags in [libc::O_RDONLY, libc::O_RDWR] {
            assert_eq!(mount.open(node, flags).err(), Some(libc::EIO));
        }
        let file = mount.open(node, libc::O_WRONLY).unwrap();
        assert_eq!(mount.write(file, 0, b"x"), Err(libc::EIO));
        assert_eq!(mount.truncate(file, open, 10), Err(libc::EIO));
        assert_eq!(mount.truncate(file, open, 0), Ok(0));
        assert_eq!(read(&mut mount, node).unwrap(), b"");
        mount.write(file, 0, b"x").unwrap();
        mount.close(file);
        assert_eq!(read(&mut mount, node).unwrap(), b"x");
        assert_eq!(mount.lower.state().opens, 0);
    }
}

#[test]
fn any_bytes_below_are_survived() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut mount, node, below) = written(&contents(9000));
    for round in 0..2000 {
        let length = random.usize(0..3 * SLOT);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        if round % 2 == 0 {
            let front = length.min(32);
            bytes[..front].copy_from_slice(&below[..front]);
        }
        put(&mount, node, bytes);
        let Ok(file) = mount.open(node, libc::O_RDWR) else {
            continue;
        };
        assert_eq!(mount.read_all(file), Err(libc::EIO));
        assert_eq!(mount.write(file, random.u64(0..9000), b"x"), Err(libc::EIO));
        let _ = mount.truncate(file, true, random.u64(1..9000));
        mount.close(file);
    }
    assert_eq!(mount.lower.state().opens, 0);
}

/// Changes bytes as an attacker, a bad disk or a wrong copy would.
fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let length = bytes.len();
    if length == 0 {
        return bytes.push(random.u8(..));
    }
    let at = random.usize(..length);
    // Often where a block begins, for what lies right is the harder case.
    let border = |random: &mut fastrand::Rng| 32 + random.usize(0..4) * SLOT;
    match random.u8(..8) {
        0 => bytes[at] ^= 1 << random.u8(..8),
        1 => bytes.truncate(at),
        2 => bytes.truncate(border(random)),
        3 => bytes.extend((0..random.usize(1..2 * SLOT)).map(|_| random.u8(..))),
        4 => drop(bytes.drain(at..length.min(at + random.usize(1..SLOT)))),
        5 => bytes.insert(at, random.u8(..)),
        // A whole block, of this file or of the other one, at the place of another.
        choice => {
            let (from, to) = (border(random), border(random));
            let source = if choice == 6 {
                bytes.clone()
            } else {
                other.to_vec()
            };
            let block = source
                .get(from..source.len().min(from + SLOT))
                .unwrap_or_default();
            bytes.resize(length.max(to + block.len()), 0);
            bytes[to..to + block.len()].copy_from_slice(block);
        }
    }
}

#[test]
fn mutated_files_read_as_they_were_or_not_at_all() {
    let (mut right, mut refused) = (0, 0);
    for seed in 0..if full_length() { 200_000 } else { 1500 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let plain: Vec<u8> = (0..random.usize(..14_000)).map(|_| random.u8(..)).collect();
        let (mut mount, node, mut below) = written(&plain);
        // Of the same length, and nowhere the same: a block of it that is taken for one of ours shows.
        let foreign: Vec<u8> = plain.iter().map(|byte| !byte).collect();
        let (_, _, other) = written(&foreign);
        for _ in 0..random.usize(1..4) {
            mutate(&mut random, &mut below, &other);
        }
        put(&mount, node, below);
        let Ok(file) = mount.open(node, libc::O_RDWR) else {
            refused += 1;
            continue;
        };
        for block in 0..5 {
            let part = |at: usize| {
                plain
                    .get(at..plain.len().min(at + 4096))
                    .unwrap_or_default()
            };
            match mount.read(file, block * 4096, 4096) {
                Ok(read) => {
                    assert!(
                        read == part(block as usize * 4096),
                        "block {block}, seed {seed}"
                    );
                    right += 1;
                }
                Err(error) => {
                    assert_eq!(error, libc::EIO, "seed {seed}");
                    refused += 1;
                }
            }
        }
        if let Ok(all) = mount.read_all(file) {
            assert!(all == plain, "the file as a whole, seed {seed}");
        }
        // What is done to it then may fail, but nothing else.
        for _ in 0..3 {
            let offset = random.u64(..16_000);
            let _ = mount.write(file, offset, &[7; 5000]);
            let _ = mount.truncate(file, true, random.u64(..16_000));
            let _ = mount.read(file, offset, 4096);
        }
        mount.close(file);
        assert_eq!(mount.lower.state().opens, 0);
    }
    assert!(right > 1000 && refused > 1000, "{right} {refused}");
}
