//! Programs in C over the interface, each mounting for itself under a watchdog.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail so")]

#[path = "c_programs/building.rs"]
mod building;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford::mount::{Unmount, unmount};
use bickford_ffi::abi::BICKFORD_ABI_VERSION;

use building::{DEADLINE, clean_up, compile, may_mount, say};

/// Waits for a program. When it is late, its mounts are taken away and it is killed.
fn watch(mut child: Child, mountpoint: &Path) {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            if !status.success() {
                clean_up(mountpoint);
            }
            assert!(status.success(), "the program: {status}");
            return;
        }
        if Instant::now() > until {
            let _ = unmount(mountpoint, Unmount::Force);
            let _ = child.kill();
            let _ = child.wait();
            clean_up(mountpoint);
            panic!("the program did not end within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn run(name: &str) {
    run_under(&[], name);
}

/// Runs a program with a mount point and an empty directory, under what `before` says.
fn run_under(before: &[&str], name: &str) {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile(name, place.path());
    let [mountpoint, source] = ["mnt", "source"].map(|name| place.path().join(name));
    for directory in [&mountpoint, &source] {
        std::fs::create_dir(directory).unwrap();
    }
    let mut words = before.iter().map(OsString::from).collect::<Vec<_>>();
    words.extend([program, mountpoint.clone(), source].map(OsString::from));
    let child = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    watch(child, &mountpoint);
}

#[test]
fn a_program_asks_for_the_version_that_it_was_linked_with() {
    let place = tempfile::tempdir().unwrap();
    let program = std::fs::read(compile("hello", place.path())).unwrap();
    let wanted = format!("\0libbickford_ffi.so.{BICKFORD_ABI_VERSION}\0");
    let mut strings = program.windows(wanted.len());
    assert!(strings.any(|bytes| bytes == wanted.as_bytes()));
}

/// As a program finds it that uses pkg-config.
#[test]
fn an_installation_can_be_built_against() {
    let place = tempfile::tempdir().unwrap();
    let [from, root] = ["from", "root"].map(|name| place.path().join(name));
    std::fs::create_dir(&from).unwrap();
    let libraries = std::env::current_exe().unwrap();
    let library = libraries.with_file_name("libbickford_ffi.so");
    std::os::unix::fs::symlink(library, from.join("libbickford_ffi.so")).unwrap();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let install = Command::new(top.join("scripts/install.sh"))
        .env("FROM", &from)
        .env("JARS", &from)
        .env("DESTDIR", &root)
        .env("PREFIX", "/usr")
        .env("LIBDIR", "/usr/lib64")
        .env_remove("MOUNTDIR")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(install.success(), "{install}");
    let libdir = root.join("usr/lib64");
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "bickford"])
        .env("PKG_CONFIG_SYSROOT_DIR", &root)
        .env("PKG_CONFIG_PATH", libdir.join("pkgconfig"))
        .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&flags.stderr);
    assert!(flags.status.success(), "{said}");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let source = place.path().join("program.c");
    let text = "#include <bickford.h>\nint main(void) { return bickford_abi_version() != BICKFORD_ABI_VERSION; }\n";
    std::fs::write(&source, text).unwrap();
    let program = place.path().join("program");
    let built = Command::new("cc")
        .arg(&source)
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(built.success(), "{flags}");
    let ran = Command::new(&program)
        .env("LD_LIBRARY_PATH", &libdir)
        .status()
        .unwrap();
    assert!(ran.success(), "{ran}");
}

#[test]
fn hello_in_c() {
    run("hello");
}

#[test]
fn a_layer_in_c() {
    run("layer");
}

#[test]
fn notifications_in_c() {
    run("notify");
}

#[test]
fn the_log_in_c() {
    run("log");
}

#[test]
fn backing_files_in_c() {
    run("backing");
}

#[test]
fn groups_of_callers_in_c() {
    run("groups");
}

#[test]
fn data_in_c_that_come_from_descriptors() {
    run("range");
}

#[test]
fn each_operation_over_paths_in_c() {
    run("paths");
}

#[test]
fn sessions_in_c_that_their_caller_serves() {
    run("driven");
}

#[test]
fn a_root_in_c_that_is_a_file() {
    run("root");
}

#[test]
fn a_session_in_c_that_ends_with_replies_owed() {
    run("ended");
}

#[test]
fn valgrind_runs_a_program_in_c() {
    let version = Command::new("valgrind").arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        say(format_args!("skipped: valgrind is not installed"));
        return;
    }
    // A program that uses its own mount would wait for itself without the hint.
    let hint = "--sim-hints=fuse-compatible";
    run_under(&["valgrind", "-q", "--error-exitcode=9", hint], "hello");
}
