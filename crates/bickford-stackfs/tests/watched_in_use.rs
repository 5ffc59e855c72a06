//! Names that others make below are used through the mount before they have been told, and what is written
//! there without being told.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::watched::{below, hold_notifications, watched};
use support::{Mount, Mounted, until};

/// Ended when the test fails, too.
struct Running(Child);

impl Running {
    fn sleep(command: &mut Command) -> Self {
        Self(command.arg("60").spawn().unwrap())
    }

    fn link(&self, of: &str) -> PathBuf {
        fs::read_link(format!("/proc/{}/{of}", self.0.id())).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn is_mountpoint(mount: &Mount, name: &str) -> bool {
    let point = mount.path(name).canonicalize().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == point.to_str())
}

#[test]
fn what_is_in_use_by_a_name_stays_when_the_name_is_told() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    let held = hold_notifications(mount);
    below(mount, "mkdir mounted current; cp /bin/sleep program");
    let tmpfs = Mounted::at(&mount.path("mounted"), "tmpfs", None);
    let current = Running::sleep(Command::new("sleep").current_dir(mount.path("current")));
    let running = Running::sleep(&mut Command::new(mount.path("program")));
    drop(held);
    // What has changed is told twice.
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_mountpoint(mount, "mounted"));
    let place = |name| mount.path(name).canonicalize().unwrap();
    assert_eq!(current.link("cwd"), place("current"));
    assert_eq!(running.link("exe"), place("program"));
    drop((tmpfs, running));
    below(mount, "rmdir current");
    until("a directory that is gone", || {
        !mount.path("current").exists()
    });
    assert!(current.link("cwd").to_str().unwrap().ends_with("(deleted)"));
}

/// The kernel would have it by both names, and refuse the new one while the old directory is locked.
#[test]
fn a_directory_that_moves_is_found_while_names_are_made_where_it_was() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    below(mount, "mkdir -p from/d/inner to; echo > from/d/inner/f");
    until("the file", || mount.path("from/d/inner/f").exists());
    assert!(!mount.path("to/d").exists());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (name, ended) = (mount.path(format!("from/{number}")), &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    fs::write(&name, "").unwrap();
                    fs::remove_file(&name).unwrap();
                }
            });
        }
        below(mount, "mv from/d to/d");
        until("the name there", || mount.path("to/d/inner/f").exists());
        ended.store(true, Ordering::SeqCst);
    });
}

/// Writes that are not told as such: by io_submit(2), and through a mapping.
const UNTOLD: [&str; 2] = [
    r"
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
number = {'x86_64': (206, 209, 208), 'aarch64': (0, 2, 4)}[os.uname().machine]
file = os.open('f', os.O_RDWR)
context = ctypes.c_ulong(0)
assert libc.syscall(number[0], 1, ctypes.byref(context)) == 0
data = ctypes.create_string_buffer(b'two', 3)
block = ctypes.create_string_buffer(struct.pack(
    '<QIiHhIQQqQII', 0, 0, 0, 1, 0, file, ctypes.addressof(data), 3, 0, 0, 0, 0))
blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
assert libc.syscall(number[1], context, 1, blocks) == 1
events = ctypes.create_string_buffer(32)
assert libc.syscall(number[2], context, 1, 1, events, None) == 1
",
    r"
import mmap
with open('f', 'r+b') as file, mmap.mmap(file.fileno(), 3) as memory:
    memory[0:3] = b'two'
",
];

#[test]
fn what_is_written_without_a_word_is_seen_when_its_writer_has_closed_the_file() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    for script in UNTOLD {
        below(mount, "printf one > f");
        let open = fs::File::open(mount.path("f")).unwrap();
        let reads = |data: &[u8; 3]| {
            let mut seen = [0; 3];
            open.read_exact_at(&mut seen, 0).is_ok() && &seen == data
        };
        until("what was written first", || reads(b"one"));
        // What has changed is told twice.
        std::thread::sleep(Duration::from_millis(300));
        assert!(reads(b"one"));
        let written = Command::new("python3")
            .arg("-c")
            .arg(script)
            .current_dir(mount.below(""))
            .status();
        let Ok(status) = written else {
            support::say(format_args!("left out: there is no python3"));
            return;
        };
        assert!(status.success());
        until("what was written then", || reads(b"two"));
    }
}
