//! Attributes that were read before a change and reach the kernel after it, or after the change and before its answer.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bickford::Errno;
use bickford::abi::InitFlags;
use bickford::layer::{Done, Interest, Layer, OperationKind, OperationSet, PostCalls, PreCalls};
use bickford::ops::{Attributes, Getattr, Rename, Unlink};
use bickford_stackfs::{IoMode, Preset};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, StatxFlags, XattrFlags};
use support::{Mount, can_mount, with_io};

/// Keeps an answer of a kind that it has been told to until it may go on.
struct Late {
    of: OperationSet,
    keeps: Mutex<Receiver<Held>>,
}

/// Says that the answer is there, and waits.
struct Held {
    begun: Sender<()>,
    until: Receiver<()>,
}

impl PreCalls for Late {}

impl Late {
    fn of(of: &[OperationKind]) -> (Self, Sender<Held>) {
        let (keep, keeps) = channel();
        let late = Self {
            of: OperationSet::of(of),
            keeps: Mutex::new(keeps),
        };
        (late, keep)
    }

    fn keeps(&self) {
        let held = self.keeps.lock().unwrap().try_recv();
        if let Ok(held) = held {
            held.begun.send(()).unwrap();
            let _ = held.until.recv();
        }
    }
}

impl PostCalls for Late {
    fn getattr(&self, _: &Done, _: &Getattr, _: &mut Result<Attributes, Errno>) {
        self.keeps();
    }

    fn unlink(&self, _: &Done, _: &Unlink<'_>, _: &mut Result<(), Errno>) {
        self.keeps();
    }

    fn rename(&self, _: &Done, _: &Rename<'_>, _: &mut Result<(), Errno>) {
        self.keeps();
    }
}

impl Layer for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn interest(&self) -> Interest {
        Interest {
            post: self.of,
            ..Interest::default()
        }
    }
}

/// Version 2: everybody may do what these bits say, by an ACL with a mask.
fn acl(permissions: u16) -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    // Owner, group, mask and others.
    for tag in [1_u16, 4, 16, 32] {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(u32::MAX.to_le_bytes());
    }
    acl
}

/// Mode, link count, and times of modification and of change.
fn told(path: &Path) -> (u32, u64, [i64; 4]) {
    let stat = fs::symlink_metadata(path).unwrap();
    let times = [
        stat.mtime(),
        stat.mtime_nsec(),
        stat.ctime(),
        stat.ctime_nsec(),
    ];
    (stat.mode(), stat.nlink(), times)
}

/// Asks below, whatever is cached.
fn ask(path: &Path) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).unwrap();
}

fn opened(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Writes a byte through a mapping, which has reached the file below when this returns.
fn write_mapped(path: &Path) {
    if !support::offers(InitFlags::DIRECT_IO_ALLOW_MMAP) {
        return support::say(format_args!(
            "left out: files with direct I/O are mapped from Linux 6.6 on"
        ));
    }
    let write = "import mmap, sys
with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[0] = 7
    mapped.flush()";
    let mut python = Command::new("python3");
    let status = python.args(["-c", write]).arg(path).status().unwrap();
    assert!(status.success());
}

/// The name of a file, the one that it has after a change, and the change.
type Change<'a> = (&'a str, &'a str, &'a dyn Fn(&Mount));

/// What changes of a file of 8 KiB lead to, where its attributes were read before it and arrive after it: they are as
/// below. False where the machine was too busy: an answer that takes a second is not thought of. Not `late`, nothing is
/// asked.
fn sees_late_answers(preset: Preset, changes: &[Change<'_>], late: bool) -> bool {
    let (layer, keep) = Late::of(&[OperationKind::Getattr]);
    let lower = tempfile::tempdir().unwrap();
    fs::write(lower.path().join("f"), [1; 8192]).unwrap();
    fs::write(lower.path().join("other"), "").unwrap();
    // With its write-back cache the kernel would tell a time of its own.
    let settings = with_io(preset.settings(), IoMode::Direct);
    let mount = Mount::below_layer(layer, lower, |builder| builder.settings(settings));
    for (before, after, change) in changes {
        let (before, after) = (&mount.path(before), (mount.path(after), mount.below(after)));
        let (begun, begins) = channel();
        let (release, until) = channel();
        let since = Instant::now();
        if late {
            std::thread::scope(|scope| {
                keep.send(Held { begun, until }).unwrap();
                let asked = scope.spawn(|| ask(before));
                begins.recv().unwrap();
                change(&mount);
                drop::<Sender<()>>(release);
                asked.join().unwrap();
            });
        } else {
            change(&mount);
        }
        if since.elapsed() > Duration::from_millis(500) {
            return false;
        }
        assert_eq!(told(&after.0), told(&after.1), "{}", after.0.display());
    }
    true
}

#[test]
fn what_a_request_changes_is_seen_whoever_asked_before() {
    const ACL: &str = "system.posix_acl_access";
    if !can_mount() {
        return;
    }
    let set = |mount: &Mount, name: &str, value: &[u8]| {
        rustix::fs::setxattr(mount.path("f"), name, value, XattrFlags::empty()).unwrap();
    };
    let rename = |mount: &Mount, from: &str, to: &str, flags| {
        let (from, to) = (mount.path(from), mount.path(to));
        rustix::fs::renameat_with(CWD, from, CWD, to, flags).unwrap();
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let changes: &[Change<'_>] = &[
        ("f", "f", &|mount| set(mount, ACL, &acl(7))),
        ("f", "f", &|mount| set(mount, "user.name", b"value")),
        ("f", "f", &|mount| {
            rustix::fs::removexattr(mount.path("f"), "user.name").unwrap();
        }),
        ("f", "f", &|mount| write_mapped(&mount.path("f"))),
        ("f", "f", &|mount| {
            let file = opened(&mount.path("f"));
            rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
        }),
        ("f", "g", &|mount| {
            rename(mount, "f", "g", RenameFlags::empty())
        }),
        ("g", "other", &|mount| {
            rename(mount, "g", "other", RenameFlags::EXCHANGE);
        }),
        ("other", "g", &|mount| {
            rename(mount, "g", "other", RenameFlags::EXCHANGE);
        }),
        (".", ".", &|mount| {
            drop(File::create(mount.path("made")).unwrap())
        }),
    ];
    for preset in [Preset::Fast, Preset::Opt] {
        if !(0..20).any(|_| sees_late_answers(preset, changes, true)) {
            let is_busy = !sees_late_answers(preset, changes, false);
            let preset = preset.name();
            assert!(is_busy, "{preset}: changes wait for answers that are late");
            support::say(format_args!(
                "left out: late answers with {preset}: this machine is too busy"
            ));
        }
    }
}

/// A file with names `f`, `g` and `h`, and another one; `g` is removed or replaced, and before that is answered
/// somebody `asks`.
fn lose_a_name(preset: Preset, remove: impl Fn(&Mount) + Sync, asks: impl Fn(&Mount)) {
    let (layer, keep) = Late::of(&[OperationKind::Unlink, OperationKind::Rename]);
    let lower = tempfile::tempdir().unwrap();
    fs::write(lower.path().join("f"), "").unwrap();
    for name in ["g", "h"] {
        fs::hard_link(lower.path().join("f"), lower.path().join(name)).unwrap();
    }
    fs::write(lower.path().join("other"), "").unwrap();
    let settings = preset.settings();
    let mount = Mount::below_layer(layer, lower, |builder| builder.settings(settings));
    assert_eq!(fs::metadata(mount.path("f")).unwrap().nlink(), 3);
    let (begun, begins) = channel();
    let (release, until) = channel();
    keep.send(Held { begun, until }).unwrap();
    std::thread::scope(|scope| {
        let removes = scope.spawn(|| remove(&mount));
        begins.recv().unwrap();
        asks(&mount);
        drop::<Sender<()>>(release);
        removes.join().unwrap();
    });
    assert_eq!(fs::metadata(mount.path("f")).unwrap().nlink(), 2);
    fs::remove_file(mount.path("h")).unwrap();
    // The kernel itself refuses it for a file that it takes to have no name.
    fs::hard_link(mount.path("f"), mount.path("link")).unwrap();
    assert_eq!(fs::metadata(mount.path("f")).unwrap().nlink(), 2);
}

#[test]
fn the_link_count_is_right_whoever_asks_while_a_name_goes() {
    if !can_mount() {
        return;
    }
    let removals: [&(dyn Fn(&Mount) + Sync); 2] = [
        &|mount| fs::remove_file(mount.path("g")).unwrap(),
        &|mount| fs::rename(mount.path("other"), mount.path("g")).unwrap(),
    ];
    // Other names are in the directory whose lock the kernel holds meanwhile: what it knows can be asked for.
    for preset in [Preset::Fast, Preset::Opt] {
        for remove in removals {
            lose_a_name(preset, remove, |mount| ask(&mount.path("f")));
            lose_a_name(preset, remove, |_| ());
        }
    }
}
