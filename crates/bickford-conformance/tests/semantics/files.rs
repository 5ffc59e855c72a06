//! Contents: holes, allocation, copies, direct and appended writes, unlinked files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};

use super::{Check, Seen, saw};

pub(crate) const CHECKS: &[Check] = &[
    ("holes", holes),
    ("fallocate", fallocate),
    ("copy-range", copy_range),
    ("direct", direct),
    ("append", append),
    ("truncate", truncate),
    ("unlinked", unlinked),
    ("nameless", nameless),
    ("renamed", renamed),
    ("big-offsets", big_offsets),
    ("open-flags", open_flags),
    ("sync", sync),
];

/// Those that look for holes.
pub(crate) const HOLES: &[&str] = &["holes"];

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("open")
}

fn holes(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let file = open(&top.join("file"));
    file.set_len(1 << 20).expect("length");
    file.write_all_at(b"data", 256 << 10).expect("write");
    file.sync_all().expect("sync");
    let seek = |position| rustix::fs::seek(&file, position);
    saw!(seen, seek(rustix::fs::SeekFrom::Data(0)));
    saw!(seen, seek(rustix::fs::SeekFrom::Hole(0)));
    saw!(seen, seek(rustix::fs::SeekFrom::Hole(256 << 10)));
    saw!(seen, seek(rustix::fs::SeekFrom::Data(512 << 10)));
    saw!(seen, seek(rustix::fs::SeekFrom::Data(2 << 20)));
    let mut hole = [1; 4096];
    saw!(
        seen,
        file.read_at(&mut hole, 512 << 10).ok(),
        hole == [0; 4096]
    );
    seen
}

fn fallocate(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let file = open(&top.join("file"));
    file.write_all_at(&[7; 64 << 10], 0).expect("write");
    let allocate = |flags, offset, length| rustix::fs::fallocate(&file, flags, offset, length);
    let size = || file.metadata().expect("stat").len();
    saw!(
        seen,
        allocate(FallocateFlags::empty(), 0, 128 << 10),
        size()
    );
    saw!(
        seen,
        allocate(FallocateFlags::KEEP_SIZE, 0, 1 << 20),
        size()
    );
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    saw!(seen, allocate(punch, 8192, 8192), size());
    saw!(
        seen,
        allocate(FallocateFlags::ZERO_RANGE, 32 << 10, 4096),
        size()
    );
    // COLLAPSE_RANGE and INSERT_RANGE never leave the kernel on a FUSE mount: it refuses them itself.
    saw!(seen, allocate(FallocateFlags::PUNCH_HOLE, 0, 4096));
    saw!(seen, allocate(FallocateFlags::empty(), 0, 0));
    let mut contents = vec![0; 200 << 10];
    let length = file.read_at(&mut contents, 0).expect("read");
    let runs = |bytes: &[u8]| {
        bytes
            .chunk_by(|a, b| a == b)
            .map(|run| (run[0], run.len()))
            .collect::<Vec<_>>()
    };
    saw!(seen, runs(&contents[..length]));
    seen
}

fn copy_range(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let from = open(&top.join("from"));
    let contents: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    from.write_all_at(&contents, 0).expect("write");
    let to = open(&top.join("to"));
    let (mut input, mut output) = (1000, 70_000);
    let mut copied = 0;
    while copied < 100_000 {
        let count = rustix::fs::copy_file_range(
            &from,
            Some(&mut input),
            &to,
            Some(&mut output),
            100_000 - copied,
        );
        copied += count.expect("copy");
    }
    saw!(
        seen,
        copied,
        input,
        output,
        to.metadata().expect("stat").len()
    );
    let found = fs::read(top.join("to")).expect("read");
    saw!(
        seen,
        found[70_000..] == contents[1000..101_000],
        found[..70_000].iter().all(|byte| *byte == 0)
    );
    let (mut input, mut output) = (900_000, 0);
    saw!(
        seen,
        rustix::fs::copy_file_range(&from, Some(&mut input), &to, Some(&mut output), 10)
    );
    seen
}

fn direct(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, vec![1; 64 << 10]).expect("write");
    let mut options = OpenOptions::new();
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flag");
    let options = options.read(true).write(true).custom_flags(flags);
    let file = options.open(&path).expect("open");
    let mut memory = vec![2; 3 * 4096];
    let start = memory.as_ptr().align_offset(4096);
    let block = &mut memory[start..start + 4096];
    saw!(seen, file.write_at(block, 8192).ok());
    saw!(
        seen,
        file.read_at(block, 4096).ok(),
        block.iter().all(|byte| *byte == 1)
    );
    saw!(
        seen,
        file.read_at(block, 8192).ok(),
        block.iter().all(|byte| *byte == 2)
    );
    // Another open through the page cache sees what went past it.
    let cached = fs::read(&path).expect("read");
    saw!(
        seen,
        cached.len(),
        cached[8192],
        cached[12_287],
        cached[12_288]
    );
    seen
}

fn append(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "one").expect("write");
    let mut appender = OpenOptions::new()
        .append(true)
        .read(true)
        .open(&path)
        .expect("open");
    let mut other = open(&path);
    appender.write_all(b"two").expect("append");
    other.seek(SeekFrom::Start(0)).expect("seek");
    other.write_all(b"ONE").expect("write");
    appender.write_all(b"three").expect("append");
    saw!(
        seen,
        fs::read_to_string(&path).ok(),
        appender.stream_position().ok()
    );
    appender.set_len(2).expect("truncate");
    appender.write_all(b"four").expect("append");
    saw!(seen, fs::read_to_string(&path).ok());
    seen
}

fn truncate(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    let file = open(&path);
    file.write_all_at(&[9; 10_000], 0).expect("write");
    file.set_len(5000).expect("truncate");
    file.set_len(9000).expect("extend");
    let contents = fs::read(&path).expect("read");
    saw!(
        seen,
        contents.len(),
        contents[4999],
        contents[5000],
        contents[8999]
    );
    drop(File::create(&path).expect("O_TRUNC"));
    saw!(seen, file.metadata().map(|metadata| metadata.len()).ok());
    saw!(seen, file.set_len(1 << 44).map_err(|error| error.kind()));
    seen
}

/// A file without a name, of which a descriptor is left that opened nothing (`O_PATH`).
fn nameless(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let mode = Mode::from_raw_mode(0o644);
    let file = rustix::fs::open(top, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode)
        .expect("make");
    let file = File::from(file);
    file.write_all_at(b"contents", 0).expect("write");
    let path = |file: &dyn AsRawFd| format!("/proc/self/fd/{}", file.as_raw_fd());
    let held =
        rustix::fs::open(path(&file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("hold");
    drop(file);
    // What RELEASE gives up is gone by then.
    std::thread::sleep(Duration::from_millis(100));
    saw!(
        seen,
        rustix::fs::fstat(&held).map(|stat| (stat.st_size, stat.st_nlink))
    );
    saw!(seen, fs::read_to_string(path(&held)).ok());
    let (old, new) = (path(&held), top.join("named"));
    let flags = AtFlags::SYMLINK_FOLLOW;
    saw!(seen, rustix::fs::linkat(CWD, &old, CWD, &new, flags));
    saw!(seen, fs::read_to_string(&new).ok());
    drop(held);
    saw!(
        seen,
        fs::read_to_string(&new).ok(),
        fs::remove_file(&new).ok()
    );
    seen
}

fn unlinked(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    let file = open(&path);
    file.write_all_at(b"before", 0).expect("write");
    fs::remove_file(&path).expect("remove");
    file.write_all_at(b" and after", 6).expect("write");
    let mut contents = [0; 32];
    let length = file.read_at(&mut contents, 0).expect("read");
    saw!(seen, String::from_utf8_lossy(&contents[..length]));
    saw!(
        seen,
        file.metadata()
            .map(|metadata| (metadata.nlink(), metadata.len()))
            .ok()
    );
    saw!(seen, file.set_len(3).is_ok(), file.sync_all().is_ok());
    saw!(seen, rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)));
    fs::write(&path, "another").expect("the same name again");
    saw!(seen, file.metadata().map(|metadata| metadata.len()).ok());
    saw!(seen, fs::read_dir(top).expect("list").count());
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = rustix::fs::open(top, flags, Mode::from_raw_mode(0o640)).map(File::from);
    saw!(seen, unnamed.is_ok());
    let mut unnamed = unnamed.expect("O_TMPFILE");
    unnamed.write_all(b"unnamed").expect("write");
    saw!(
        seen,
        unnamed
            .metadata()
            .map(|metadata| (metadata.nlink(), metadata.mode()))
            .ok()
    );
    let descriptor = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&unnamed)
    );
    let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    let cwd = rustix::fs::CWD;
    saw!(
        seen,
        rustix::fs::linkat(cwd, &*descriptor, cwd, top.join("named"), flags)
    );
    saw!(seen, fs::read_to_string(top.join("named")).ok());
    saw!(
        seen,
        unnamed.metadata().map(|metadata| metadata.nlink()).ok()
    );
    seen
}

fn renamed(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut file = open(&top.join("old"));
    fs::rename(top.join("old"), top.join("new")).expect("rename");
    file.write_all(b"through the old name").expect("write");
    saw!(seen, fs::read_to_string(top.join("new")).ok());
    fs::write(top.join("victim"), "victim").expect("write");
    let mut victim = open(&top.join("victim"));
    fs::rename(top.join("new"), top.join("victim")).expect("rename");
    let mut contents = String::new();
    saw!(seen, victim.read_to_string(&mut contents).ok(), contents);
    saw!(
        seen,
        victim.metadata().map(|metadata| metadata.nlink()).ok()
    );
    saw!(seen, fs::read_to_string(top.join("victim")).ok());
    seen
}

fn big_offsets(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let file = open(&top.join("file"));
    // Past 2 and past 4 GiB.
    for offset in [(2_u64 << 30) - 2, (4 << 30) - 2, 1 << 40] {
        saw!(seen, file.write_at(b"four", offset).ok());
    }
    let mut found = [0; 4];
    saw!(seen, file.read_at(&mut found, (4 << 30) - 2).ok(), found);
    saw!(
        seen,
        file.metadata()
            .map(|metadata| (metadata.len(), metadata.blocks() < 1000))
            .ok()
    );
    seen
}

fn open_flags(top: &Path) -> Seen {
    let mut seen = Seen::new();
    fs::write(top.join("file"), "x").expect("write");
    std::os::unix::fs::symlink("file", top.join("link")).expect("symlink");
    let mode = Mode::from_raw_mode(0o644);
    let try_open = |name: &str, flags| rustix::fs::open(top.join(name), flags, mode).map(drop);
    saw!(
        seen,
        try_open("file", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)
    );
    saw!(seen, try_open("link", OFlags::NOFOLLOW));
    saw!(seen, try_open("link", OFlags::CREATE | OFlags::EXCL));
    saw!(seen, try_open("file", OFlags::DIRECTORY));
    saw!(seen, try_open(".", OFlags::RDWR));
    saw!(seen, try_open("missing", OFlags::RDONLY));
    saw!(seen, try_open("file/below", OFlags::RDONLY));
    saw!(
        seen,
        try_open("file", OFlags::PATH),
        try_open("file", OFlags::NOATIME)
    );
    let read_only = File::open(top.join("file")).expect("open");
    saw!(
        seen,
        read_only
            .write_at(b"y", 0)
            .map_err(|error| error.raw_os_error())
    );
    let write_only = OpenOptions::new()
        .write(true)
        .open(top.join("file"))
        .expect("open");
    saw!(
        seen,
        write_only
            .read_at(&mut [0], 0)
            .map_err(|error| error.raw_os_error())
    );
    seen
}

fn sync(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let file = open(&top.join("file"));
    file.write_all_at(b"x", 0).expect("write");
    let directory = File::open(top).expect("open");
    saw!(seen, rustix::fs::fsync(&file), rustix::fs::fdatasync(&file));
    saw!(
        seen,
        rustix::fs::fsync(&directory),
        rustix::fs::syncfs(&directory)
    );
    seen
}
