//! What others change below is seen through the mount, although everything is cached for good.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::CStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bickford::abi::Opcode;
use bickford::layer::{Done, Interest, Layer, OperationKind, OperationSet, PostCalls, PreCalls};
use bickford::ops::{Entry, Lookup};
use bickford::{Errno, NodeId};
use bickford_stackfs::{Lower, Preset, StackFs};
use rustix::fs::{IFlags, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::thread::CapabilitySet;

use support::leased::{FOR_WRITING, Running, perl, waiting};
use support::watched::{
    Watched, below, hold_notifications, settings, watch, watched, watched_over,
};
use support::{Mount, Mounted, can_mount, permissions, until};

/// Generous: what is never told fails, whatever the load.
const DEADLINE: Duration = Duration::from_secs(30);
/// The minor version of the interface that brought `FUSE_NOTIFY_INC_EPOCH`.
const EPOCHS_SINCE: u32 = 44;

fn lookups(mount: &Mount) -> u64 {
    let stats = mount.session.stats();
    stats.of(Opcode::Lookup).count + stats.of(Opcode::Getattr).count
}

#[test]
fn names_come_and_go() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    assert!(fs::metadata(mount.path("f")).is_err());
    below(mount, "echo text > f");
    until("a new name", || mount.path("f").exists());
    below(mount, "mv f g");
    until("a name moved away", || !mount.path("f").exists());
    until("a name moved here", || mount.path("g").exists());
    below(mount, "mkdir d; mv g d/g; ln -s x l");
    until("a name in a new directory", || mount.path("d/g").exists());
    until("a link", || fs::read_link(mount.path("l")).is_ok());
    assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 2);
    below(mount, "rm -r d");
    until("a directory that is gone", || !mount.path("d").exists());
    until("a listing", || {
        fs::read_dir(mount.path("")).unwrap().count() == 1
    });
}

/// fanotify tells of the one directory, and the files of both are the same nodes.
#[test]
fn names_in_a_directory_that_is_bound_twice_are_not_cached_for_good() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| lower.path().join(name));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    rustix::mount::mount_bind(&first, &second).unwrap();
    let mount = Mount::over(lower, settings);
    rustix::mount::unmount(&second, UnmountFlags::DETACH).unwrap();
    let watched = watch(mount);
    let mount = &watched.mount;
    below(mount, "echo text > first/f; echo more > first/g");
    let name = mount.path("second/f");
    until("a new name", || name.exists());
    assert_eq!(fs::read(mount.path("first/f")).unwrap(), b"text\n");
    below(mount, "mv first/f first/h; mv first/g first/f");
    until("a name that is another's", || {
        fs::read(&name).is_ok_and(|text| text == b"more\n")
    });
    below(mount, "mv first/f first/g");
    until("a name that is gone", || !name.exists());
}

#[test]
fn data_and_attributes_change() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    below(mount, "printf one > f; chmod 600 f");
    until("the file", || mount.path("f").exists());
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"one");
    let open = fs::File::open(mount.path("f")).unwrap();
    below(mount, "printf two > f");
    until("data by name", || {
        fs::read(mount.path("f")).unwrap() == b"two"
    });
    let mut seen = [0; 3];
    until("data of an open file", || {
        open.read_exact_at(&mut seen, 0).is_ok() && &seen == b"two"
    });
    below(mount, "chmod 640 f");
    until("permissions", || {
        fs::metadata(mount.path("f")).unwrap().mode() & 0o777 == 0o640
    });
    below(mount, "ln f g");
    until("links", || {
        fs::metadata(mount.path("f")).unwrap().nlink() == 2
    });
    below(mount, "truncate -s 1000 f");
    until("a size", || {
        fs::metadata(mount.path("g")).unwrap().len() == 1000
    });
}

/// Or a page could be read again while a write to it is under way, and stay as it was.
#[test]
fn what_is_written_through_the_mount_stays_cached() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    if !caches_long(mount) {
        return;
    }
    below(mount, "printf one > f");
    let path = mount.path("f");
    until("the file", || path.exists());
    // What has been told comes in order: of the first file nothing is left to be told.
    assert!(!mount.path("g").exists());
    below(mount, "echo > g");
    until("a later one", || mount.path("g").exists());
    let reads = || mount.session.stats().of(Opcode::Read).count;
    let open = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut seen = [0; 3];
    open.read_exact_at(&mut seen, 0).unwrap();
    let before = reads();
    for data in [b"two", b"six"] {
        open.write_all_at(data, 0).unwrap();
        assert_eq!(open.metadata().unwrap().len(), 3);
        open.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, data);
        assert_eq!(fs::read(&path).unwrap(), data);
        fs::File::options().write(true).open(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
    }
    assert_eq!(reads(), before, "read again for a write of our own");
    below(mount, "printf ten | dd of=f conv=notrunc status=none");
    until("data of a file that is open for writing", || {
        open.read_exact_at(&mut seen, 0).is_ok() && &seen == b"ten"
    });
    drop(open);
    // A mapping below is written without a word.
    let before = reads();
    until("a file read again", || {
        assert_eq!(fs::read(&path).unwrap(), b"ten");
        reads() > before
    });
}

#[test]
fn what_does_not_change_is_asked_once() {
    let Some(watched) = watched() else { return };
    asked_once(&watched.mount);
}

/// Nodes of such a file system are in the table, by their handles.
#[test]
fn what_does_not_change_is_asked_once_where_nodes_are_in_the_table() {
    let Some((_point, _tmpfs, watched)) = watched_alone() else {
        return;
    };
    let mount = &watched.mount;
    assert_eq!(mount.stackfs.identity(), "table of file handles");
    asked_once(mount);
    below(mount, "echo longer >> f; mkdir d; echo > d/g");
    until("a size", || {
        fs::metadata(mount.path("f")).unwrap().len() == 8
    });
    until("a new name", || mount.path("d/g").exists());
}

/// Where the kernel cannot let all names expire at once, they are cached for a moment only.
fn caches_long(mount: &Mount) -> bool {
    let negotiated = mount.session.server().negotiated().unwrap();
    let long = negotiated.protocol.minor >= EPOCHS_SINCE;
    if !long {
        support::say(format_args!(
            "left out: what is watched is cached for long from Linux 6.16 on"
        ));
    }
    long
}

fn asked_once(mount: &Mount) {
    below(mount, "echo > f");
    until("the file", || mount.path("f").exists());
    if !caches_long(mount) {
        return;
    }
    // Longer than a second: a short timeout would be over, and the change above told twice.
    std::thread::sleep(Duration::from_millis(1500));
    fs::metadata(mount.path("f")).unwrap();
    let before = lookups(mount);
    std::thread::sleep(Duration::from_millis(1200));
    for _ in 0..100 {
        fs::metadata(mount.path("f")).unwrap();
        assert!(fs::metadata(mount.path("missing")).is_err());
    }
    assert!(
        lookups(mount) <= before + 2,
        "names and attributes are not cached"
    );
}

#[test]
fn names_stay_right_while_they_are_being_looked_up() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    below(mount, "mkdir d");
    until("the directory", || mount.path("d").exists());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    for number in 0..50 {
                        let _ = fs::metadata(mount.path(format!("d/{number}")));
                    }
                }
            });
        }
        for round in 0..5 {
            below(mount, "cd d; for n in $(seq 0 49); do : > $n; done");
            for number in 0..50 {
                until("a new name under load", || {
                    mount.path(format!("d/{number}")).exists()
                });
            }
            below(mount, "cd d; rm -f *");
            for number in 0..50 {
                until(&format!("a removed name under load, round {round}"), || {
                    !mount.path(format!("d/{number}")).exists()
                });
            }
        }
        ended.store(true, Ordering::SeqCst);
    });
}

#[test]
fn where_nothing_can_be_watched_the_cache_is_short() {
    if !can_mount() {
        return;
    }
    // Without file handles there is nothing to tell objects apart by.
    let mount = Mount::over(tempfile::tempdir().unwrap(), |builder| {
        builder
            .settings(Preset::Fast.settings().lower(Lower::Watch))
            .file_handles(false)
    });
    fs::set_permissions(mount.below(""), permissions(0o755)).unwrap();
    below(&mount, "echo > f");
    until("the file", || mount.path("f").exists());
    below(&mount, "rm f");
    until("that it is gone", || !mount.path("f").exists());
}

/// Nothing is told of other file systems.
#[test]
fn what_is_mounted_below_is_cached_shortly() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    fs::create_dir(lower.path().join("sub")).unwrap();
    let tmpfs = Mounted::at(&lower.path().join("sub"), "tmpfs", None);
    let watched = watched_over(lower);
    let mount = &watched.mount;
    below(mount, "echo a > sub/f; mkdir sub/d");
    // Open, so that the kernel does not happen to drop what it has cached.
    let held = ["sub/f", "sub/d"].map(|name| fs::File::open(mount.path(name)).unwrap());
    assert_eq!(fs::metadata(mount.path("sub/f")).unwrap().len(), 2);
    assert!(!mount.path("sub/g").exists());
    assert_eq!(fs::read_dir(mount.path("sub/d")).unwrap().count(), 0);
    below(mount, "echo bb >> sub/f; : > sub/g; : > sub/d/h");
    until("a size", || {
        fs::metadata(mount.path("sub/f")).unwrap().len() == 5
    });
    until("a new name", || mount.path("sub/g").exists());
    until("a listing", || {
        fs::read_dir(mount.path("sub/d")).unwrap().count() == 1
    });
    below(mount, "rm sub/f");
    until("that it is gone", || !mount.path("sub/f").exists());
    drop(held);
    // The directory that it is in goes with the mount.
    drop(tmpfs);
}

/// What fanotify tells are handles: who may not open them has nothing to tell the kernel.
#[test]
fn without_the_right_to_open_handles_nothing_is_watched() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let built = std::thread::scope(|scope| {
        let build = || {
            let mut fewer = rustix::thread::capabilities(None).unwrap();
            fewer.effective.remove(CapabilitySet::DAC_READ_SEARCH);
            rustix::thread::set_capabilities(None, fewer).unwrap();
            let settings = Preset::Fast.settings().lower(Lower::Watch);
            StackFs::builder(lower.path()).settings(settings).build()
        };
        scope.spawn(build).join().unwrap().unwrap()
    });
    assert_eq!(built.identity(), "descriptors");
    assert!(!built.is_watched());
}

/// The kernel holds the lock of a directory while its flags are changed, and takes it for each name
/// there that it is to forget: no answer may wait for the notifications before it.
#[test]
fn flags_of_a_directory_change_while_names_in_it_wait_to_be_told() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    below(mount, "mkdir d");
    until("the directory", || mount.path("d").exists());
    let directory = fs::File::open(mount.path("d")).unwrap();
    let held = hold_notifications(mount);
    below(mount, ": > d/f");
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let set = rustix::fs::ioctl_setflags(&directory, IFlags::NODUMP);
            done.send(set).unwrap();
        });
        let result = is_done.recv_timeout(DEADLINE);
        drop(held);
        assert_eq!(result, Ok(Ok(())), "the answer waits for notifications");
    });
    until("a new name", || mount.path("d/f").exists());
}

#[test]
fn flags_of_a_directory_change_while_others_make_names_in_it() {
    let Some(watched) = watched() else { return };
    let mount = &watched.mount;
    below(mount, "mkdir d");
    until("the directory", || mount.path("d").exists());
    let directory = fs::File::open(mount.path("d")).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                below(mount, "cd d; for n in $(seq 100); do : > $n; rm $n; done");
            }
        });
        for round in 0..400 {
            let flags = IFlags::NODUMP & IFlags::from_bits_retain(0u32.wrapping_sub(round % 2));
            rustix::fs::ioctl_setflags(&directory, flags).unwrap();
        }
        ended.store(true, Ordering::SeqCst);
    });
}

/// Keeps the answer to the LOOKUP of a name until it may go on.
struct Late {
    name: &'static CStr,
    begun: Sender<()>,
    until: Mutex<Receiver<()>>,
}

impl PreCalls for Late {}

impl PostCalls for Late {
    fn lookup(&self, _: &Done, op: &Lookup<'_>, _: &mut Result<Entry, Errno>) {
        if op.name == self.name {
            self.begun.send(()).unwrap();
            let _ = self.until.lock().unwrap().recv();
        }
    }
}

impl Layer for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn interest(&self) -> Interest {
        Interest {
            post: OperationSet::of(&[OperationKind::Lookup]),
            ..Interest::default()
        }
    }
}

/// The size of a file that changes before it is answered is seen. The kernel drops nothing of an inode that it is still
/// to hear of.
fn seen_while<T>(lower: tempfile::TempDir, begin: impl FnOnce(&Mount) -> T) {
    let (begun, begins) = channel();
    let (release, until_released) = channel();
    let layer = Late {
        name: c"f",
        begun,
        until: Mutex::new(until_released),
    };
    fs::write(lower.path().join("f"), "one").unwrap();
    let watched = watch(Mount::below_layer(layer, lower, settings));
    let mount = &watched.mount;
    let _meanwhile = begin(mount);
    // Where the time of birth is asked for, too, the kernel asks again.
    let size = || rustix::fs::stat(mount.path("f")).unwrap().st_size;
    std::thread::scope(|scope| {
        let asked = scope.spawn(size);
        begins.recv().unwrap();
        below(mount, "printf more >> f");
        // It is told meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        // Open, so that the kernel does not happen to drop what it has cached.
        let opened = scope.spawn(|| rustix::fs::open(mount.path("f"), OFlags::PATH, Mode::empty()));
        drop(release);
        asked.join().unwrap();
        let _opened = opened.join().unwrap().unwrap();
        until("a size", || size() == 7);
    });
}

#[test]
fn a_size_that_changes_before_it_is_answered_is_seen() {
    if can_mount() {
        seen_while(tempfile::tempdir().unwrap(), |_| ());
    }
}

#[test]
fn a_size_is_seen_while_somebody_waits_for_a_lease() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let leased = lower.path().join("leased");
    fs::write(&leased, "text").unwrap();
    let holder = Running::holding(FOR_WRITING, [leased]);
    seen_while(lower, |mount| {
        let reader = Running::new(perl("print <>", &[mount.path("leased")]));
        until("one waits", || waiting(mount, Opcode::Open) == 1);
        reader
    });
    drop(holder);
}

/// A watched directory on a file system that nobody else changes: its mount point, that, and the mount, to be
/// dropped the other way round.
fn watched_alone() -> Option<(tempfile::TempDir, Mounted, Watched)> {
    can_mount().then(|| {
        let point = tempfile::tempdir().unwrap();
        let tmpfs = Mounted::at(point.path(), "tmpfs", None);
        let lower = tempfile::tempdir_in(point.path()).unwrap();
        (point, tmpfs, watched_over(lower))
    })
}

/// Fills the queue of notifications, has `script` change what is below, and lets them go.
fn changed_while_the_queue_is_full(mount: &Mount, script: &str) {
    let held = hold_notifications(mount);
    let notifier = mount.session.notifier();
    let full = || notifier.invalidate_inode(NodeId(u64::MAX), -1, 0).is_err();
    while !full() {}
    below(mount, script);
    // It is told meanwhile, in vain.
    std::thread::sleep(Duration::from_millis(300));
    assert!(full());
    drop(held);
}

/// How many names are in a directory, of which no name is looked up.
fn count_in(directory: &OwnedFd) -> usize {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = rustix::fs::openat(directory, c".", flags, Mode::empty()).unwrap();
    rustix::fs::Dir::new(opened).unwrap().count() - 2
}

#[test]
fn what_is_told_to_a_full_queue_is_not_lost() {
    let Some((_point, _tmpfs, watched)) = watched_alone() else {
        return;
    };
    let mount = &watched.mount;
    below(mount, "printf one > f; printf one > g; mkdir d; : > d/old");
    until("the directory", || mount.path("d/old").exists());
    // What has changed is told twice.
    std::thread::sleep(Duration::from_millis(300));
    let path = |name: &str| {
        // As good as a current directory: no request, and the kernel drops nothing by itself.
        rustix::fs::open(mount.path(name), OFlags::PATH, Mode::empty()).unwrap()
    };
    let (file, directory) = (path("f"), path("d"));
    let open = fs::File::open(mount.path("g")).unwrap();
    let list = || count_in(&directory);
    assert_eq!(list(), 1);
    let listing = fs::File::open(mount.path("d")).unwrap();
    let size = || rustix::fs::stat(mount.path("f")).unwrap().st_size;
    assert_eq!((size(), rustix::fs::fstat(&open).unwrap().st_size), (3, 3));
    changed_while_the_queue_is_full(
        mount,
        "printf more >> f; printf more >> g; rm d/old; : > d/new; : > d/newer; chmod 700 d",
    );
    until("a size by name", || size() == 7);
    until("a size of an open file", || {
        rustix::fs::fstat(&open).unwrap().st_size == 7
    });
    until("the mode of an open directory", || {
        rustix::fs::fstat(&listing).unwrap().st_mode & 0o777 == 0o700
    });
    until("a listing", || list() == 2);
    drop((file, listing));
}

/// Nothing but opening it tells of such a directory.
#[test]
fn a_listing_that_the_queue_lost_is_read_again_when_the_directory_is_opened() {
    let Some((_point, _tmpfs, watched)) = watched_alone() else {
        return;
    };
    let mount = &watched.mount;
    below(mount, "mkdir d; : > d/old");
    until("the directory", || mount.path("d/old").exists());
    // What has changed is told twice.
    std::thread::sleep(Duration::from_millis(300));
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let directory = rustix::fs::open(mount.path("d"), flags, Mode::empty()).unwrap();
    let list = || count_in(&directory);
    assert_eq!(list(), 1);
    changed_while_the_queue_is_full(mount, ": > d/new");
    until("a listing", || list() == 2);
}
