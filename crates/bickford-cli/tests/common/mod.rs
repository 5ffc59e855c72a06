//! Runs the command on places of its own, under a watchdog.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bickford::mount::{MountEntry, Unmount, unmount};

/// How long one test may take before its mounts are aborted.
const WATCHDOG: Duration = Duration::from_secs(120);

/// How long the test may take to fail once they are.
const GRACE: Duration = Duration::from_secs(60);

/// How long one condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user without privileges: "nobody" of most systems.
pub(crate) const NOBODY: u32 = 65_534;

/// SOURCE and MOUNTPOINT in a directory that every user can reach. SOURCE has a file `f`.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    started: Cell<u32>,
    /// Tells whether its deadline has passed.
    watchdog: Option<(Sender<()>, JoinHandle<bool>)>,
}

impl Place {
    /// `None`, with a reason, where nothing can be mounted.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || bickford::mount::probe_device().is_err() {
            say(format_args!("left out: needs root and /dev/fuse"));
            return None;
        }
        show_connections();
        let dir = tempfile::Builder::new()
            .prefix("bickford-cli-")
            .tempdir()
            .unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        fs::write(dir.path().join("src/f"), "content").unwrap();
        let (disarm, armed) = channel();
        let mountpoints = [
            dir.path().join("mnt"),
            dir.path().join("src"),
            dir.path().to_owned(),
        ];
        let watch = move || {
            if armed.recv_timeout(WATCHDOG) != Err(RecvTimeoutError::Timeout) {
                return false;
            }
            let shown = mountpoints[0].display();
            say(format_args!("watchdog: aborting the mounts of {shown}"));
            mountpoints.iter().for_each(|one| abort_all(one));
            if armed.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
                say(format_args!("watchdog: the test of {shown} hangs"));
                std::process::exit(101);
            }
            true
        };
        let watchdog = Some((disarm, std::thread::spawn(watch)));
        Some(Self {
            dir,
            started: Cell::new(0),
            watchdog,
        })
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir().join("src")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.dir().join("mnt")
    }

    /// The mount on top of MOUNTPOINT.
    pub(crate) fn listed(&self) -> Option<MountEntry> {
        MountEntry::at(&self.mountpoint()).unwrap()
    }

    /// `bickford mount [ARGUMENTS] SOURCE MOUNTPOINT`.
    pub(crate) fn mount(&self, arguments: &[&str]) -> Output {
        let mut command = bickford();
        run(command
            .arg("mount")
            .args(arguments)
            .arg(self.source())
            .arg(self.mountpoint()))
    }

    /// Starts `bickford mount -f`, and waits until it says that it is ready.
    pub(crate) fn mount_in_foreground(&self, arguments: &[&str]) -> Running {
        // Whoever runs the tests may have them ignore signals, as nohup(1) does.
        self.mount_under(&["--default-signal"], arguments)
    }

    /// The same in a PID namespace of its own.
    pub(crate) fn mount_in_pid_namespace(&self) -> Running {
        let unshare = ["--default-signal", "unshare", "--pid", "--fork"];
        self.mount_under(&[&unshare[..], &["--kill-child"]].concat(), &[])
    }

    /// The same with arguments of env(1).
    pub(crate) fn mount_under(&self, env: &[&str], arguments: &[&str]) -> Running {
        let name = self.dir().join(format!(
            "ready-{}",
            self.started.replace(self.started.get() + 1)
        ));
        let socket = UnixDatagram::bind(&name).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut command = Command::new("env");
        command
            .env("NOTIFY_SOCKET", &name)
            .args(env)
            .args([env!("CARGO_BIN_EXE_bickford"), "mount", "-f"])
            .args(arguments);
        command.arg(self.source()).arg(self.mountpoint());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Running::of(child);
        let mut state = [0_u8; 512];
        wait_until("it is ready", || {
            running.assert_runs();
            socket.recv(&mut state).is_ok() && state.starts_with(b"READY=1")
        });
        assert_eq!(fs::read(self.mountpoint().join("f")).unwrap(), b"content");
        running
    }

    /// Unmounts MOUNTPOINT. A descriptor of it may live a little longer than its close(2) here: in a
    /// child that another test has forked and that has not reached its exec yet.
    pub(crate) fn unmount(&self, mountpoint: &Path) {
        let mut output = None;
        wait_until("nobody uses the mount", || {
            let tried = run(bickford().arg("unmount").arg(mountpoint));
            let busy = stderr(&tried).contains("busy");
            output = Some(tried);
            !busy
        });
        assert_silent(&output.unwrap());
    }

    /// The daemon that serves MOUNTPOINT.
    pub(crate) fn daemon(&self) -> Option<rustix::process::Pid> {
        let mountpoint = self.mountpoint();
        let mut found = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|process| {
                let pid = process.file_name().to_str()?.parse().ok()?;
                let line = fs::read(process.path().join("cmdline")).ok()?;
                let mut words = line.split(|byte| *byte == 0);
                let last = mountpoint.as_os_str().as_encoded_bytes();
                let ours = words.any(|word| word == last);
                let comm = fs::read_to_string(process.path().join("comm")).ok()?;
                (ours && comm == "bickford\n").then_some(pid)
            });
        found.find_map(rustix::process::Pid::from_raw)
    }

    pub(crate) fn give_to_nobody(&self) {
        for path in [self.source(), self.mountpoint(), self.source().join("f")] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// A copy of the program that every user can run.
    pub(crate) fn public_program(&self) -> PathBuf {
        let copy = self.dir().join("bickford");
        fs::copy(env!("CARGO_BIN_EXE_bickford"), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        copy
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for mountpoint in [self.mountpoint(), self.source(), self.dir()] {
            abort_all(&mountpoint);
        }
        if let Some((disarm, watchdog)) = self.watchdog.take() {
            drop(disarm);
            let late = watchdog.join().unwrap_or(true);
            assert!(
                !late || std::thread::panicking(),
                "the test did not end within {WATCHDOG:?}"
            );
        }
    }
}

fn abort_all(mountpoint: &Path) {
    while unmount(mountpoint, Unmount::Force).is_ok() {}
}

/// A child that does not outlive its test.
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    pub(crate) fn of(child: Child) -> Self {
        Self { child: Some(child) }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.child.as_ref().unwrap())
    }

    /// Waits for its end.
    pub(crate) fn output(mut self) -> Output {
        output_within(self.child.take().unwrap())
    }

    pub(crate) fn assert_runs(&mut self) {
        let child = self.child.as_mut().unwrap();
        if let Some(status) = child.try_wait().unwrap() {
            let output = self.child.take().unwrap().wait_with_output().unwrap();
            panic!(
                "it ended with {status}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn bickford() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bickford"))
}

/// `program` as a user without privileges.
pub(crate) fn as_nobody(program: &Path) -> Command {
    as_user(program, NOBODY)
}

/// `program` as user and group `id`.
pub(crate) fn as_user(program: &Path, id: u32) -> Command {
    let mut command = Command::new("setpriv");
    let id = id.to_string();
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
        .arg(program);
    command
}

const NAMESPACE: &str = "BICKFORD_TEST_NAMESPACE";

/// Whether this process is in a mount namespace made for `test`. If not, the test is run in one, and
/// has to pass there.
///
/// In it /dev/fuse is a device node of `place` that all may use, and /etc/fuse.conf has this content.
pub(crate) fn in_namespace(test: &str, place: &Place, fuse_conf: &str) -> bool {
    if std::env::var_os(NAMESPACE).is_none() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--"]);
        command
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"]);
        let output = run(command.env(NAMESPACE, "1"));
        // It may have left something out.
        let _ = std::io::stderr().write_all(&output.stderr);
        let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(
            output.status.success() && passed,
            "in its namespace: {output:?}"
        );
        return false;
    }
    let devices = place.dir().join("dev");
    fs::create_dir(&devices).unwrap();
    rustix::mount::mount(
        "dev",
        &devices,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    let device = devices.join("fuse");
    let number = rustix::fs::makedev(10, 229);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, 0o600.into(), number).unwrap();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
    rustix::mount::mount_bind(&device, "/dev/fuse").unwrap();
    let config = devices.join("fuse.conf");
    fs::write(&config, fuse_conf).unwrap();
    rustix::mount::mount_bind(&config, "/etc/fuse.conf").unwrap();
    // The two files stay mounted; below the place itself nothing may, or it cannot be removed.
    rustix::mount::unmount(&devices, rustix::mount::UnmountFlags::DETACH).unwrap();
    true
}

/// Stops a process; when this returns, no thread of it runs.
pub(crate) fn stop(process: rustix::process::Pid) {
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    wait_until("all its threads are stopped", || {
        fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            let status = fs::read_to_string(task.path().join("status"));
            status.is_ok_and(|text| text.contains("State:\tT"))
        })
    });
}

/// Runs to the end, or fails.
pub(crate) fn run(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    output_within(command.spawn().unwrap())
}

fn output_within(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let (output, errors) = (child.stdout.take(), child.stderr.take());
            let said = (output.map(so_far), errors.map(so_far));
            panic!("a command did not end: {said:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Has fusectl mounted where it was not, without which a watchdog can abort nothing.
fn show_connections() {
    const CONNECTIONS: &str = "/sys/fs/fuse/connections";
    let shown = fs::read_dir(CONNECTIONS).is_ok_and(|mut all| all.next().is_some());
    if shown {
        return;
    }
    let flags = rustix::mount::MountFlags::empty();
    match rustix::mount::mount("none", CONNECTIONS, "fusectl", flags, None) {
        // Another test was quicker.
        Ok(()) | Err(rustix::io::Errno::BUSY) => {}
        Err(error) => say(format_args!("mount -t fusectl none {CONNECTIONS}: {error}")),
    }
}

/// What a pipe has: a daemon that the command has left may hold its other end.
fn so_far(mut pipe: impl Read + AsFd) -> String {
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut text = Vec::new();
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether this kernel offers pass-through.
pub(crate) fn passes_through() -> bool {
    let offer = bickford::mount::probe_kernel().unwrap();
    offer.flags.contains(bickford::abi::InitFlags::PASSTHROUGH)
}

/// Writes to standard error where the output of tests that pass is captured, too.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// It ended with success, and said nothing.
#[track_caller]
pub(crate) fn assert_silent(output: &Output) {
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

/// It ended with `status`, and its message has all these parts.
#[track_caller]
pub(crate) fn assert_refused(output: &Output, status: i32, parts: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{message}");
    for part in parts {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
}

/// Whether a program is installed.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path)
        .chain(["/sbin".into(), "/usr/sbin".into()])
        .any(|dir| dir.join(program).is_file());
    if !there {
        say(format_args!("left out: {program} is not installed"));
    }
    there
}

pub(crate) fn path_with(dir: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = vec![dir.to_owned()];
    dirs.extend(std::env::split_paths(&path));
    dirs.extend(["/sbin".into(), "/usr/sbin".into()]);
    std::env::join_paths(dirs).unwrap()
}
