//! Listings while names come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bickford::abi::{Dirent, Direntplus, InitFlags, Opcode};
use bickford::ops::{Attr, Timestamp};
use bickford::path::{self, Adapter, Listing, Options, Subject};
use bickford::{Context, Errno, Negotiation};
use zerocopy::FromBytes;

use crate::client::{Client, ROOT, session};
use crate::mirror::{Mirror, Served};

/// Name, offset and node of each entry.
fn parse(mut bytes: &[u8], plus: bool) -> Vec<(String, u64, u64)> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let (node, head, dirent) = if plus {
            let (entry, _) = Direntplus::read_from_prefix(bytes).unwrap();
            (
                entry.entry_out.nodeid,
                size_of::<Direntplus>(),
                entry.dirent,
            )
        } else {
            (
                0,
                size_of::<Dirent>(),
                Dirent::read_from_prefix(bytes).unwrap().0,
            )
        };
        let end = head + dirent.namelen as usize;
        let name = String::from_utf8(bytes[head..end].to_vec()).unwrap();
        names.push((name, dirent.off, node));
        bytes = &bytes[end.next_multiple_of(8)..];
    }
    names
}

/// The inode number of each entry.
fn numbers(mut bytes: &[u8], plus: bool) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let skipped = if plus {
            size_of::<Direntplus>() - size_of::<Dirent>()
        } else {
            0
        };
        let (dirent, _) = Dirent::read_from_prefix(&bytes[skipped..]).unwrap();
        numbers.push(dirent.ino);
        let end = skipped + size_of::<Dirent>() + dirent.namelen as usize;
        bytes = &bytes[end.next_multiple_of(8)..];
    }
    numbers
}

/// Lists from `offset` on, with answers of at most `size` bytes, until the end.
fn list(client: &Client, handle: u64, mut offset: u64, size: u32) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let bytes = client
            .read_at(Opcode::Readdir, ROOT, handle, offset, size)
            .unwrap();
        let Some((_, last, _)) = parse(&bytes, false).last().cloned() else {
            return names;
        };
        names.extend(parse(&bytes, false).into_iter().map(|(name, ..)| name));
        offset = last;
    }
}

#[test]
fn an_open_listing_stays_and_a_rewound_one_is_new() {
    let kernel = session(Adapter::new(Served(Arc::default()), Options::default()));
    let client = Client::new(&kernel, 1);
    let names: Vec<_> = (0..40).map(|number| format!("name{number:02}")).collect();
    for name in &names {
        client.mknod(ROOT, name).unwrap();
    }
    let handle = client.opendir(ROOT).unwrap().fh;
    let bytes = client
        .read_at(Opcode::Readdir, ROOT, handle, 0, 256)
        .unwrap();
    let first = parse(&bytes, false);
    let (_, offset, _) = first.last().cloned().unwrap();
    for name in &names[..30] {
        client.unlink(ROOT, name).unwrap();
    }
    client.mknod(ROOT, "later").unwrap();
    let mut seen: Vec<_> = first.into_iter().map(|(name, ..)| name).collect();
    seen.extend(list(&client, handle, offset, 256));
    let expected: Vec<_> = [".", ".."]
        .map(String::from)
        .into_iter()
        .chain(names.clone())
        .collect();
    assert_eq!(seen, expected);
    let again = list(&client, handle, 0, 4096);
    assert_eq!(again.len(), 2 + 10 + 1);
    assert!(again.contains(&"later".to_string()));
    client.release(Opcode::Releasedir, ROOT, handle).unwrap();
    assert!(
        client
            .read_at(Opcode::Readdir, ROOT, handle, 0, 256)
            .is_err()
    );
}

#[test]
fn entries_come_with_fresh_attributes_only() {
    let mirror = Arc::<Mirror>::default();
    let adapter = Adapter::new(Served(Arc::clone(&mirror)), Options::default());
    let names = adapter.names();
    let kernel = session(adapter);
    let client = Client::new(&kernel, 1);
    for number in 0..8 {
        let node = client.mknod(ROOT, &format!("name{number}")).unwrap().nodeid;
        client.forget(node, 1);
    }
    assert_eq!(names.sizes().nodes, 1);
    let handle = client.opendir(ROOT).unwrap().fh;
    let bytes = client
        .read_at(Opcode::Readdirplus, ROOT, handle, 0, 1000)
        .unwrap();
    let first = parse(&bytes, true);
    let known: Vec<_> = first.iter().filter(|(_, _, node)| *node != 0).collect();
    assert_eq!((first.len(), known.len()), (5 + 1, 3 + 1));
    let offset = first.last().unwrap().1;
    client.unlink(ROOT, "name6").unwrap();
    let bytes = client
        .read_at(Opcode::Readdirplus, ROOT, handle, offset, 4000)
        .unwrap();
    assert!(parse(&bytes, true).iter().all(|(_, _, node)| *node == 0));
    for (name, _, node) in known {
        assert_eq!(client.lookup(ROOT, name).unwrap().nodeid, *node);
        client.forget(*node, 2);
    }
    assert_eq!(names.sizes().nodes, 1);
}

/// A directory of as many names as one likes, listed in parts.
struct Endless;

impl path::FileSystem for Endless {
    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, listing: &mut Listing) -> Result<(), Errno> {
        for number in listing.offset()..1_000 {
            if !listing.add_at(format!("{number}"), 0o100_000, number + 1) {
                break;
            }
        }
        Ok(())
    }
}

#[test]
fn a_listing_may_come_in_parts() {
    let kernel = session(Adapter::new(Endless, Options::default()));
    let client = Client::new(&kernel, 1);
    let handle = client.opendir(ROOT).unwrap().fh;
    let expected: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
    assert_eq!(list(&client, handle, 0, 512), expected);
    assert_eq!(list(&client, handle, 990, 512), expected[990..]);
}

/// `/dir/file`, with inode numbers, and listings that tell names alone.
struct Numbered;

impl path::FileSystem for Numbered {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        match subject.path()?.to_str() {
            Some("/") => Ok(Attr::directory(70, 0o755)),
            Some("/dir") => Ok(Attr::directory(71, 0o755)),
            Some("/dir/file") => Ok(Attr::file(72, 0o644, 0)),
            _ => Err(Errno::NOENT),
        }
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        directory: Subject<'_>,
        listing: &mut Listing,
    ) -> Result<(), Errno> {
        match directory.path()?.to_str() {
            Some("/") => listing.add("dir", 0o040_000),
            _ => listing.add("file", 0o100_000),
        }
        Ok(())
    }
}

#[test]
fn a_listing_tells_the_numbers_that_attributes_tell() {
    const UNKNOWN: u64 = 0xffff_ffff;
    for use_ino in [true, false] {
        let options = Options {
            use_ino,
            ..Options::default()
        };
        let kernel = session(Adapter::new(Numbered, options));
        let client = Client::new(&kernel, 1);
        let dir = client.lookup(ROOT, "dir").unwrap();
        let file = client.lookup(dir.nodeid, "file").unwrap();
        let root = if use_ino { UNKNOWN } else { ROOT };
        for (node, expected) in [
            (ROOT, [root, UNKNOWN, dir.attr.ino]),
            (dir.nodeid, [dir.attr.ino, UNKNOWN, file.attr.ino]),
        ] {
            let handle = client.opendir(node).unwrap().fh;
            let listed = client.read_at(Opcode::Readdir, node, handle, 0, 4096);
            let listed = listed.unwrap();
            // Each entry has room for the shortest names.
            let entries = listed.chunks(size_of::<Dirent>() + 8);
            let numbers = entries.map(|entry| Dirent::read_from_prefix(entry).unwrap().0.ino);
            assert_eq!(numbers.collect::<Vec<_>>(), expected);
        }
    }
}

/// A directory and two files, which a listing tells with attributes, and whether the kernel is to write back.
struct Changing(bool);

impl path::FileSystem for Changing {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        if self.0 {
            negotiation.want(InitFlags::WRITEBACK_CACHE);
        }
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, _: Subject<'_>) -> Result<Attr, Errno> {
        Ok(Attr::directory(1, 0o755))
    }

    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, to: &mut Listing) -> Result<(), Errno> {
        let changed = Timestamp::now();
        let file = Attr::file(8, 0o644, 0);
        to.add_attr(
            "directory",
            Attr {
                changed,
                ..Attr::directory(7, 0o755)
            },
        );
        to.add_attr("old", file);
        to.add_attr("new", Attr { changed, ..file });
        Ok(())
    }
}

#[test]
fn with_the_write_back_cache_files_that_are_changing_are_listed_without_attributes() {
    for (writes_back, expected) in [(true, [true, true, false]), (false, [true; 3])] {
        let kernel = session(Adapter::new(Changing(writes_back), Options::default()));
        let client = Client::new(&kernel, 1);
        let handle = client.opendir(ROOT).unwrap().fh;
        let bytes = client
            .read_at(Opcode::Readdirplus, ROOT, handle, 2, 4096)
            .unwrap();
        let listed = parse(&bytes, true).into_iter().map(|(.., node)| node != 0);
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{writes_back}");
    }
}

/// Two files, of one of which a listing tells the inode number.
struct NumbersOnly;

impl path::FileSystem for NumbersOnly {
    fn getattr(&self, _: &Context<'_>, _: Subject<'_>) -> Result<Attr, Errno> {
        Ok(Attr::directory(1, 0o755))
    }

    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, to: &mut Listing) -> Result<(), Errno> {
        to.add_numbered("numbered", 0o100_000, 77);
        to.add("other", 0o100_000);
        Ok(())
    }
}

#[test]
fn a_number_that_a_listing_tells_is_listed_where_numbers_count() {
    // `FUSE_UNKNOWN_INO` of the kernel.
    const UNKNOWN: u64 = 0xffff_ffff;
    for (use_ino, wanted) in [(true, 77), (false, UNKNOWN)] {
        let options = Options {
            use_ino,
            ..Options::default()
        };
        let kernel = session(Adapter::new(NumbersOnly, options));
        let client = Client::new(&kernel, 1);
        let handle = client.opendir(ROOT).unwrap().fh;
        for (opcode, plus) in [(Opcode::Readdir, false), (Opcode::Readdirplus, true)] {
            let bytes = client.read_at(opcode, ROOT, handle, 2, 4096).unwrap();
            assert_eq!(numbers(&bytes, plus), [wanted, UNKNOWN], "{opcode:?}");
        }
    }
}

/// A directory in parts with what is known of each name: a number, attributes, or both. Counts the names that are taken.
#[derive(Clone, Default)]
struct Known(Arc<AtomicUsize>);

const KNOWN: u64 = 200;

impl path::FileSystem for Known {
    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, to: &mut Listing) -> Result<(), Errno> {
        for at in to.offset()..KNOWN {
            let (ino, next) = (1000 + at, at + 1);
            let added = match at {
                0 => to.add_attr_at(".", Attr::directory(ino, 0o755), next),
                1 => to.add_numbered_at("numbered", 0o100_000, ino, next),
                _ => to.add_attr_at(format!("{at}"), Attr::file(ino, 0o644, 0), next),
            };
            if !added {
                break;
            }
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn a_listing_in_parts_tells_numbers_and_attributes_throughout() {
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    for (opcode, plus) in [(Opcode::Readdir, false), (Opcode::Readdirplus, true)] {
        let known = Known::default();
        let kernel = session(Adapter::new(known.clone(), options));
        let client = Client::new(&kernel, 1);
        let handle = client.opendir(ROOT).unwrap().fh;
        let (mut offset, mut names, mut told) = (0, Vec::new(), Vec::new());
        while offset < KNOWN {
            let bytes = client.read_at(opcode, ROOT, handle, offset, 4096).unwrap();
            told.extend(numbers(&bytes, plus));
            names.extend(parse(&bytes, plus));
            offset = names.last().unwrap().1;
            // What is taken is answered.
            assert_eq!(known.0.load(Ordering::SeqCst), names.len());
        }
        assert_eq!(told, (1000..1000 + KNOWN).collect::<Vec<_>>());
        // All but `.`, of which the kernel counts no lookup, and the one with a number alone.
        let entries = names.iter().skip(2).all(|(.., node)| *node != 0);
        let dots = names.iter().take(2).all(|(.., node)| *node == 0);
        assert_eq!((entries, dots), (plus, true), "{opcode:?}");
    }
}

/// A directory in one piece, some attributes of which nobody is to be asked for. Counts those that are.
#[derive(Clone, Default)]
struct Costly(Arc<AtomicUsize>);

impl path::FileSystem for Costly {
    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, to: &mut Listing) -> Result<(), Errno> {
        for number in 0..200 {
            if to.wants_attributes() {
                self.0.fetch_add(1, Ordering::SeqCst);
                to.add_attr(format!("{number}"), Attr::file(0, 0o644, 0));
            } else {
                to.add(format!("{number}"), 0o100_000);
            }
        }
        Ok(())
    }
}

#[test]
fn attributes_are_wanted_as_far_as_they_reach() {
    let costly = Costly::default();
    let kernel = session(Adapter::new(costly.clone(), Options::default()));
    let client = Client::new(&kernel, 1);
    let handle = client.opendir(ROOT).unwrap().fh;
    let listed = |opcode| {
        let bytes = client.read_at(opcode, ROOT, handle, 0, 4096).unwrap();
        parse(&bytes, opcode == Opcode::Readdirplus)
    };
    listed(Opcode::Readdir);
    assert_eq!(costly.0.load(Ordering::SeqCst), 0);
    let names = listed(Opcode::Readdirplus);
    // `.` and `..` have none.
    assert!(names.iter().skip(2).all(|(.., node)| *node != 0));
    let asked = costly.0.load(Ordering::SeqCst);
    assert!((names.len() - 2..200).contains(&asked), "{asked}");
}
