//! Several processes and one file: appends, notice of change.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bickford_conformance::{SharedMap, run, say, write_by_ring};
use rustix::fs::{AtFlags, OFlags, StatxFlags, Timespec, Timestamps};

use super::{Check, Seen, saw};

const PAGE: usize = 4096;

pub(crate) const CHECKS: &[Check] = &[
    ("appends", appends),
    ("notice", notice),
    ("maps-and-writes", maps_and_writes),
    ("direct-writes-and-readers", direct_writes_and_readers),
    ("mixed-opens", mixed_opens),
    ("times-of-maps", times_of_maps),
];

/// Those that map files.
pub(crate) const MAPPING: &[&str] = &["maps-and-writes", "mixed-opens", "times-of-maps"];

fn appends(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("log");
    File::create(&path).expect("create");
    let worker = env!("CARGO_BIN_EXE_conformance-worker");
    let start = |index: u32| {
        let mut command = Command::new(worker);
        command
            .arg("append")
            .arg(&path)
            .args([index.to_string(), "200".to_owned()]);
        command.stdin(Stdio::null()).spawn().expect("worker")
    };
    let writers: Vec<_> = (0..4).map(start).collect();
    for mut writer in writers {
        saw!(seen, writer.wait().expect("wait").success());
    }
    let log = fs::read_to_string(&path).expect("read");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    // No line is lost, torn or written over.
    saw!(seen, lines.len(), log.lines().count(), log.len());
    seen
}

/// What one process does another sees at once, without closing anything.
fn notice(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "one").expect("write");
    let file = File::open(&path).expect("open");
    let shell = |script: &str| {
        run(Command::new("sh").args(["-c", script]).arg(&path))
            .status
            .code()
    };
    let read = || fs::read_to_string(&path).ok();
    saw!(
        seen,
        shell("printf three > \"$0\""),
        read(),
        file.metadata().ok().map(|one| one.len())
    );
    saw!(
        seen,
        shell("truncate -s 2 \"$0\""),
        read(),
        file.metadata().ok().map(|one| one.len())
    );
    saw!(
        seen,
        shell("chmod 600 \"$0\" && mv \"$0\" \"$0.moved\""),
        path.exists()
    );
    saw!(
        seen,
        shell("printf again > \"$0\""),
        read(),
        file.metadata().ok().map(|one| one.len())
    );
    seen
}

/// A map, plain writes and reads past the page cache, each by another process, see one file.
fn maps_and_writes(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, vec![1; 16 << 10]).expect("write");
    let file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("open");
    let map = SharedMap::new(&file, 16 << 10).expect("map");
    let worker = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-worker"));
        let finished = run(command.arg(arguments[0]).arg(&path).args(&arguments[1..]));
        (finished.status.code(), finished.output)
    };
    let runs = |bytes: &[u8]| {
        let runs = bytes.chunk_by(|one, next| one == next);
        runs.map(|run| (run[0], run.len())).collect::<Vec<_>>()
    };
    saw!(seen, runs(&map.read(0, 16 << 10)));
    // Another process's map, seen here through a map and by read(2).
    saw!(seen, worker(&["map-fill", "4096", "100", "2"]));
    saw!(
        seen,
        runs(&map.read(0, 8192)),
        runs(&fs::read(&path).expect("read"))
    );
    // A plain write here, seen through the map and past the page cache.
    saw!(
        seen,
        file.write_at(&[3; 50], 4096 + 100).ok(),
        runs(&map.read(4096, 4096))
    );
    saw!(
        seen,
        file.sync_all().is_ok(),
        worker(&["direct-read", "4096"])
    );
    // This map, seen by another process past the page cache once it is synced.
    map.fill(8192, 10, 4);
    saw!(seen, map.sync().is_ok(), worker(&["direct-read", "8192"]));
    // A direct write of another open, seen through the map and by read(2).
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flag");
    let direct = File::options()
        .write(true)
        .custom_flags(flags)
        .open(&path)
        .expect("open");
    let memory = vec![5; 8192];
    let start = memory.as_ptr().align_offset(4096);
    saw!(
        seen,
        direct.write_at(&memory[start..start + 4096], 8192).ok()
    );
    saw!(
        seen,
        runs(&fs::read(&path).expect("read")),
        runs(&map.read(8192, 8192))
    );
    drop((map, file, direct));
    saw!(seen, runs(&fs::read(&path).expect("read")));
    seen
}

/// Writes past the page cache that nobody waits for in write(2), while others fill the cache.
fn direct_writes_and_readers(top: &Path) -> Seen {
    const BLOCK: usize = 16 * PAGE;
    const BLOCKS: usize = 16;
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, vec![0; BLOCKS * BLOCK]).expect("create");
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flag");
    let direct = File::options()
        .write(true)
        .custom_flags(flags)
        .open(&path)
        .expect("open");
    if let Err(error) = write_by_ring(&direct, &[], 0) {
        say(format_args!("left out: direct writes by io_uring: {error}"));
        return seen;
    }
    let done = AtomicBool::new(false);
    let mut memory = vec![0; BLOCK + PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let stale = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::read(&path).expect("read");
            }
        });
        let file = File::open(&path).expect("open");
        let mut stale = 0;
        for round in 0..20 * BLOCKS {
            let (offset, byte) = (round % BLOCKS * BLOCK, 1 + (round / BLOCKS) as u8);
            let bytes = &mut memory[start..start + BLOCK];
            bytes.fill(byte);
            write_by_ring(&direct, bytes, offset as u64).expect("write");
            let mut found = vec![0; BLOCK];
            file.read_exact_at(&mut found, offset as u64).expect("read");
            stale += found.iter().filter(|found| **found != byte).count() / PAGE;
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("reader");
        stale
    });
    saw!(seen, stale);
    let mut bytes = fs::read(&path).expect("read");
    bytes.dedup();
    saw!(seen, bytes);
    seen
}

/// A file whose opens differ in how the kernel would have them go: before and after it gets a
/// set-user-ID bit, past the page cache, and for appending.
fn mixed_opens(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "0123456789").expect("write");
    let mode = |mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, mode).expect("chmod");
    };
    let open = |append: bool| {
        let mut options = File::options();
        options.read(true).write(!append).append(append).open(&path)
    };
    // With each mode for the first open, and the other for those that follow.
    for (first, second) in [(0o755, 0o4755), (0o4755, 0o755)] {
        mode(first);
        let one = open(false).expect("open");
        mode(second);
        let two = open(false).expect("open");
        let three = open(true).expect("open");
        saw!(seen, one.write_at(b"one", 0).ok(), text(&two), text(&three));
        saw!(seen, two.write_at(b"two", 3).ok(), text(&one), text(&three));
        saw!(seen, three.write_at(b"+", 0).ok(), text(&one), text(&two));
        saw!(seen, one.set_len(8).is_ok(), text(&two), text(&three));
        let map = SharedMap::new(&two, 8).expect("map");
        saw!(seen, one.write_at(b"!", 7).ok(), map.read(0, 8));
        map.fill(0, 1, b'?');
        saw!(seen, text(&one), text(&three), fs::read(&path).ok());
        drop(one);
        saw!(seen, two.write_at(b"last", 8).ok(), text(&three));
    }
    saw!(seen, fs::read(&path).ok());
    seen
}

fn text(file: &File) -> Option<String> {
    let mut bytes = [0; 64];
    let length = file.read_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes.get(..length)?.to_vec()).ok()
}

/// A map outlives the descriptor it was made of, and what it writes changes the file's times.
fn times_of_maps(top: &Path) -> Seen {
    const LONG_AGO: i64 = 1_000_000_000;
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, vec![1; 3 * PAGE]).expect("create");
    // As ls(1) asks, and as most programs do.
    let asked = |path: &Path| {
        let (flags, mask) = (AtFlags::empty(), StatxFlags::MTIME | StatxFlags::SIZE);
        let statx = rustix::fs::statx(rustix::fs::CWD, path, flags, mask);
        statx.expect("statx").stx_mtime.tv_sec > LONG_AGO
    };
    let some = || asked(&path);
    let all = || fs::metadata(&path).expect("stat").mtime() > LONG_AGO;
    let age = |path: &Path| {
        let then = Timespec {
            tv_sec: LONG_AGO,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: then,
            last_modification: then,
        };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty()).expect("utimes");
    };
    let open = |path: &Path| {
        let file = File::options().read(true).write(true).open(path);
        file.expect("open")
    };
    age(&path);
    saw!(seen, some(), all());
    let file = open(&path);
    let map = SharedMap::new(&file, 3 * PAGE).expect("map");
    let mut file = Some(file);
    for page in 0..3 {
        if page == 1 {
            drop(file.take());
        }
        age(&path);
        saw!(seen, some(), all());
        map.fill(page * PAGE, 3, 7);
        map.sync().expect("sync");
        saw!(seen, some(), all());
    }
    drop(map);
    saw!(seen, some(), all(), fs::read(&path).expect("read"));

    // Nobody asks while it is open; and close(2) waits for no RELEASE.
    let unseen = top.join("unseen");
    fs::write(&unseen, vec![1; PAGE]).expect("create");
    age(&unseen);
    saw!(seen, asked(&unseen));
    let file = open(&unseen);
    let map = SharedMap::new(&file, PAGE).expect("map");
    map.fill(0, 3, 7);
    drop(map);
    drop(file);
    let told = (0..3000).any(|_| {
        let told = asked(&unseen);
        if !told {
            std::thread::sleep(Duration::from_millis(10));
        }
        told
    });
    saw!(seen, told);
    seen
}
