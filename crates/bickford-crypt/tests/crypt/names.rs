//! Names, links, listings.

use bickford::NodeId;
use bickford::abi::{LinkIn, Opcode, ReadIn, Rename2In, StatfsOut};
use bickford_crypt::{NAME_MAX, TARGET_MAX};
use zerocopy::IntoBytes;

use super::lower::{Lower, Node};
use super::mount::{Mount, named};

/// The names of a directory, read in small pieces.
fn list(mount: &mut Mount, node: u64, opcode: Opcode) -> Vec<String> {
    let mut names = Vec::new();
    let mut offset = 0;
    loop {
        let input = ReadIn {
            offset,
            size: 700,
            ..ReadIn::default()
        };
        let answer = mount.call(opcode, node, input.as_bytes());
        assert_eq!(answer.error, 0);
        if answer.body.is_empty() {
            return names;
        }
        let mut rest = answer.body.as_slice();
        while !rest.is_empty() {
            let skip = if opcode == Opcode::Readdirplus {
                128
            } else {
                0
            };
            let number =
                |at: usize| u64::from_ne_bytes(rest[skip + at..skip + at + 8].try_into().unwrap());
            let length = (number(16) & 0xffff_ffff) as usize;
            offset = number(8);
            let name = &rest[skip + 24..skip + 24 + length];
            names.push(String::from_utf8(name.to_vec()).unwrap());
            rest = &rest[(skip + 24 + length).next_multiple_of(8)..];
        }
    }
}

#[test]
fn names_are_encrypted_below_and_listed_above() {
    for opcode in [Opcode::Readdir, Opcode::Readdirplus] {
        let mut mount = Mount::over(Lower::new());
        let mut expected = vec![".".to_owned(), "..".to_owned()];
        for number in 0..50 {
            let name = format!("name {number}");
            mount.create(1, name.as_bytes()).unwrap();
            expected.push(name);
        }
        let below: Vec<_> = mount
            .lower
            .state()
            .names(NodeId::ROOT)
            .keys()
            .cloned()
            .collect();
        assert!(below.iter().all(|name| !name.starts_with(b"name")));
        // What is not ours is not shown, even where it fills whole answers.
        for number in 0..40 {
            let name = format!("!{number:0200}");
            let mut state = mount.lower.state();
            let node = NodeId(5000 + number);
            state.nodes.insert(node, Node::File(Vec::new()));
            state.names(NodeId::ROOT).insert(name.into_bytes(), node);
        }
        let mut listed = list(&mut mount, 1, opcode);
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
        let state = mount.lower.state();
        let hidden = (5000..5040).map(|node| state.lookups.get(&NodeId(node)).copied());
        assert!(
            hidden.flatten().all(|count| count == 0),
            "hidden names are given back"
        );
    }
}

#[test]
fn names_work_in_every_operation() {
    let mut mount = Mount::over(Lower::new());
    let dir = mount.mkdir(1, b"dir").unwrap();
    let file = mount.create(dir, b"old").unwrap();
    let input = Rename2In {
        newdir: 1,
        ..Rename2In::default()
    };
    let body = [named(&input, b"old"), b"new\0".to_vec()].concat();
    assert_eq!(mount.call(Opcode::Rename2, dir, &body).error, 0);
    assert_eq!(mount.lookup(dir, b"old").err(), Some(libc::ENOENT));
    assert_eq!(mount.lookup(1, b"new").unwrap().nodeid, file.node);
    let input = LinkIn {
        oldnodeid: file.node,
    };
    assert_eq!(
        mount.call(Opcode::Link, dir, &named(&input, b"link")).error,
        0
    );
    assert_eq!(mount.lookup(dir, b"link").unwrap().nodeid, file.node);
    assert_eq!(mount.call(Opcode::Unlink, 1, b"new\0").error, 0);
    assert_eq!(mount.lookup(1, b"new").err(), Some(libc::ENOENT));
}

#[test]
fn long_names_are_refused_and_statfs_says_so() {
    let mut mount = Mount::over(Lower::new());
    assert!(mount.create(1, &[b'n'; NAME_MAX]).is_ok());
    let long = mount.create(1, &[b'n'; NAME_MAX + 1]);
    assert_eq!(long.err(), Some(libc::ENAMETOOLONG));
    let answer = mount.call(Opcode::Statfs, 1, &[]);
    let out: StatfsOut = answer.read().unwrap();
    assert_eq!(out.st.namelen, NAME_MAX as u32);
}

#[test]
fn targets_of_links_are_encrypted_and_authenticated() {
    let mut mount = Mount::over(Lower::new());
    for length in [1, 100, TARGET_MAX] {
        let target = vec![b't'; length];
        let name = format!("link {length}\0");
        let body = [name.as_bytes(), &target, b"\0"].concat();
        let made = mount.call(Opcode::Symlink, 1, &body);
        let entry: bickford::abi::EntryOut = made.read().unwrap();
        assert_eq!(entry.attr.size, length as u64);
        assert_eq!(mount.size(entry.nodeid), length as u64);
        assert_eq!(mount.call(Opcode::Readlink, entry.nodeid, &[]).body, target);
        let node = NodeId(entry.nodeid);
        if let Some(Node::Symlink(below)) = mount.lower.state().nodes.get_mut(&node) {
            assert!(!below.starts_with(b"t"));
            below[0] ^= 1;
        }
        assert_eq!(mount.call(Opcode::Readlink, node.0, &[]).error, -libc::EIO);
    }
    let body = [b"long\0".as_slice(), &[b't'; TARGET_MAX + 1], b"\0"].concat();
    assert_eq!(
        mount.call(Opcode::Symlink, 1, &body).error,
        -libc::ENAMETOOLONG
    );
}
