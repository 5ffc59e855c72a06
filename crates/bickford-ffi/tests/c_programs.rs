//! Programs in C over the interface, each mounting for itself under a watchdog.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail so")]

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford::mount::{Unmount, unmount};
use bickford_ffi::abi::BICKFORD_ABI_VERSION;

const DEADLINE: Duration = Duration::from_secs(60);

/// Compiles a program of `tests/c`.
fn compile(name: &str, into: &Path) -> PathBuf {
    compile_from("tests/c", name, into)
}

fn compile_from(sources: &str, name: &str, into: &Path) -> PathBuf {
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
fn clean_up(mountpoint: &Path) {
    while rustix::mount::unmount(mountpoint, rustix::mount::UnmountFlags::DETACH).is_ok() {}
}

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

fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !may {
        say(format_args!("skipped: needs root and /dev/fuse"));
    }
    may
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

/// Writes to standard error where the output of tests that pass is captured, too.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
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
fn each_operation_over_paths_in_c() {
    run("paths");
}

/// As README.md has it, but for where the library is.
#[test]
fn the_example_says_hello() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile_from("../../examples/c", "hello", place.path());
    let mountpoint = place.path().join("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let child = Command::new(&program).arg(&mountpoint).spawn().unwrap();
    let asks = mountpoint.clone();
    let asking = std::thread::spawn(move || {
        let until = Instant::now() + DEADLINE / 2;
        while Instant::now() < until {
            if let Ok(text) = std::fs::read_to_string(asks.join("hello")) {
                let names = std::fs::read_dir(&asks).unwrap();
                let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
                unmount(&asks, Unmount::Lazy).unwrap();
                return Some((text, names));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    });
    watch(child, &mountpoint);
    let (text, names) = asking.join().unwrap().expect("it is mounted");
    assert_eq!(
        (text.as_str(), names),
        ("Hello, world!\n", vec!["hello".into()])
    );
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
