//! The committed header is the one that this crate's source makes.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use std::path::Path;

const PREAMBLE: &str = "/* The C interface of Bickford, a FUSE framework.\n *\n * Generated from the \
crate bickford-ffi; change it there and run\n * BICKFORD_UPDATE_HEADER=1 cargo test -p bickford-ffi \
--test header\n *\n * Every function may be called by any thread. Those that return int32_t return \
zero or a positive\n * value for success and BICKFORD_ERROR_* else; bickford_last_error() then says \
what failed.\n *\n * FUSE_* and FOPEN_* are those of <linux/fuse.h>, which is not included here. FUSE_CAP_* of \
libfuse have other values.\n *\n * A child of fork(2) that does not call execve(2) keeps the devices of all sessions open: \
mounts of a\n * process that is killed hang until such children have ended, too.\n */";

fn generate() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(PREAMBLE.into()),
        include_guard: Some("BICKFORD_H".into()),
        cpp_compat: true,
        documentation: true,
        documentation_style: cbindgen::DocumentationStyle::C99,
        line_length: 100,
        ..cbindgen::Config::default()
    };
    let bindings = cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/bickford.h");
    let generated = generate();
    if std::env::var_os("BICKFORD_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "include/bickford.h differs from the source; run BICKFORD_UPDATE_HEADER=1 cargo test -p \
         bickford-ffi --test header"
    );
}
