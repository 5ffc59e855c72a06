//! The key-value store.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use crate::example::{Example, can_mount};

fn names(example: &Example) -> Vec<OsString> {
    let entries = fs::read_dir(example.path("")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn keeps_values_from_one_mount_to_the_next() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("values.redb");
    let start = || Example::start(env!("CARGO_BIN_EXE_kv"), &[&database]);
    let example = start();
    fs::write(example.path("one"), "first").unwrap();
    fs::write(example.path("two"), "second").unwrap();
    fs::write(example.path("two"), "2").unwrap();
    fs::rename(example.path("one"), example.path("three")).unwrap();
    let file = File::options()
        .write(true)
        .open(example.path("three"))
        .unwrap();
    file.set_len(3).unwrap();
    drop(file);
    example.finish();

    let example = start();
    assert_eq!(fs::read(example.path("three")).unwrap(), b"fir");
    assert_eq!(fs::read(example.path("two")).unwrap(), b"2");
    let mut open = File::open(example.path("two")).unwrap();
    fs::remove_file(example.path("two")).unwrap();
    assert!(fs::metadata(example.path("two")).is_err());
    let mut value = String::new();
    open.read_to_string(&mut value).unwrap();
    assert_eq!(value, "2");
    drop(open);
    // The kernel tells some time after close(2) that a file is not open any more.
    let deadline = Instant::now() + Duration::from_secs(60);
    while names(&example) != ["three"] {
        assert!(Instant::now() < deadline, "{:?}", names(&example));
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut file = File::create_new(example.path("four")).unwrap();
    file.write_all(b"4").unwrap();
    drop(file);
    let again = File::create_new(example.path("four")).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    // Keys are text, and who has another name is told so.
    let no_text = example.path("").join(OsStr::from_bytes(b"\xff"));
    let not_text = [
        File::create_new(&no_text).map(drop),
        fs::rename(example.path("four"), &no_text),
    ];
    for result in not_text {
        let error = result.unwrap_err().raw_os_error();
        assert_eq!(error, Some(rustix::io::Errno::ILSEQ.raw_os_error()));
    }
    example.finish();

    let example = start();
    assert_eq!(names(&example), ["four", "three"]);
    let [four, three] = ["four", "three"].map(|name| example.path(name));
    rustix::fs::renameat_with(CWD, &four, CWD, &three, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(four).unwrap(), b"fir");
    assert_eq!(fs::read(three).unwrap(), b"4");
    example.finish();
}
