//! The test vectors of the description of the format, held against the code.

use crate::block::{header, open, seal_with};
use crate::keys::{Cost, Keys, unwrap, wrap};
use crate::names::{self, Kind};

const FORMAT: &str = include_str!("../../../docs/crypt-format.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The description holds exactly this value under this name.
fn described(name: &str, value: &str) {
    let row = format!("| {name} | `{value}` |");
    assert!(FORMAT.contains(&row), "docs/crypt-format.md lacks\n{row}");
}

fn counting<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|at| from.wrapping_add(at as u8))
}

#[test]
fn the_key_file_is_as_described() {
    let cost = Cost {
        memory: 64,
        times: 1,
        lanes: 1,
    };
    let master = counting(0);
    let file = wrap(
        &master,
        b"correct horse",
        cost,
        &counting(32),
        &counting(64),
    )
    .unwrap();
    assert_eq!(file.len(), 136);
    described("key file", &hex(&file));
    assert_eq!(*unwrap(&file, b"correct horse").unwrap(), master);
}

#[test]
fn keys_are_as_described() {
    let keys = Keys::from_master(&counting(0));
    described("contents key", &hex(&*keys.contents));
    described("names key", &hex(&*keys.names));
}

#[test]
fn files_are_as_described() {
    let keys = Keys::from_master(&counting(0));
    let id = counting(100);
    let nonce = counting(200);
    described("header", &hex(&header(&id)));
    for (name, block, last, plain) in [
        ("empty file, block 0", 0, true, b"".as_slice()),
        ("`hello` as only block 0", 0, true, b"hello"),
        ("`hello` as last block 3", 3, true, b"hello"),
    ] {
        let sealed = seal_with(&keys, nonce, &id, block, last, plain).unwrap();
        described(name, &hex(&sealed));
        assert_eq!(open(&keys, &id, block, last, &sealed).unwrap(), plain);
    }
}

#[test]
fn names_are_as_described() {
    let keys = Keys::from_master(&counting(0));
    for (name, kind, plain) in [
        ("name `a`", Kind::Name, b"a".as_slice()),
        ("name `README.md`", Kind::Name, b"README.md"),
        ("target `../x`", Kind::Target, b"../x"),
    ] {
        described(name, &names::seal(&keys, kind, plain).unwrap());
    }
}
