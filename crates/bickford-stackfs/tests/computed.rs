//! Files whose contents are made when they are read have them through a mount, too, whatever size they tell.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford::dispatch::InFlightRequest;
use bickford_stackfs::{IoMode, Preset};
use support::{Mount, Mounted, can_mount, has, with_io};

/// What tells its size as 0 and never changes.
const FILE: &str = "kernel/ostype";

#[test]
fn files_of_procfs_below_source_have_contents() {
    if !can_mount() {
        return;
    }
    let native = fs::read_to_string(Path::new("/proc/sys").join(FILE)).unwrap();
    assert!(!native.is_empty());
    // With `cached` files the kernel opens them unasked.
    for (preset, io) in [
        (Preset::Base, IoMode::Plain),
        (Preset::Opt, IoMode::Plain),
        (Preset::Fast, IoMode::Passthrough),
        (Preset::Fast, IoMode::Direct),
    ]
    .into_iter()
    .filter(|(_, io)| has(io))
    {
        let settings = with_io(preset.settings(), io);
        let lower = tempfile::tempdir().unwrap();
        let bound = Mounted::bound("/proc/sys", &lower.path().join("sys"));
        fs::write(lower.path().join("file"), "by size").unwrap();
        let mount = Mount::over(lower, |builder| builder.settings(settings));
        for _ in 0..2 {
            let shown = fs::read_to_string(mount.path("sys").join(FILE)).unwrap();
            assert_eq!(shown, native, "{} {}", preset.name(), io.name());
            assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "by size");
        }
        drop(bound);
        drop(mount);
    }
}

const NOBODY: u32 = 65_534;

/// A process of root, ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A control group, removed with the test.
struct Group {
    path: PathBuf,
    /// Whoever may have been moved to it.
    process: String,
}

impl Group {
    fn new(path: PathBuf, process: String) -> Self {
        fs::create_dir(&path).unwrap();
        Self { path, process }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::write(self.path.join("../cgroup.procs"), &self.process).unwrap();
        fs::remove_dir(&self.path).unwrap();
    }
}

/// What `script` says as a user without rights, with `path` as its argument; none where it fails.
fn as_nobody(script: &str, path: &Path) -> Option<String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(path);
    shell.uid(NOBODY).gid(NOBODY).stderr(Stdio::null());
    let output = shell.output().unwrap();
    let said = output.status.success().then_some(output.stdout);
    said.map(|said| String::from_utf8(said).unwrap())
}

const MODES: [IoMode; 4] = [
    IoMode::Plain,
    IoMode::Passthrough,
    IoMode::Direct,
    IoMode::Cached,
];

fn mounted(lower: tempfile::TempDir, io: IoMode) -> Mount {
    let settings = with_io(Preset::Fast.settings(), io);
    Mount::over(lower, |builder| builder.settings(settings))
}

#[test]
fn procfs_tells_nobody_more_than_it_would_itself() {
    if !can_mount() {
        return;
    }
    let sleeper = Sleeper::new();
    let process = sleeper.0.id().to_string();
    for io in MODES.into_iter().filter(has) {
        let lower = tempfile::tempdir().unwrap();
        let bound = Mounted::bound("/proc", &lower.path().join("proc"));
        let mount = mounted(lower, io);
        let shown = mount.path("proc").join(&process);
        let native = Path::new("/proc").join(&process);
        // As root first, whose files are not to serve others.
        let held = fs::File::open(shown.join("maps")).unwrap();
        if io != IoMode::Cached {
            assert!(!fs::read(shown.join("maps")).unwrap().is_empty());
            let stat = as_nobody("cat $1", &shown.join("stat")).unwrap();
            assert_eq!(stat, as_nobody("cat $1", &native.join("stat")).unwrap());
        }
        let link = |path: &Path| fs::read_link(path.join("exe")).unwrap();
        assert_eq!(link(&shown), link(&native));
        for (script, file) in [("cat $1", "maps"), ("readlink $1", "exe")] {
            assert_eq!(as_nobody(script, &native.join(file)), None, "{file}");
            let said = as_nobody(script, &shown.join(file));
            assert_eq!(said.unwrap_or_default(), "", "{} {file}", io.name());
        }
        drop((held, bound, mount));
    }
}

#[test]
fn a_symbolic_link_of_procfs_leads_where_it_leads_now() {
    if !can_mount() {
        return;
    }
    for io in MODES.into_iter().filter(has) {
        let lower = tempfile::tempdir().unwrap();
        let bound = Mounted::bound("/proc", &lower.path().join("proc"));
        std::os::unix::fs::symlink("to", lower.path().join("link")).unwrap();
        let mount = mounted(lower, io);
        // Waits in one directory, and then in another.
        let script = "cd /; echo; read line; cd /proc; echo; read line";
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]).stdin(Stdio::piped());
        let mut shell = shell.stdout(Stdio::piped()).spawn().unwrap();
        let (mut said, mut told) = (shell.stdout.take().unwrap(), shell.stdin.take().unwrap());
        let cwd = mount.path("proc").join(shell.id().to_string()).join("cwd");
        for directory in ["/", "/proc"] {
            said.read_exact(&mut [0]).unwrap();
            let leads = fs::read_link(&cwd).unwrap();
            assert_eq!(leads, Path::new(directory), "{}", io.name());
            told.write_all(b"\n").unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new("to"));
        drop((bound, mount));
    }
}

#[test]
fn nobody_moves_the_processes_of_others_to_a_cgroup() {
    if !can_mount() {
        return;
    }
    let sleeper = Sleeper::new();
    let process = sleeper.0.id().to_string();
    let name = format!("bickford-test-{process}");
    for io in MODES.into_iter().filter(has) {
        // Goes last, when nothing is mounted in it any more.
        let around = tempfile::tempdir().unwrap();
        let lower = tempfile::tempdir_in(around.path()).unwrap();
        let place = lower.path().join("cgroups");
        fs::create_dir(&place).unwrap();
        let cgroups = Mounted::at(&place, "cgroup2", None);
        let group = Group::new(place.join(&name), process.clone());
        let members = group.path.join("cgroup.procs");
        for path in [&group.path, &members] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mount = mounted(lower, io);
        let shown = mount.path("cgroups").join(&name).join("cgroup.procs");
        let script = format!("echo {process} > $1");
        let said = as_nobody(&script, &shown);
        // What a shell does not hear of when it closes the file.
        if io != IoMode::Cached {
            assert_eq!(said, None, "{}", io.name());
        }
        drop(mount);
        let moved = fs::read_to_string(&members).unwrap();
        assert_eq!(moved, "", "{}", io.name());
        drop((group, cgroups));
    }
}

/// The kernel's messages, which whoever has read them all waits for.
const MESSAGES: &str = "proc/kmsg";
/// Longer than a request takes that waits for nothing, mostly.
const WHILE: Duration = Duration::from_millis(200);

#[test]
fn whoever_reads_what_is_not_there_yet_holds_up_nobody() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Plain, IoMode::Passthrough, IoMode::Direct]
        .into_iter()
        .filter(has)
    {
        let lower = tempfile::tempdir().unwrap();
        let bound = Mounted::bound("/proc", &lower.path().join("proc"));
        fs::write(lower.path().join("file"), "text").unwrap();
        // Served by one thread.
        let settings = with_io(Preset::Base.settings(), io);
        let mount = Mount::over(lower, |builder| builder.settings(settings));
        let mut cat = Command::new("cat");
        let cat = cat.arg(mount.path(MESSAGES)).stdout(Stdio::null());
        let mut reader = cat.spawn().unwrap();
        let requests = mount.session.server().in_flight();
        let waits = |one: &InFlightRequest| one.opcode == Opcode::Read && one.age > WHILE;
        let begun = Instant::now();
        while !requests.list().iter().any(waits) {
            if let Some(ended) = reader.try_wait().unwrap() {
                return support::say(format_args!("skipped: {MESSAGES} may not be read: {ended}"));
            }
            if begun.elapsed() > 50 * WHILE {
                reader.kill().unwrap();
                reader.wait().unwrap();
                return support::say(format_args!(
                    "skipped: the kernel has always something to say"
                ));
            }
            std::thread::sleep(WHILE / 10);
        }
        let text = fs::read_to_string(mount.path("file")).unwrap();
        assert_eq!(text, "text", "{}", io.name());
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut at_once = options.open(mount.path(MESSAGES)).unwrap();
        while at_once.read(&mut [0; 8192]).is_ok() {}
        reader.kill().unwrap();
        reader.wait().unwrap();
        drop((at_once, bound, mount));
    }
}
