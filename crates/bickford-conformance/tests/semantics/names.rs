//! Names: any bytes, any length, rename in all its forms, long listings.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};

use super::{Check, Seen, saw};

pub(crate) const CHECKS: &[Check] = &[
    ("any-bytes", any_bytes),
    ("lengths", lengths),
    ("rename-flags", rename_flags),
    ("special", special),
    ("hard-links", hard_links),
    ("long-listing", long_listing),
    ("listing-while-changing", listing_while_changing),
    ("seek-in-listing", seek_in_listing),
    ("deep", deep),
    ("negative", negative),
];

fn any_bytes(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        let name = [b'n', byte, b'e'];
        fs::write(top.join(OsStr::from_bytes(&name)), [byte]).expect("write");
    }
    let mut names: Vec<Vec<u8>> = fs::read_dir(top)
        .expect("list")
        .map(|entry| entry.expect("entry").file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    saw!(seen, names.len(), names);
    let found = fs::read(top.join(OsStr::from_bytes(b"n\xffe")));
    saw!(seen, found.ok());
    seen
}

fn lengths(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let make = |length: usize| {
        fs::write(top.join("n".repeat(length)), "x").map_err(|error| error.raw_os_error())
    };
    saw!(seen, make(1), make(255), make(256));
    let link = |length: usize| {
        let path = top.join(format!("link-{length}"));
        let made = std::os::unix::fs::symlink("t".repeat(length), &path);
        let read = fs::read_link(&path).map(|target| target.as_os_str().len());
        (made.map_err(|error| error.raw_os_error()), read.ok())
    };
    saw!(
        seen,
        link(1),
        link(59),
        link(60),
        link(4000),
        link(4095),
        link(4096)
    );
    seen
}

fn rename_flags(top: &Path) -> Seen {
    let mut seen = Seen::new();
    fs::write(top.join("a"), "a").expect("write");
    fs::create_dir(top.join("d")).expect("directory");
    fs::write(top.join("d/inside"), "i").expect("write");
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, top.join(from), CWD, top.join(to), flags)
    };
    saw!(seen, rename("a", "d", RenameFlags::NOREPLACE));
    saw!(seen, rename("a", "b", RenameFlags::NOREPLACE));
    saw!(seen, rename("b", "d", RenameFlags::EXCHANGE));
    saw!(
        seen,
        fs::read_to_string(top.join("d")).ok(),
        fs::read_to_string(top.join("b/inside")).ok()
    );
    saw!(seen, rename("b", "missing", RenameFlags::EXCHANGE));
    saw!(seen, rename("b", "b/inside/below", RenameFlags::empty()));
    saw!(seen, rename("d", "b", RenameFlags::empty()));
    saw!(seen, rename("d", "w", RenameFlags::WHITEOUT));
    let left = fs::symlink_metadata(top.join("d"));
    saw!(
        seen,
        left.map(|metadata| (metadata.file_type().is_char_device(), metadata.rdev()))
            .ok()
    );
    saw!(seen, fs::read_to_string(top.join("w")).ok());
    seen
}

fn special(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(
            CWD,
            top.join(name),
            kind,
            Mode::from_raw_mode(0o600),
            device,
        )
    };
    saw!(seen, make("fifo", FileType::Fifo, 0));
    saw!(seen, make("socket", FileType::Socket, 0));
    saw!(
        seen,
        make("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3))
    );
    saw!(
        seen,
        make("block", FileType::BlockDevice, rustix::fs::makedev(7, 200))
    );
    saw!(seen, make("file", FileType::RegularFile, 0));
    let mut entries: Vec<String> = fs::read_dir(top)
        .expect("list")
        .map(|entry| {
            let entry = entry.expect("entry");
            let metadata = entry.metadata().expect("stat");
            let same = entry.ino() == metadata.ino();
            let kind = entry.file_type().expect("type");
            format!(
                "{:?} {kind:?} {:o} {:x} {same}",
                entry.file_name(),
                metadata.mode(),
                metadata.rdev()
            )
        })
        .collect();
    entries.sort();
    saw!(seen, entries);
    // A device below works above, where the mount allows devices; both ends of a FIFO meet.
    let writer = std::thread::spawn({
        let path = top.join("fifo");
        move || fs::write(path, "through the fifo")
    });
    saw!(
        seen,
        fs::read_to_string(top.join("fifo")).ok(),
        writer.join().expect("join").is_ok()
    );
    let listener = std::os::unix::net::UnixListener::bind(top.join("listener"));
    saw!(seen, listener.is_ok());
    saw!(
        seen,
        std::os::unix::net::UnixStream::connect(top.join("listener")).is_ok()
    );
    seen
}

fn hard_links(top: &Path) -> Seen {
    let mut seen = Seen::new();
    fs::create_dir(top.join("d")).expect("directory");
    fs::write(top.join("a"), "a").expect("write");
    fs::hard_link(top.join("a"), top.join("d/b")).expect("link");
    let stat = |name: &str| fs::metadata(top.join(name)).expect("stat");
    saw!(
        seen,
        stat("a").ino() == stat("d/b").ino(),
        stat("a").nlink(),
        stat("d/b").nlink()
    );
    fs::write(top.join("d/b"), "longer").expect("write");
    saw!(
        seen,
        stat("a").len(),
        fs::read_to_string(top.join("a")).ok()
    );
    fs::remove_file(top.join("a")).expect("remove");
    saw!(
        seen,
        stat("d/b").nlink(),
        fs::read_to_string(top.join("d/b")).ok()
    );
    saw!(
        seen,
        fs::hard_link(top.join("d"), top.join("e")).map_err(|error| error.raw_os_error())
    );
    saw!(seen, stat("d").nlink(), stat(".").nlink());
    seen
}

fn long_listing(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let name = |index: usize| format!("{index}-{}", "n".repeat(index % 200));
    for index in 0..3000 {
        fs::write(top.join(name(index)), "").expect("write");
    }
    let listed: Vec<_> = fs::read_dir(top)
        .expect("list")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    let unique: BTreeSet<_> = listed.iter().filter_map(|name| name.to_str()).collect();
    let wanted = (0..3000)
        .filter(|index| unique.contains(name(*index).as_str()))
        .count();
    saw!(seen, listed.len(), unique.len(), wanted);
    seen
}

fn listing_while_changing(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for index in 0..500 {
        fs::write(top.join(format!("stays-{index}")), "").expect("write");
        fs::write(top.join(format!("goes-{index}")), "").expect("write");
    }
    let mut listing = fs::read_dir(top).expect("list");
    let mut stayed = BTreeSet::new();
    let mut twice = 0;
    let mut note = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("entry").file_name();
        if name.as_bytes().starts_with(b"stays") && !stayed.insert(name) {
            twice += 1;
        }
    };
    listing.by_ref().take(20).for_each(&mut note);
    for index in 0..500 {
        fs::remove_file(top.join(format!("goes-{index}"))).expect("remove");
        fs::write(top.join(format!("comes-{index}")), "").expect("write");
    }
    listing.for_each(&mut note);
    // What is there from beginning to end is listed once.
    saw!(seen, stayed.len(), twice);
    seen
}

fn seek_in_listing(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for index in 0..300 {
        fs::write(top.join(index.to_string()), "").expect("write");
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = rustix::fs::open(top, flags, Mode::empty()).expect("open");
    let mut buffer = Vec::with_capacity(8192);
    let mut listing = rustix::fs::RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    let mut cookies = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry.expect("entry");
        names.push(entry.file_name().to_owned());
        cookies.push(entry.next_entry_cookie());
    }
    saw!(seen, names.len());
    // From the cookie of an entry on, the rest comes again.
    rustix::fs::seek(&directory, rustix::fs::SeekFrom::Start(cookies[99])).expect("seek");
    let mut buffer = Vec::with_capacity(8192);
    let mut listing = rustix::fs::RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut rest = Vec::new();
    while let Some(entry) = listing.next() {
        rest.push(entry.expect("entry").file_name().to_owned());
    }
    saw!(seen, rest == names[100..]);
    seen
}

fn deep(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut path = top.to_owned();
    for _ in 0..60 {
        path.push("directory");
        fs::create_dir(&path).expect("directory");
    }
    fs::write(path.join("file"), "deep").expect("write");
    fs::rename(top.join("directory/directory"), top.join("moved")).expect("rename");
    let moved = path
        .strip_prefix(top.join("directory/directory"))
        .expect("prefix");
    saw!(
        seen,
        fs::read_to_string(top.join("moved").join(moved).join("file")).ok()
    );
    saw!(seen, path.join("file").exists());
    saw!(
        seen,
        fs::canonicalize(top.join("moved/directory/..")).ok()
            == fs::canonicalize(top.join("moved")).ok()
    );
    saw!(
        seen,
        fs::remove_dir(top.join("moved")).map_err(|error| error.raw_os_error())
    );
    saw!(seen, fs::remove_dir_all(top.join("moved")).is_ok());
    seen
}

fn negative(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let stat =
        || rustix::fs::statat(CWD, top.join("name"), AtFlags::empty()).map(|stat| stat.st_nlink);
    // A miss that is remembered must be forgotten by whatever makes the name.
    saw!(
        seen,
        stat(),
        fs::write(top.join("name"), "x").is_ok(),
        stat()
    );
    saw!(seen, fs::remove_file(top.join("name")).is_ok(), stat());
    saw!(
        seen,
        fs::create_dir(top.join("name")).is_ok(),
        stat().is_ok()
    );
    saw!(seen, fs::remove_dir(top.join("name")).is_ok(), stat());
    fs::write(top.join("other"), "x").expect("write");
    saw!(
        seen,
        fs::hard_link(top.join("other"), top.join("name")).is_ok(),
        stat()
    );
    saw!(seen, fs::remove_file(top.join("name")).is_ok(), stat());
    saw!(
        seen,
        fs::rename(top.join("other"), top.join("name")).is_ok(),
        stat()
    );
    saw!(
        seen,
        fs::rename(top.join("name"), top.join("other")).is_ok(),
        stat()
    );
    saw!(
        seen,
        std::os::unix::fs::symlink("other", top.join("name")).is_ok(),
        stat()
    );
    seen
}
