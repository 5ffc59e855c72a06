//! The archive.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::example::{Example, can_mount};

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(1_000_000_000);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[test]
fn shows_what_is_in_it() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.tar");
    let mut builder = tar::Builder::new(File::create(&path).unwrap());
    let big: Vec<u8> = (0..200_000u32).flat_map(u32::to_ne_bytes).collect();
    let mut add = |name: &str, mode: u32, data: &[u8]| {
        let mut header = header(tar::EntryType::Regular, mode, data.len() as u64);
        builder.append_data(&mut header, name, data).unwrap();
    };
    add("deep/in/here", 0o640, b"found");
    add("big", 0o600, &big);
    // What follows is the number of pieces, where they are, and then they.
    let sparse = [("GNU.sparse.major", b"1".as_slice())];
    builder.append_pax_extensions(sparse).unwrap();
    let mut add = |name: &str, mode: u32, data: &[u8]| {
        let mut header = header(tar::EntryType::Regular, mode, data.len() as u64);
        builder.append_data(&mut header, name, data).unwrap();
    };
    add("GNUSparseFile.0/sparse", 0o640, b"1\n1048576\n4\ndata");
    let mut symlink = header(tar::EntryType::Symlink, 0o777, 0);
    builder
        .append_link(&mut symlink, "deep/link", "in/here")
        .unwrap();
    let mut link = header(tar::EntryType::Link, 0o640, 0);
    builder
        .append_link(&mut link, "hard", "deep/in/here")
        .unwrap();
    builder.into_inner().unwrap();

    let example = Example::start(env!("CARGO_BIN_EXE_archive"), &[&path]);
    assert_eq!(fs::read(example.path("deep/in/here")).unwrap(), b"found");
    assert_eq!(fs::read(example.path("deep/link")).unwrap(), b"found");
    assert_eq!(fs::read(example.path("hard")).unwrap(), b"found");
    assert!(fs::read(example.path("big")).unwrap() == big);
    let metadata = fs::metadata(example.path("deep/in/here")).unwrap();
    assert_eq!(
        (metadata.permissions().mode() & 0o7777, metadata.mtime()),
        (0o640, 1_000_000_000)
    );
    let mut names: Vec<_> = fs::read_dir(example.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["big", "deep", "hard"]);
    let refused = fs::write(example.path("new"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    example.finish();
}

#[test]
fn of_members_with_one_name_the_last_counts() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.tar");
    let mut builder = tar::Builder::new(File::create(&path).unwrap());
    let files: [(&str, &[u8]); 4] = [
        ("replaced", b"old"),
        ("linked", b"old"),
        ("replaced", b"new"),
        ("kept/file", b"kept"),
    ];
    for (name, data) in files {
        let mut header = header(tar::EntryType::Regular, 0o640, data.len() as u64);
        builder.append_data(&mut header, name, data).unwrap();
    }
    for name in ["linked", "linked", "replaced", "kept"] {
        let mut link = header(tar::EntryType::Link, 0o640, 0);
        builder.append_link(&mut link, name, "replaced").unwrap();
    }
    builder.into_inner().unwrap();

    let example = Example::start(env!("CARGO_BIN_EXE_archive"), &[&path]);
    for (name, contents) in [
        ("replaced", "new"),
        ("linked", "new"),
        ("kept/file", "kept"),
    ] {
        assert_eq!(fs::read_to_string(example.path(name)).unwrap(), contents);
    }
    let links = fs::metadata(example.path("linked")).unwrap().nlink();
    assert_eq!(links, 2);
    example.finish();
}
