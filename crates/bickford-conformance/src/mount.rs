//! A mount made by the `bickford` command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::combination::{Combination, Transport};
use crate::machine::{ENABLE_URING, is_fuse, mount_at, ordinary_user};
use crate::start_line::StartLine;
use crate::watchdog::{self, Watchdog, Watched, wait_for};
use crate::{BODY_DEADLINE, Finished, diagnosis, run, scratch};

/// How long a mount may take to come up or to go away.
const MOUNT_DEADLINE: Duration = Duration::from_secs(60);

/// Why a mount did not come up.
#[derive(Debug, thiserror::Error)]
#[error("{command}: {reason}; it said:\n{log}")]
pub struct StartError {
    /// The command that was run.
    pub command: String,
    /// What went wrong.
    pub reason: String,
    /// What the daemon said.
    pub log: String,
    /// How it ended, if it did.
    pub status: Option<ExitStatus>,
}

/// What to mount and how; see [`Mount::over`].
#[derive(Clone, Debug)]
pub struct MountBuilder {
    source: PathBuf,
    combination: Combination,
    options: Vec<String>,
    arguments: Vec<OsString>,
    deadline: Duration,
    user: Option<(u32, u32)>,
    descriptor_limit: Option<u32>,
}

impl MountBuilder {
    /// Adds a mount option (`-o`).
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets how long the mount may be in use.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Mounts as the ordinary user, without `allow_other`.
    #[must_use]
    pub fn by_ordinary_user(mut self) -> Self {
        self.user = Some(ordinary_user());
        self
    }

    /// Runs the daemon with so many descriptors at most.
    #[must_use]
    pub fn descriptor_limit(mut self, limit: u32) -> Self {
        self.descriptor_limit = Some(limit);
        self
    }

    /// Mounts.
    ///
    /// # Errors
    /// When the daemon ends, does not mount in time, or has something else in force.
    pub fn start(self) -> Result<Mount, StartError> {
        Mount::start(&self)
    }

    /// Mounts.
    ///
    /// # Panics
    /// Where [`MountBuilder::start`] gives an error.
    #[must_use]
    pub fn must_start(self) -> Mount {
        match self.start() {
            Ok(mount) => mount,
            Err(error) => panic!("{error}"),
        }
    }

    fn command(&self, program: &Path, mountpoint: &Path) -> Command {
        let mut command = match self.descriptor_limit {
            None => Command::new(program),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell
                    .arg("-c")
                    .arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\""))
                    .arg(program);
                shell
            }
        };
        command.args(["mount", "-f"]).args(self.combination.flags());
        if !self.options.is_empty() {
            command.arg("-o").arg(self.options.join(","));
        }
        command.args(&self.arguments);
        command.arg(&self.source).arg(mountpoint);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

/// A directory mounted through the `bickford` command, with a [`Watchdog`]. Dropping it takes
/// everything down, whatever state it is in.
#[derive(Debug)]
pub struct Mount {
    daemon: Child,
    mountpoint: PathBuf,
    source: PathBuf,
    log: PathBuf,
    start_line: StartLine,
    connection: u32,
    watchdog: Option<Watchdog>,
    // Removed after the body of `drop`, when nothing is mounted in it any more.
    _directory: TempDir,
}

impl Mount {
    /// Prepares a mount of `source`: open to all users where root mounts it.
    #[must_use]
    pub fn over(source: &Path, combination: &Combination) -> MountBuilder {
        let root = rustix::process::geteuid().is_root();
        MountBuilder {
            source: source.to_owned(),
            combination: combination.clone(),
            options: root.then(|| "allow_other".to_owned()).into_iter().collect(),
            arguments: Vec::new(),
            deadline: BODY_DEADLINE,
            user: None,
            descriptor_limit: None,
        }
    }

    fn start(builder: &MountBuilder) -> Result<Self, StartError> {
        if builder.combination.transport == Transport::Uring {
            allow_uring();
        }
        let mut builder = builder.clone();
        let directory = scratch::temporary(&std::env::temp_dir(), "mount");
        let mountpoint = directory.path().join("mnt");
        let log = directory.path().join("log");
        let mut program = command_path();
        let prepared = fs::create_dir(&mountpoint).and_then(|()| File::create(&log));
        let log_file = prepared.unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        if let Some((user, group)) = builder.user {
            // The build's directory may be closed to that user, and only its own directory may be
            // mounted on.
            let copy = directory.path().join("bickford");
            copy_program(&program, &copy);
            program = copy;
            std::os::unix::fs::chown(&mountpoint, Some(user), Some(group))
                .unwrap_or_else(|error| panic!("chown {}: {error}", mountpoint.display()));
            builder.options.retain(|option| option != "allow_other");
        }
        let mut command = builder.command(&program, &mountpoint);
        let errors = log_file
            .try_clone()
            .unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let shown = format!("{command:?}");
        let name = format!("{} on {}", builder.source.display(), builder.combination);
        let watchdog = Watchdog::start(&name, builder.deadline);
        let daemon = command
            .stdin(Stdio::null())
            .stdout(log_file)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        let mut mount = Self {
            daemon,
            mountpoint,
            source: builder.source.clone(),
            log,
            start_line: StartLine::default(),
            connection: 0,
            watchdog: Some(watchdog),
            _directory: directory,
        };
        match mount.come_up(&builder.combination) {
            Ok(()) => Ok(mount),
            Err(reason) => Err(StartError {
                command: shown,
                reason,
                log: mount.log(),
                status: mount.daemon.try_wait().ok().flatten(),
            }),
        }
    }

    /// Waits for the mount and for the line that says what is in force.
    fn come_up(&mut self, combination: &Combination) -> Result<(), String> {
        let mut ended = None;
        let mut found = None;
        wait_for(MOUNT_DEADLINE, || {
            // The order matters: what was written before the end is still read.
            ended = self.daemon.try_wait().ok().flatten();
            let mounted = mount_at(&self.mountpoint).filter(|mount| is_fuse(&mount.kind));
            found = mounted.zip(StartLine::find(&self.log()));
            found.is_some() || ended.is_some()
        });
        if let Some(status) = ended {
            return Err(format!("ended with {status} instead of serving"));
        }
        let Some((mounted, start_line)) = found else {
            return Err(format!(
                "no mount and `mounted` line within {MOUNT_DEADLINE:?}"
            ));
        };
        self.connection = mounted.minor;
        self.start_line = start_line;
        if let Some(watchdog) = &self.watchdog {
            watchdog.watch(Watched {
                mountpoint: self.mountpoint.clone(),
                connection: self.connection,
                daemon: self.daemon.id(),
                log: self.log.clone(),
            });
        }
        eprintln!("   in force: {}", self.start_line.summary());
        match self.start_line.differs_from(&combination.in_force()) {
            Some(difference) => Err(format!("something else is in force: {difference}")),
            None => Ok(()),
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// The lower directory.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The process that serves it.
    #[must_use]
    pub fn daemon(&self) -> u32 {
        self.daemon.id()
    }

    /// What the daemon said is in force.
    #[must_use]
    pub fn start_line(&self) -> &StartLine {
        &self.start_line
    }

    /// All that the daemon has said.
    #[must_use]
    pub fn log(&self) -> String {
        let contents = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&contents).into_owned()
    }

    /// A line of `/proc/PID/status` of the daemon, such as `VmRSS`, in its unit.
    #[must_use]
    pub fn daemon_status(&self, key: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon())).ok()?;
        let line = status.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Number of descriptors the daemon holds.
    #[must_use]
    pub fn daemon_descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.daemon())).map_or(0, Iterator::count)
    }

    /// Kills the daemon (SIGKILL) and waits for its end; the mount stays in the tree, dead.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill_daemon(&mut self) {
        let killed = self.daemon.kill().and_then(|()| self.daemon.wait());
        killed.unwrap_or_else(|error| panic!("kill {}: {error}", self.daemon.id()));
    }

    /// Aborts the connection as an administrator does.
    pub fn abort(&self) {
        watchdog::abort(self.connection);
    }

    /// Waits for the daemon to end by itself.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub fn wait_for_daemon(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for(MOUNT_DEADLINE, || {
            status = self.daemon.try_wait().ok().flatten();
            status.is_some()
        });
        status.unwrap_or_else(|| {
            panic!(
                "the daemon did not end within {MOUNT_DEADLINE:?}\n{}{}",
                diagnosis::stacks(self.daemon.id()),
                self.log()
            )
        })
    }

    /// Runs `bickford unmount` on it.
    #[must_use]
    pub fn unmount(&self) -> Finished {
        run(Command::new(command_path())
            .arg("unmount")
            .arg(&self.mountpoint))
    }

    /// Whether it is in the mount table.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        mount_at(&self.mountpoint).is_some_and(|mount| is_fuse(&mount.kind))
    }

    /// Unmounts, and requires that unmounting works and the daemon ends in order.
    ///
    /// # Panics
    /// When it does not.
    pub fn finish(mut self) {
        let unmounted = self.unmount();
        assert!(unmounted.status.success(), "{}", unmounted.report());
        let status = self.wait_for_daemon();
        let log = self.log();
        assert!(status.success(), "the daemon ended with {status}:\n{log}");
        assert!(!log.contains("panicked"), "the daemon panicked:\n{log}");
        assert!(
            !self.is_mounted(),
            "still mounted after {}",
            unmounted.command
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", diagnosis::tail(&self.log));
        }
        // What is mounted over a mount is a failed test's; a few rounds take all of it.
        for _ in 0..4 {
            if self.is_mounted() {
                watchdog::abort(self.connection);
                watchdog::unmount_lazily(&self.mountpoint);
            }
        }
        // Both fail when it has ended before.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        drop(self.watchdog.take());
    }
}

/// The command under test: `BICKFORD_BIN`, or what the same build put beside the test.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn command_path() -> PathBuf {
    let named = std::env::var_os("BICKFORD_BIN").map(PathBuf::from);
    let beside = || {
        let test = std::env::current_exe().ok()?;
        Some(test.ancestors().nth(2)?.join("bickford"))
    };
    let path = named.or_else(beside).unwrap_or_default();
    assert!(
        path.is_file(),
        "no bickford command at {}: run `cargo build -p bickford-cli`, or set BICKFORD_BIN",
        path.display()
    );
    path
}

fn copy_program(from: &Path, to: &Path) {
    let copied =
        fs::copy(from, to).and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(0o755)));
    copied.unwrap_or_else(|error| panic!("cp {} {}: {error}", from.display(), to.display()));
}

/// Allows FUSE over io_uring on this machine, which the combinations that use it need.
fn allow_uring() {
    match fs::read_to_string(ENABLE_URING) {
        Ok(value) if value.trim() == "Y" => {}
        Ok(_) => {
            eprintln!("   writing Y to {ENABLE_URING}");
            fs::write(ENABLE_URING, "Y").unwrap_or_else(|error| panic!("{ENABLE_URING}: {error}"));
        }
        Err(error) => panic!("{ENABLE_URING}: {error}; FUSE over io_uring needs Linux 6.14"),
    }
}
