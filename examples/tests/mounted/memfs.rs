//! The file system in memory.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};

use crate::example::{Example, can_mount};

fn memfs() -> Option<Example> {
    can_mount().then(|| Example::start(env!("CARGO_BIN_EXE_memfs"), &[]))
}

#[test]
fn keeps_what_is_written() {
    let Some(example) = memfs() else { return };
    let data: Vec<u8> = (0..300_000u32).flat_map(u32::to_ne_bytes).collect();
    fs::write(example.path("file"), &data).unwrap();
    assert!(fs::read(example.path("file")).unwrap() == data);
    let file = File::options()
        .read(true)
        .write(true)
        .open(example.path("file"))
        .unwrap();
    file.write_all_at(b"in the middle", 500_000).unwrap();
    file.set_len(600_000).unwrap();
    file.set_len(700_000).unwrap();
    let mut expected = data[..600_000].to_vec();
    expected.resize(700_000, 0);
    expected[500_000..500_013].copy_from_slice(b"in the middle");
    assert!(fs::read(example.path("file")).unwrap() == expected);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 8192, 4096).unwrap();
    expected[8192..12288].fill(0);
    assert!(fs::read(example.path("file")).unwrap() == expected);
    assert_eq!(
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap(),
        8192
    );
    drop(file);
    example.finish();
}

#[test]
fn names_change_and_open_files_stay() {
    let Some(example) = memfs() else { return };
    fs::create_dir_all(example.path("a/b")).unwrap();
    fs::write(example.path("a/b/file"), "text").unwrap();
    fs::hard_link(example.path("a/b/file"), example.path("link")).unwrap();
    let (one, two) = (example.path("a/b/file"), example.path("link"));
    assert_eq!(
        fs::metadata(&one).unwrap().ino(),
        fs::metadata(&two).unwrap().ino()
    );
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
    fs::rename(example.path("a"), example.path("c")).unwrap();
    assert_eq!(fs::read(example.path("c/b/file")).unwrap(), b"text");
    let exchange = RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(CWD, example.path("c"), CWD, &two, exchange).unwrap();
    assert_eq!(fs::read(example.path("c")).unwrap(), b"text");
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(example.path("c"))
        .unwrap();
    fs::remove_file(example.path("c")).unwrap();
    fs::remove_file(example.path("link/b/file")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b" goes on").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text goes on");
    let left: BTreeSet<_> = fs::read_dir(example.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, BTreeSet::from(["link".into()]));
    drop(file);
    example.finish();
}

#[test]
fn has_links_attributes_and_files_without_a_name() {
    let Some(example) = memfs() else { return };
    symlink("where it points", example.path("symlink")).unwrap();
    let target = fs::read_link(example.path("symlink")).unwrap();
    assert_eq!(target.as_os_str(), "where it points");
    fs::write(example.path("file"), "").unwrap();
    let file = example.path("file");
    rustix::fs::setxattr(&file, "user.one", b"value", XattrFlags::CREATE).unwrap();
    let mut buffer = [0u8; 64];
    let length = rustix::fs::getxattr(&file, "user.one", &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..length], b"value");
    let again = rustix::fs::setxattr(&file, "user.one", b"value", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    rustix::fs::removexattr(&file, "user.one").unwrap();
    let none = rustix::fs::getxattr(&file, "user.one", &mut buffer[..]);
    assert_eq!(none, Err(rustix::io::Errno::NODATA));
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = rustix::fs::open(example.path(""), flags, Mode::from(0o600)).unwrap();
    let mut unnamed = File::from(unnamed);
    unnamed.write_all(b"unnamed").unwrap();
    assert_eq!(unnamed.metadata().unwrap().len(), 7);
    drop(unnamed);
    example.finish();
}

#[test]
fn acls_that_nobody_would_obey_are_refused() {
    let Some(example) = memfs() else { return };
    fs::write(example.path("file"), "text").unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(example.path("file"), name, value, XattrFlags::empty())
    };
    assert_eq!(set("user.kept", b"value"), Ok(()));
    let output = std::process::Command::new("setfacl")
        .args(["-m", "u:3:r"])
        .arg(example.path("file"))
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    let mode = fs::metadata(example.path("file")).unwrap().mode();
    assert_eq!(mode & 0o077, 0o044, "the mode stays");
    example.finish();
}
