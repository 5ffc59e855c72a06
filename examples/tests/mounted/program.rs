//! What a program that serves a file system does around it, shown by `memfs` and others: the command line, the
//! background, mount(8), remounting, and the end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bickford::mount::MountEntry;
use bickford::trace::control;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::example::{can_mount, lazily_unmount, say};

const MEMFS: &str = env!("CARGO_BIN_EXE_memfs");
const HELLO: &str = env!("CARGO_BIN_EXE_hello-path");

/// How long a test may take; its connection is aborted then.
const DEADLINE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(10);

/// A directory with a mount point, and a watchdog. Unmounted when dropped.
struct Place {
    directory: tempfile::TempDir,
    end: Option<Sender<()>>,
    watchdog: Option<JoinHandle<()>>,
}

impl Place {
    /// Nothing where this machine cannot mount.
    fn new() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mountpoint = directory.path().join("mount");
        fs::create_dir(&mountpoint).unwrap();
        let (end, ended) = channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if ended.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
                abort(&mountpoint);
            }
        });
        Some(Self {
            directory,
            end: Some(end),
            watchdog: Some(watchdog),
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    fn entry(&self) -> Option<MountEntry> {
        MountEntry::at(&self.path()).unwrap()
    }

    /// The process that serves it.
    fn daemon(&self) -> Pid {
        let entry = self.entry().expect("it is mounted");
        let sockets = control::find(entry.connection(), entry.owner().unwrap());
        let socket = sockets.into_iter().flatten().next().unwrap();
        let peer = control::connect(&socket.address()).unwrap();
        socket_peercred(peer).unwrap().pid
    }

    fn run(&self, program: &str, before: &[&str], after: &[&str]) -> Output {
        // Whatever it waits for without a mount.
        let mut command = Command::new("timeout");
        command.arg("100").arg(program);
        command.args(before).arg(self.path()).args(after);
        command.output().unwrap()
    }

    /// Links `name` to a program, as the system has them.
    fn link(&self, program: &str, name: &str) -> String {
        let link = self.directory.path().join(name);
        symlink(program, &link).unwrap();
        link.display().to_string()
    }

    /// Ends with an unmount as by umount(8), and with it the daemon.
    fn finish(self) {
        let daemon = self.daemon();
        let status = Command::new("umount").arg(self.path()).status().unwrap();
        assert!(status.success());
        await_end(daemon);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.entry().is_some() {
            lazily_unmount(&self.path());
        }
        drop(self.end.take());
        if let Some(watchdog) = self.watchdog.take() {
            drop(watchdog.join());
        }
    }
}

fn abort(mountpoint: &Path) {
    let entry = MountEntry::at(mountpoint).ok().flatten();
    let Some(entry) = entry.filter(MountEntry::is_fuse) else {
        eprintln!("watchdog: nothing is mounted, and the test goes on");
        return;
    };
    let connection = format!("/sys/fs/fuse/connections/{}", entry.connection());
    let waiting = fs::read_to_string(format!("{connection}/waiting"));
    eprintln!("watchdog: {waiting:?} requests wait after {DEADLINE:?}");
    eprintln!("{:?}", fs::write(format!("{connection}/abort"), "1"));
    lazily_unmount(mountpoint);
}

fn await_end(process: Pid) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while test_kill_process(process).is_ok() {
        assert!(Instant::now() < deadline, "{process:?} does not end");
        std::thread::sleep(PAUSE);
    }
}

#[track_caller]
fn assert_silent(output: &Output) {
    assert!(
        output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[track_caller]
fn assert_refused(output: &Output, status: i32, parts: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{told}");
    for part in parts {
        assert!(told.contains(part), "{part:?} in {told:?}");
    }
}

fn bytes_and_files(mountpoint: &Path) -> (u64, u64) {
    let all = rustix::fs::statvfs(mountpoint).unwrap();
    (all.f_blocks * all.f_frsize, all.f_files)
}

#[test]
fn it_returns_when_the_mount_answers_and_ends_with_it() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.run(HELLO, &[], &[]));
    let entry = place.entry().expect("it is mounted");
    assert_eq!(entry.fs_type, "fuse.hello-path");
    assert_eq!(entry.source, "hello-path");
    assert_eq!(fs::read(place.path().join("hello")).unwrap().len(), 14);
    let name = fs::read_to_string(format!("/proc/{}/comm", place.daemon())).unwrap();
    assert_eq!(name, "hello-path\n");
    let directory = fs::read_link(format!("/proc/{}/cwd", place.daemon())).unwrap();
    assert_eq!(directory, Path::new("/"));
    place.finish();
}

#[test]
fn a_signal_to_the_daemon_unmounts() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.run(HELLO, &[], &[]));
    let daemon = place.daemon();
    kill_process(daemon, Signal::TERM).unwrap();
    await_end(daemon);
    assert!(place.entry().is_none(), "still mounted");
}

#[test]
fn flags_of_its_own_stand_in_options_too() {
    let Some(place) = Place::new() else { return };
    let options = ["-o", "size=4M,inodes=100,fsname=here,noatime"];
    assert_silent(&place.run(MEMFS, &["anything", "--inodes", "50"], &options));
    assert_eq!(bytes_and_files(&place.path()), (4 << 20, 50));
    let entry = place.entry().unwrap();
    assert_eq!(
        (entry.fs_type.as_str(), &*entry.source),
        ("fuse.memfs", "here".as_ref())
    );
    assert!(
        entry
            .flags()
            .contains(bickford::mount::GenericFlags::NO_ATIME)
    );
    place.finish();
}

#[test]
fn limits_of_the_kernel_are_whoever_mounts_choice() {
    let Some(place) = Place::new() else { return };
    let options = "max_background=9,congestion-threshold=5,request_timeout=0";
    assert_silent(&place.run(HELLO, &[], &["-o", options]));
    let connection = place.entry().unwrap().connection();
    let settled = |name: &str| {
        let path = format!("/sys/fs/fuse/connections/{connection}/{name}");
        fs::read_to_string(path).unwrap()
    };
    assert_eq!(settled("max_background"), "9\n");
    assert_eq!(settled("congestion_threshold"), "5\n");
    lazily_unmount(&place.path());
    let refused = place.run(HELLO, &["--max-background=0"], &[]);
    assert_refused(&refused, 2, &["--max-background <N>", "1..=65535"]);
}

/// With `attr_timeout=0` each fstat(2) is a request.
#[test]
fn options_of_file_systems_over_paths_hold() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.run(HELLO, &[], &["-o", "attr_timeout=0,umask=027,uid=77"]));
    let file = fs::File::open(place.path().join("hello")).unwrap();
    let requests = || {
        let entry = place.entry().unwrap();
        let sockets = control::find(entry.connection(), entry.owner().unwrap());
        let socket = sockets.into_iter().flatten().next().unwrap();
        let snapshot = control::snapshot(&socket.address()).unwrap();
        let mut rows = snapshot.opcodes.into_iter();
        rows.find(|row| row.name == "GETATTR")
            .map_or(0, |row| row.count)
    };
    let before = requests();
    let attributes = rustix::fs::fstat(&file).unwrap();
    assert_eq!(
        (attributes.st_mode & 0o7777, attributes.st_uid),
        (0o750, 77)
    );
    assert!(requests() > before);
    drop(file);
    place.finish();
}

#[test]
fn what_is_wrong_is_said_before_anything_is_mounted() {
    let Some(place) = Place::new() else { return };
    let refused = |program: &str, before: &[&str], after: &[&str], status, parts: &[&str]| {
        assert_refused(&place.run(program, before, after), status, parts);
        assert!(place.entry().is_none(), "it is mounted");
    };
    refused(
        MEMFS,
        &[],
        &["-o", "siz=5"],
        1,
        &["memfs: ", "'siz'", "'size'", "memfs --help"],
    );
    refused(MEMFS, &[], &["-o", "size=5X"], 2, &["--size", "64K"]);
    refused(HELLO, &[], &["-o", "umask=9"], 1, &["umask", "octal"]);
    // A file system over inodes has no such options.
    refused(
        env!("CARGO_BIN_EXE_hello"),
        &[],
        &["-o", "umask=022"],
        1,
        &["'umask'"],
    );
    refused(
        HELLO,
        &[],
        &["--layer", "log"],
        1,
        &["log:file=PATH", "(-f)"],
    );
    refused(
        HELLO,
        &[],
        &["--layer", "lag:x=y"],
        1,
        &["layer lag", "no layer of this name"],
    );
    refused(
        HELLO,
        &[],
        &["--log", "hello_pat=debug"],
        1,
        &["hello_path"],
    );
    let archive = env!("CARGO_BIN_EXE_archive");
    refused(
        archive,
        &["/no/such.tar"],
        &[],
        1,
        &["archive: /no/such.tar: No such file"],
    );
    refused(archive, &["/no/such.tar"], &["-f"], 1, &["/no/such.tar"]);
    refused(archive, &[], &[], 2, &["<FILE.tar> <MOUNTPOINT>"]);
}

#[test]
fn layers_stand_over_it() {
    let Some(place) = Place::new() else { return };
    let log = place.directory.path().join("log");
    let log = format!("log:file={}", log.display());
    assert_silent(&place.run(MEMFS, &["--layer", &log], &["-o", "layer=readonly"]));
    let refused = fs::write(place.path().join("file"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // What stands in options comes first, and is the outer one. Lines are written a little later.
    let written = || fs::read_to_string(place.directory.path().join("log")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !written().contains("lookup /file") {
        assert!(Instant::now() < deadline, "{}", written());
        std::thread::sleep(PAUSE);
    }
    assert!(!written().contains("create"), "{}", written());
    place.finish();
}

/// mount(8) says `rw` where nobody has said anything.
#[test]
fn what_a_program_insists_on_holds() {
    let Some(place) = Place::new() else { return };
    let tar = place.directory.path().join("empty.tar");
    fs::write(&tar, [0; 1024]).unwrap();
    let tar = tar.display().to_string();
    let archive = env!("CARGO_BIN_EXE_archive");
    assert_silent(&place.run(archive, &[&tar], &["-o", "rw,dev,suid"]));
    let entry = place.entry().unwrap();
    assert!(
        entry
            .flags()
            .contains(bickford::mount::GenericFlags::READ_ONLY)
    );
    assert_eq!(entry.source, tar.as_str());
    place.finish();
}

#[test]
fn a_helper_of_mount_answers_as_mount_wants() {
    let Some(place) = Place::new() else { return };
    let helper = place.link(MEMFS, "mount.fuse.memfs");
    let call = |after: &[&str]| place.run(&helper, &["none"], after);
    assert_silent(&call(&["-f", "-o", "rw,size=1M"]));
    assert!(place.entry().is_none(), "-f mounts nothing");
    assert_refused(&call(&["-f", "-o", "siz=1M"]), 32, &["'siz'"]);
    assert_refused(&call(&["-x"]), 1, &["'-x'"]);
    assert_refused(&call(&["-o", "size=x"]), 1, &["--size"]);
    assert_silent(&call(&["-s", "-o", "rw,nonsense,size=1M"]));
    assert_eq!(bytes_and_files(&place.path()).0, 1 << 20);
    place.finish();
}

#[test]
fn mount_fuse3_finds_it_and_changes_its_flags() {
    let Some(place) = Place::new() else { return };
    if !Path::new("/sbin/mount.fuse3").exists() {
        say(format_args!(
            "SKIPPED: no /sbin/mount.fuse3; install the fuse3 package"
        ));
        return;
    }
    let program = place.link(HELLO, "hello-path");
    let found = Path::new(&program).parent().unwrap().display();
    let path = format!("{found}:{}", std::env::var("PATH").unwrap());
    let mount = |options: &str| {
        let mut command = Command::new("/sbin/mount.fuse3");
        command.env("PATH", &path).arg("none").arg(place.path());
        let output = command
            .args(["-t", "fuse.hello-path", "-o", options])
            .output();
        output.unwrap()
    };
    assert_silent(&mount("ro,entry_timeout=60,x-systemd.automount"));
    let read_only = || {
        let flags = place.entry().unwrap().flags();
        flags.contains(bickford::mount::GenericFlags::READ_ONLY)
    };
    assert!(read_only());
    assert_eq!(place.entry().unwrap().source, "none");
    assert_silent(&mount("remount,rw,entry_timeout=60"));
    assert!(!read_only());
    let refused = mount("remount,ro,entry_timeout=61");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("'entry_timeout=61' is not in force"),
        "{told}"
    );
    assert!(!read_only());
    place.finish();
}

/// As mount(8) does it, which names the options that the mount has.
#[test]
fn a_mount_of_a_block_device_is_remounted() {
    let Some(place) = Place::new() else { return };
    let image = place.directory.path().join("image");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let mut attach = Command::new("losetup");
    let attached = attach.args(["--find", "--show"]).arg(&image).output();
    let attached = match attached {
        Ok(attached) if attached.status.success() => attached,
        other => return say(format_args!("SKIPPED: no loop devices: {other:?}")),
    };
    let device = String::from_utf8(attached.stdout).unwrap();
    let device = device.trim();
    let mounted = place.run(HELLO, &["-o", "blkdev", device], &[]);
    let options = "remount,ro,blkdev,subtype=hello-path";
    let remounted = place.run(HELLO, &["-o", options, device], &[]);
    let entry = place.entry();
    let other = place.run(HELLO, &["-o", "remount,rw,blksize=512", device], &[]);
    lazily_unmount(&place.path());
    let detached = Command::new("losetup").args(["-d", device]).status();
    assert!(detached.unwrap().success());
    assert_silent(&mounted);
    assert_silent(&remounted);
    let entry = entry.unwrap();
    assert_eq!(entry.fs_type, "fuseblk.hello-path");
    let read_only = bickford::mount::GenericFlags::READ_ONLY;
    assert!(entry.flags().contains(read_only));
    assert_refused(&other, 1, &["'blksize=512' is not in force"]);
}

/// Whoever ends the program while it begins leaves no mount.
#[test]
fn one_that_is_ended_while_it_opens_mounts_nothing() {
    let Some(place) = Place::new() else { return };
    let fifo = place.directory.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    // Opening it waits for a writer, which never comes.
    let mut command = Command::new(env!("CARGO_BIN_EXE_archive"));
    let mut child = command.arg(&fifo).arg(place.path()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success(), "{status}");
    assert!(place.entry().is_none());
    // Nobody is left who waits for the file.
    let deadline = Instant::now() + Duration::from_secs(30);
    let opens = || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).is_ok()
    };
    while opens() {
        assert!(Instant::now() < deadline, "a process still waits");
        std::thread::sleep(PAUSE);
    }
}
