//! An example that runs in a process of its own, with a watchdog.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// After this the example is killed, which ends its connection and with it whatever hangs.
fn deadline() -> Duration {
    Duration::from_secs(if full_length() { 7200 } else { 600 })
}

/// Whether the long tests are to last for minutes: `BICKFORD_LENGTH=full`.
pub(crate) fn full_length() -> bool {
    std::env::var("BICKFORD_LENGTH").is_ok_and(|length| length == "full")
}

/// Writes to standard error where the output of tests that pass is captured, too.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A mounted example. Unmounted when dropped.
pub(crate) struct Example {
    child: Child,
    directory: tempfile::TempDir,
    end: Option<Sender<()>>,
    watchdog: Option<JoinHandle<()>>,
}

/// Whether this machine can mount. Says so loudly where it cannot.
pub(crate) fn can_mount() -> bool {
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    match device {
        Ok(_) if rustix::process::geteuid().is_root() => true,
        Ok(_) => {
            say(format_args!(
                "SKIPPED: not root, and the examples are mounted"
            ));
            false
        }
        Err(error) => {
            say(format_args!(
                "SKIPPED: /dev/fuse: {error}; load the kernel module fuse"
            ));
            false
        }
    }
}

/// The transports that this machine has. Says loudly which one it has not.
pub(crate) fn transports() -> Vec<&'static str> {
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    let enabled = fs::read_to_string(parameter).unwrap_or_default();
    if enabled.trim() == "Y" {
        return vec!["dev", "uring"];
    }
    say(format_args!(
        "SKIPPED: io_uring: {parameter} is {enabled:?}, not Y"
    ));
    vec!["dev"]
}

impl Example {
    /// Runs `program` with `arguments` and a mount point after them, until the mount answers.
    pub(crate) fn start(program: &str, arguments: &[&Path]) -> Self {
        Self::start_over("auto", program, arguments)
    }

    /// The same over a transport, which must then be in force.
    pub(crate) fn start_over(transport: &str, program: &str, arguments: &[&Path]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mountpoint = directory.path().join("mount");
        fs::create_dir(&mountpoint).unwrap();
        let socket = directory.path().join("notify");
        let ready = UnixDatagram::bind(&socket).unwrap();
        let mut command = Command::new(program);
        command
            .args(["-f", "--transport", transport])
            .args(arguments)
            .arg(&mountpoint)
            .env("NOTIFY_SOCKET", &socket);
        let child = command.spawn().unwrap();
        let (end, ended) = channel::<()>();
        let pid = child.id();
        let name = program.to_owned();
        let watchdog = std::thread::spawn(move || {
            if ended.recv_timeout(deadline()) == Err(RecvTimeoutError::Timeout) {
                report(&name, pid);
                signal(pid, Signal::KILL);
                lazily_unmount(&mountpoint);
            }
        });
        let mut example = Self {
            child,
            directory,
            end: Some(end),
            watchdog: Some(watchdog),
        };
        example.await_ready(&ready);
        example
    }

    /// Waits until it says that it serves (sd_notify(3)).
    fn await_ready(&mut self, socket: &UnixDatagram) {
        let step = Duration::from_millis(100);
        socket.set_read_timeout(Some(step)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut message = [0; 4096];
        loop {
            if let Ok(length) = socket.recv(&mut message) {
                let text = String::from_utf8_lossy(&message[..length]);
                assert!(text.contains("READY=1"), "{text}");
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}");
            assert!(Instant::now() < deadline, "it does not begin");
        }
    }

    fn mountpoint(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mountpoint().join(name)
    }

    /// Ends it as an operator does, by a signal; it must unmount and leave with success.
    pub(crate) fn finish(mut self) {
        signal(self.child.id(), Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the example ended with {status}");
        assert!(!self.is_mounted(), "still mounted");
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&self.mountpoint().display().to_string())
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
        if self.is_mounted() {
            lazily_unmount(&self.mountpoint());
        }
        drop(self.end.take());
        if let Some(watchdog) = self.watchdog.take() {
            drop(watchdog.join());
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    if let Err(errno) = kill_process(pid, signal) {
        eprintln!("signal {signal:?} to {pid:?}: {errno}");
    }
}

/// What the example does, thread by thread, and what its connections wait for.
fn report(name: &str, pid: u32) {
    eprintln!("watchdog: {name} did not end within {:?}", deadline());
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let stack = fs::read_to_string(task.path().join("stack")).unwrap_or_default();
        eprintln!("thread {:?}:\n{stack}", task.file_name());
    }
    for one in fs::read_dir("/sys/fs/fuse/connections")
        .into_iter()
        .flatten()
        .flatten()
    {
        let waiting = fs::read_to_string(one.path().join("waiting")).unwrap_or_default();
        eprintln!(
            "connection {:?}: {} requests wait",
            one.file_name(),
            waiting.trim()
        );
    }
}

pub(crate) fn lazily_unmount(mountpoint: &Path) {
    let status = Command::new("umount").arg("-l").arg(mountpoint).status();
    if !status.as_ref().is_ok_and(|status| status.success()) {
        eprintln!("umount -l {}: {status:?}", mountpoint.display());
    }
}
