//! Programs in C over the interface, each mounting for itself under a watchdog.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail so")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford::mount::{Unmount, unmount};

const DEADLINE: Duration = Duration::from_secs(60);

fn compile(name: &str, into: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = std::env::current_exe().unwrap();
    let libraries = libraries.parent().unwrap();
    let program = into.join(name);
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
        .arg(root.join("tests/c").join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg(libraries.join("libbickford_ffi.so"))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .status()
        .unwrap();
    assert!(status.success(), "cc: {status}");
    program
}

/// Waits for a program. When it is late, its mounts are taken away and it is killed.
fn watch(mut child: Child, mountpoint: &Path) {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "the program: {status}");
            return;
        }
        if Instant::now() > until {
            let _ = unmount(mountpoint, Unmount::Force);
            let _ = child.kill();
            let _ = child.wait();
            panic!("the program did not end within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !may {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    may
}

#[test]
fn hello_in_c() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile("hello", place.path());
    let mountpoint = place.path().join("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let child = Command::new(program)
        .arg(&mountpoint)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    watch(child, &mountpoint);
}
