//! Programs in C, built against the library that the tests use.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bickford_ffi::abi::BICKFORD_ABI_VERSION;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Compiles a program of `tests/c`.
pub(crate) fn compile(name: &str, into: &Path) -> PathBuf {
    compile_from("tests/c", name, into)
}

pub(crate) fn compile_from(sources: &str, name: &str, into: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = std::env::current_exe().unwrap();
    let libraries = libraries.parent().unwrap();
    let program = into.join(name);
    let library = libraries.join("libbickford_ffi.so");
    // As an installation would have it.
    let versioned = into.join(format!("libbickford_ffi.so.{BICKFORD_ABI_VERSION}"));
    std::os::unix::fs::symlink(&library, versioned).unwrap();
    let status = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-pthread",
            "-I",
        ])
        .arg(root.join("include"))
        .arg(root.join(sources).join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg(library)
        .arg(format!("-Wl,-rpath,{}", into.display()))
        .status()
        .unwrap();
    assert!(status.success(), "cc: {status}");
    program
}

/// Takes away what a program that failed left mounted.
pub(crate) fn clean_up(mountpoint: &Path) {
    while rustix::mount::unmount(mountpoint, rustix::mount::UnmountFlags::DETACH).is_ok() {}
}

pub(crate) fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !may {
        say(format_args!("skipped: needs root and /dev/fuse"));
    }
    may
}

/// Writes to standard error where the output of tests that pass is captured, too.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
