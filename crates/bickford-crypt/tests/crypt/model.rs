//! Whatever is written is what is read, whatever the sizes, orders and threads.

use bickford::NodeId;
use bickford::abi::{Opcode, WriteFlags};

use super::lower::{Lower, Mutation};
use super::mount::{File, Mount};

/// Sizes around the borders of blocks, and anywhere.
fn size(random: &mut fastrand::Rng, up_to: u64) -> u64 {
    let size = match random.u8(..4) {
        0 => random.u64(0..=4) * 4096,
        1 => (random.u64(0..=4) * 4096 + random.u64(0..3)).saturating_sub(1),
        2 => random.u64(0..100),
        _ => random.u64(0..=up_to),
    };
    size.min(up_to)
}

fn step(random: &mut fastrand::Rng, mount: &mut Mount, file: &mut File, model: &mut Vec<u8>) {
    match random.u8(..10) {
        0..4 => {
            let offset = match random.u8(..3) {
                0 => model.len() as u64,
                _ => size(random, 20_000),
            };
            let length = size(random, 14_000).max(1) as usize;
            let data: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            mount.write(*file, offset, &data).unwrap();
            Mutation::Write(offset, data).apply(model);
        }
        4..8 => {
            let (offset, length) = (size(random, 40_000), size(random, 30_000) as u32);
            let read = mount.read(*file, offset, length).unwrap();
            let from = (offset as usize).min(model.len());
            let to = (from + length as usize).min(model.len());
            assert_eq!(
                read,
                model[from..to],
                "{offset} {length} of {}",
                model.len()
            );
        }
        8 => {
            let to = size(random, 30_000);
            let shown = mount.truncate(*file, random.bool(), to).unwrap();
            assert_eq!(shown, to);
            model.resize(to as usize, 0);
        }
        _ => {
            mount.close(*file);
            *file = mount
                .open(file.node, libc::O_RDWR | libc::O_APPEND)
                .unwrap();
        }
    }
    assert_eq!(mount.size(file.node), model.len() as u64);
}

#[test]
fn what_is_written_is_read() {
    for (seed, lower) in (0..12).flat_map(|seed| [(seed, Lower::new()), (seed, Lower::later(seed))])
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut mount = Mount::over(lower.clone());
        let mut file = mount.create(1, b"file").unwrap();
        let mut model = Vec::new();
        for _ in 0..60 {
            step(&mut random, &mut mount, &mut file, &mut model);
        }
        // Another daemon reads the same.
        let mut again = Mount::over(lower.clone());
        let found = again.lookup(1, b"file").unwrap();
        assert_eq!(found.attr.size, model.len() as u64);
        let reopened = again.open(found.nodeid, libc::O_RDONLY).unwrap();
        assert_eq!(again.read_all(reopened).unwrap(), model);
        mount.close(file);
        again.close(reopened);
        assert_eq!(lower.state().opens, 0);
    }
}

#[test]
fn requests_in_flight_take_their_turns() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut mount = Mount::over(Lower::later(seed));
        let file = mount.create(1, b"file").unwrap();
        let mut model = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..100 {
            let offset = random.u64(0..30_000);
            let data = vec![random.u8(1..); random.usize(1..9000)];
            let body = Mount::write_body(file, offset, &data);
            sent.push(mount.kernel.send(Opcode::Write, file.node, &body));
            Mutation::Write(offset, data).apply(&mut model);
        }
        for unique in sent {
            assert_eq!(mount.kernel.answer(unique).unwrap().error, 0);
        }
        assert_eq!(mount.read_all(file).unwrap(), model);
    }
}

#[test]
fn appending_goes_where_the_file_ends_by_then() {
    const APPEND: i32 = libc::O_APPEND;
    for write_back in [false, true] {
        let lower = Lower::new();
        lower.state().write_back = write_back;
        let (mut one, mut two) = (Mount::over(lower.clone()), Mount::over(lower));
        let file = one.create(1, b"file").unwrap();
        one.write(file, 0, &[1; 5000]).unwrap();
        let node = two.lookup(1, b"file").unwrap().nodeid;
        let other = two.open(node, libc::O_WRONLY | APPEND).unwrap();
        let plain = WriteFlags::empty();
        two.write_with(other, (APPEND, plain), 5000, &[2; 4000])
            .unwrap();
        // The size is one that was cached before.
        one.write_with(file, (APPEND, plain), 5000, &[3; 10])
            .unwrap();
        let mut expected = [vec![1; 5000], vec![2; 4000], vec![3; 10]].concat();
        if write_back {
            expected.truncate(9000);
            expected[5000..5010].fill(3);
        }
        assert!(one.read_all(file).unwrap() == expected, "{write_back}");
        // What is written back has its place.
        one.write_with(file, (APPEND, WriteFlags::CACHE), 7, &[4; 10])
            .unwrap();
        expected[7..17].fill(4);
        assert!(two.read_all(other).unwrap() == expected, "{write_back}");
    }
}

#[test]
fn the_last_piece_of_what_is_to_be_synced_is() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    mount.write(file, 0, &[1; 100]).unwrap();
    let plain = WriteFlags::empty();
    // New blocks go before the old last one.
    for (flags, length, pieces) in [
        (libc::O_DSYNC, 10, 1),
        (libc::O_SYNC | libc::O_APPEND, 5000, 2),
    ] {
        mount.lower.state().written_with.clear();
        mount
            .write_with(file, (flags, plain), 50, &vec![2; length])
            .unwrap();
        let mut expected = vec![0; pieces];
        expected[pieces - 1] = flags & libc::O_SYNC;
        assert_eq!(mount.lower.state().written_with, expected);
    }
    // What is put back then need not be.
    mount.lower.state().written_with.clear();
    mount.lower.state().fails = Some((0, 0));
    let failed = mount.write_with(file, (libc::O_SYNC, plain), 0, &[3; 10]);
    assert_eq!(failed, Err(libc::EIO));
    assert_eq!(mount.lower.state().written_with, [libc::O_SYNC, 0]);
}

#[test]
fn nothing_of_the_contents_shows_below() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    mount.write(file, 0, &[b'x'; 10_000]).unwrap();
    mount.truncate(file, true, 20_000).unwrap();
    let below = mount.lower.bytes();
    for run in [[b'x'; 4], [0; 4]] {
        assert!(!below.windows(4).any(|window| window == run));
    }
    // The same contents never look the same.
    mount.write(file, 0, &[b'x'; 4096]).unwrap();
    assert_ne!(mount.lower.bytes()[32..4168], below[32..4168]);
}

#[test]
fn without_space_the_file_ends_as_it_did() {
    for space in (0..13_000).step_by(997) {
        for length in [100, 4096, 5000] {
            let mut mount = Mount::over(Lower::new());
            let file = mount.create(1, b"file").unwrap();
            let before: Vec<u8> = (0..length).map(|n: u32| n as u8).collect();
            mount.write(file, 0, &before).unwrap();
            mount.lower.state().space = Some(space);
            let written = mount.write(file, 3000, &[7; 11_000]);
            mount.lower.state().space = None;
            if written.is_ok() {
                assert_eq!(mount.size(file.node), 14_000);
                assert!(space > 9000);
                continue;
            }
            assert_eq!(written, Err(libc::ENOSPC));
            assert_eq!(mount.read_all(file).unwrap(), before);
            // Growing works once there is space again.
            mount.truncate(file, true, 0).unwrap();
            mount.write(file, 0, b"again").unwrap();
            assert_eq!(mount.read_all(file).unwrap(), b"again");
        }
    }
}

/// Where blocks are not written in place (btrfs), a full file system refuses that, and what is to put it right.
#[test]
fn growing_without_space_touches_nothing_old() {
    let before: Vec<u8> = (0..10_000).map(|n: u32| (n / 3) as u8).collect();
    for (space, data) in [(0, 9000), (3000, 9000), (3000, 20_000)] {
        let mut mount = Mount::over(Lower::new());
        let file = mount.create(1, b"file").unwrap();
        mount.write(file, 0, &before).unwrap();
        let lower = mount.lower.clone();
        lower.state().journal.clear();
        lower.state().space = Some(space);
        let written = mount.write(file, 10_000, &vec![7; data]);
        assert_eq!(written, Err(libc::ENOSPC));
        let length = lower.bytes().len();
        let journal = std::mem::take(&mut lower.state().journal);
        let old =
            |change: &Mutation| matches!(change, Mutation::Write(at, _) if (*at as usize) < length);
        assert!(!journal.iter().any(old), "{} changes", journal.len());
        assert_eq!(mount.read_all(file).unwrap(), before);
    }
}

/// A write, or a change of the size where it brings no data.
fn change(mount: &mut Mount, file: File, offset: u64, data: &[u8]) -> Result<(), i32> {
    match data {
        [] => mount.truncate(file, true, offset).map(|_| ()),
        _ => mount.write(file, offset, data),
    }
}

#[test]
fn what_a_change_that_fails_was_not_to_touch_is_as_before() {
    let before: Vec<u8> = (0..10_000).map(|n: u32| (n / 3) as u8).collect();
    let changes: [(u64, &[u8]); 9] = [
        (0, &[]),
        (1, &[]),
        (4096, &[]),
        (5000, &[]),
        (9999, &[]),
        (20_000, &[]),
        (9000, &[7; 5000]),
        (100, &[7; 10]),
        (4000, &[7; 200]),
    ];
    let mut failed = 0;
    for (offset, data) in changes {
        for (nth, done) in (0..3).flat_map(|nth| [(nth, 0), (nth, 30), (nth, 4200)]) {
            let mut mount = Mount::over(Lower::new());
            let file = mount.create(1, b"file").unwrap();
            mount.write(file, 0, &before).unwrap();
            mount.lower.state().fails = Some((nth, done));
            let changed = change(&mut mount, file, offset, data);
            let happened = mount.lower.state().fails.take().is_none();
            // A write of as many bytes as can be done has not failed.
            if !happened || changed.is_ok() {
                continue;
            }
            failed += 1;
            let kept = mount.read_all(file).is_ok_and(|read| read == before);
            assert!(
                kept,
                "offset {offset}, change {nth} below after {done} bytes"
            );
            change(&mut mount, file, offset, data).unwrap();
            mount.read_all(file).unwrap();
        }
    }
    assert!(failed > 20, "{failed}");
}

/// Where requests below are tasks, those of a caller who got a signal do not begin.
#[test]
fn a_signal_ends_a_change_as_a_whole_or_not_at_all() {
    let before: Vec<u8> = (0..10_000).map(|n: u32| (n / 3) as u8).collect();
    let changes: [(u64, &[u8]); 7] = [
        (0, &[]),
        (5000, &[]),
        (3 << 20, &[]),
        (9000, &[7; 5000]),
        (100, &[7; 10]),
        (4000, &[7; 200]),
        (10_000, &[7; 2 << 20]),
    ];
    for ((offset, data), nth) in changes.iter().flat_map(|c| (0..4).map(move |nth| (c, nth))) {
        let mut mount = Mount::over(Lower::new());
        let file = mount.create(1, b"file").unwrap();
        mount.write(file, 0, &before).unwrap();
        let mut after = before.clone();
        match data {
            [] => after.resize(*offset as usize, 0),
            data => Mutation::Write(*offset, data.to_vec()).apply(&mut after),
        }
        mount.lower.state().signal = Some(nth);
        let expected = match change(&mut mount, file, *offset, data) {
            Err(libc::EINTR) if data.is_empty() => &before,
            changed => {
                changed.unwrap();
                &after
            }
        };
        let right = mount.read_all(file).is_ok_and(|read| read == *expected);
        assert!(right, "offset {offset}, a signal at change {nth} below");
    }
}

#[test]
fn what_is_opened_for_a_truncation_is_closed_after_a_signal() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    mount.close(file);
    mount.lower.state().signal = Some(0);
    assert_eq!(mount.truncate(file, false, 100), Ok(100));
    assert_eq!(mount.lower.state().opens, 0);
}

#[test]
fn growing_much_ends_at_a_signal() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    mount.lower.state().signal = Some(1);
    let grown = mount.truncate(file, true, 8 << 20);
    assert_eq!(grown, Err(libc::EINTR));
    assert_eq!(mount.read_all(file).unwrap(), b"");
}

#[test]
fn a_file_cannot_grow_beyond_bounds() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    let far = mount.write(file, 2 << 30, b"x");
    assert_eq!(far, Err(libc::EFBIG));
    assert_eq!(mount.truncate(file, true, 1 << 62), Err(libc::EFBIG));
    assert_eq!(mount.write(file, u64::MAX - 1, b"abc"), Err(libc::EFBIG));
    assert_eq!(mount.read(file, u64::MAX - 1, 4096).unwrap(), b"");
    assert_eq!(mount.read_all(file).unwrap(), b"");
}

#[test]
fn a_node_made_without_opening_is_an_empty_file() {
    for no_create in [false, true] {
        let mut mount = Mount::over(Lower::new());
        mount.lower.state().no_create = no_create;
        let created = mount.create(1, b"created").map(|_| ());
        let expected = if no_create { Err(libc::ENOSYS) } else { Ok(()) };
        assert_eq!(created, expected);
        let opens = mount.lower.state().opens;
        let node = mount.mknod(1, b"made").unwrap();
        assert_eq!(mount.lower.state().opens, opens);
        assert_eq!(mount.size(node), 0);
        let file = mount.open(node, libc::O_RDWR).unwrap();
        mount.write(file, 0, b"contents").unwrap();
        assert_eq!(mount.read_all(file).unwrap(), b"contents");
        assert_eq!(mount.mknod(1, b"made"), Err(libc::EEXIST));
    }
}

fn leaves_nothing(mount: &Mount) {
    let mut state = mount.lower.state();
    assert_eq!(state.opens, 0);
    assert!(state.lookups.values().all(|count| *count == 0));
    assert!(state.names(NodeId::ROOT).is_empty());
}

#[test]
fn a_file_that_cannot_begin_leaves_nothing() {
    let mut mount = Mount::over(Lower::new());
    mount.lower.state().space = Some(10);
    assert_eq!(mount.create(1, b"file").map(|_| ()), Err(libc::ENOSPC));
    leaves_nothing(&mount);
    mount.lower.state().no_create = true;
    assert_eq!(mount.mknod(1, b"file"), Err(libc::ENOSPC));
    leaves_nothing(&mount);
    mount.lower.state().no_open = true;
    assert_eq!(mount.mknod(1, b"file"), Err(libc::EMFILE));
    leaves_nothing(&mount);
}

#[test]
fn truncating_to_the_same_size_reaches_the_file_below() {
    let mut mount = Mount::over(Lower::new());
    let file = mount.create(1, b"file").unwrap();
    for contents in [&b""[..], b"abc", &[7; 4096]] {
        mount.write(file, 0, contents).unwrap();
        for open in [true, false] {
            let bytes = mount.lower.bytes();
            let before = mount.lower.state().journal.len();
            let size = contents.len() as u64;
            assert_eq!(mount.truncate(file, open, size), Ok(size));
            let changes = mount.lower.state().journal.split_off(before);
            assert_eq!(changes, [Mutation::Resize(bytes.len() as u64)]);
            assert_eq!(mount.lower.bytes(), bytes);
        }
        assert_eq!(mount.read_all(file).unwrap(), contents);
    }
}
