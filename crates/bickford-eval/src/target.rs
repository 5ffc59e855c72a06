//! Configurations: the native file system, or anything a command mounts over it.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bickford::mount::MountEntry;
use serde::{Deserialize, Serialize};

use crate::host::process::{self, quoted, tail};
use crate::host::{mounts, utf8};
use crate::java;
use crate::measure::cpu::{self, ProcessTime};
use crate::terminal::warn;

/// How long a command may take to mount.
const MOUNT_TIME: Duration = Duration::from_secs(30);
/// How long a mount may take to go; there is a test that waits it out.
const UNMOUNT_TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 120 });
/// How long a daemon may take to end after its mount is gone.
const END_TIME: Duration = Duration::from_secs(10);
/// Tells a daemon's processes from others, through forks and new sessions.
pub(crate) const MARK: &str = "BICKFORD_EVAL_MOUNT";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Its name in the report.
    pub name: String,
    /// What mounts it, with `{src}` and `{mnt}`; `None` is the lower file system itself.
    pub command: Option<String>,
    /// Where a command starts that the user gave, which may hold relative paths; `None` is wherever the evaluation runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
}

impl Config {
    /// The lower file system itself.
    #[must_use]
    pub fn native() -> Self {
        Self {
            name: "native".into(),
            command: None,
            directory: None,
        }
    }

    /// A preset of the pass-through file system, mounted by `bickford` (the program).
    ///
    /// # Errors
    /// The program's name is not UTF-8.
    pub fn preset(name: &str, bickford: &Path) -> Result<Self, String> {
        let program = quoted(utf8(bickford)?);
        let command = format!("exec {program} mount -f --preset {name} {{src}} {{mnt}}");
        Ok(Self {
            name: name.to_owned(),
            command: Some(command),
            directory: None,
        })
    }
}

/// A `--config` as given: a known name, or `name=command`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigArgument {
    /// The name.
    pub name: String,
    /// The command, if one was given.
    pub command: Option<String>,
}

/// The presets that need no command.
pub const PRESETS: [&str; 3] = ["base", "opt", "fast"];

/// One `--config`: names with commas between, or one `name=command`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigArguments(pub Vec<ConfigArgument>);

impl FromStr for ConfigArguments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A command may hold commas.
        let arguments = if text.contains('=') {
            text.parse().map(|one| vec![one])
        } else {
            text.split(',').map(str::parse).collect()
        };
        arguments.map(Self)
    }
}

impl FromStr for ConfigArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = match text.split_once('=') {
            Some((name, command)) => (name, Some(command.to_owned())),
            None => (text, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!(
                "`{name}` is no name: letters, digits, `-`, `_` and `.` only"
            ));
        }
        match &command {
            Some(_) if name == "native" => {
                Err("`native` is the lower file system and takes no command".into())
            }
            Some(c) if !c.contains("{mnt}") => {
                Err("the command must say where to mount: `{mnt}`".into())
            }
            None if name != "native" && !PRESETS.contains(&name) && !java::is_one(name) => {
                Err(format!(
                    "`{name}` is none of native, {}, JavaFuse1, JavaFuse2 and JavaFuse-shared; give its command: --config {name}='COMMAND {{src}} {{mnt}}'",
                    PRESETS.join(", ")
                ))
            }
            _ => Ok(Self {
                name: name.to_owned(),
                command,
            }),
        }
    }
}

/// A mounted configuration; unmounted when dropped.
#[derive(Debug)]
pub struct Target {
    /// Where the workload runs.
    directory: PathBuf,
    /// Only of a mounted one.
    mounted: Option<Mounted>,
}

#[derive(Debug)]
struct Mounted {
    point: PathBuf,
    mount: MountEntry,
    /// What its command said.
    log: PathBuf,
    child: Child,
    mark: String,
    daemons: Vec<u32>,
    /// What had gone away when it was released; what goes away then is no trouble.
    released: OnceCell<Option<String>>,
}

impl Target {
    /// Mounts `config` over `source` at `point`, unless `stop` is set meanwhile. What the command says goes to
    /// `log`.
    ///
    /// # Errors
    /// The command failed or mounted nothing within 30 s or until it was stopped, with the end of what it said.
    pub fn mount(
        config: &Config,
        source: &Path,
        point: &Path,
        log: &Path,
        entrance: Option<&Path>,
        stop: &AtomicBool,
    ) -> Result<Self, String> {
        let Some(template) = &config.command else {
            return Ok(Self {
                directory: source.to_owned(),
                mounted: None,
            });
        };
        fs::create_dir_all(point).map_err(|e| format!("{}: {e}", point.display()))?;
        let point = fs::canonicalize(point).map_err(|e| format!("{}: {e}", point.display()))?;
        let line = template
            .replace("{src}", &quoted(utf8(source)?))
            .replace("{mnt}", &quoted(utf8(&point)?));
        let output = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = output
            .try_clone()
            .map_err(|e| format!("{}: {e}", log.display()))?;
        let mark = format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        // A session of its own, as one has that goes to the background or is a service: the scheduler
        // keeps the tasks of a session together (sched_autogroup, sched(7)).
        let arguments: [OsString; 3] = ["/bin/sh".into(), "-c".into(), line.into()];
        let mut command = process::limited(OsStr::new("setsid"), &arguments, entrance);
        if let Some(directory) = &config.directory {
            command.current_dir(directory);
        }
        let child = command
            .env(MARK, &mark)
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors))
            .spawn()
            .map_err(|e| format!("start the command of {}: {e}", config.name))?;
        wait_for_mount(config, point, log, child, mark, stop)
    }

    /// Where the workload runs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The FUSE connection, where it is one.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.mounted
            .as_ref()
            .and_then(|m| mounts::connection(&m.mount))
    }

    /// CPU time of the daemon so far; `None` where there is none.
    #[must_use]
    pub fn daemon_time(&self) -> Option<ProcessTime> {
        let mounted = self.mounted.as_ref()?;
        let pids = process::with_environment(MARK, &mounted.mark);
        (!pids.is_empty()).then(|| cpu::processes(&pids))
    }

    /// Lets everything that hangs in the mount return: aborts the connection, or detaches the mount.
    pub fn release(&self) {
        let Some(mounted) = &self.mounted else { return };
        mounted.released.get_or_init(|| self.trouble());
        match mounts::connection(&mounted.mount).map(mounts::abort) {
            Some(Ok(())) => {}
            Some(Err(error)) => warn(&error.to_string()),
            None => {
                let _ = rustix::mount::unmount(&mounted.point, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }

    /// What went away since it was mounted, if anything did.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let mounted = self.mounted.as_ref()?;
        if let Some(before) = mounted.released.get() {
            return before.clone();
        }
        let device = |mount: &MountEntry| (mount.major, mount.minor);
        let now = mounts::at(&mounted.point);
        if now.as_ref().map(device) != Some(device(&mounted.mount)) {
            return Some("its mount went away during the row".into());
        }
        // Only a FUSE mount has a daemon that must stay; a command like `mount --bind` ends by itself.
        let served = mounted.mount.is_fuse() && !mounted.daemons.is_empty();
        if served && process::with_environment(MARK, &mounted.mark).is_empty() {
            let said = tail(&fs::read_to_string(&mounted.log).unwrap_or_default());
            return Some(format!("its daemon ended during the row: {said}"));
        }
        None
    }

    /// Unmounts and waits for the daemon's end. What is returned is to be told: the daemon had to be killed.
    ///
    /// # Errors
    /// The mount did not go by itself, so that not all may have been written.
    pub fn unmount(mut self) -> Result<Option<String>, String> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<Option<String>, String> {
        let Some(mut mounted) = self.mounted.take() else {
            return Ok(None);
        };
        let unmounted = match mounts::unmount(&mounted.point, UNMOUNT_TIME) {
            Ok(Some(why)) => Err(format!(
                "its mount could not be unmounted within {} s and was detached by force, which loses what was not written back: {why}",
                UNMOUNT_TIME.as_secs()
            )),
            unmounted => unmounted.map(drop),
        };
        let end = Instant::now() + END_TIME;
        let mut forced = None;
        loop {
            // Reaps the child; a daemon that left its session is init's to reap.
            let _ = mounted.child.try_wait();
            let left = process::with_environment(MARK, &mounted.mark);
            if left.is_empty() {
                break;
            }
            if Instant::now() > end {
                left.iter().for_each(|pid| process::kill(*pid));
                forced = Some(
                    "its daemon did not end within 10 s of the unmount and was killed".to_owned(),
                );
            }
            if Instant::now() > end + END_TIME {
                forced = Some("its daemon cannot be killed".to_owned());
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // An ending process shows no environment any more some time before it can be reaped.
        let end = Instant::now() + END_TIME;
        while matches!(mounted.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        unmounted.map(|()| forced)
    }
}

fn wait_for_mount(
    config: &Config,
    point: PathBuf,
    log: &Path,
    mut child: Child,
    mark: String,
    stop: &AtomicBool,
) -> Result<Target, String> {
    let end = Instant::now() + MOUNT_TIME;
    let said = || tail(&fs::read_to_string(log).unwrap_or_default());
    loop {
        // Asked before the mount table: a command that mounts and ends has mounted by then.
        let ended = child
            .try_wait()
            .map_err(|e| format!("wait for the command of {}: {e}", config.name))?;
        if let Some(mount) = mounts::at(&point) {
            let daemons = process::with_environment(MARK, &mark);
            let mounted = Mounted {
                point: point.clone(),
                mount,
                log: log.to_owned(),
                child,
                mark,
                daemons,
                released: OnceCell::new(),
            };
            return Ok(Target {
                directory: point,
                mounted: Some(mounted),
            });
        }
        let failed = match ended {
            Some(status) if !status.success() => Some(format!("ended with {status}")),
            _ if stop.load(Ordering::Relaxed) => Some("was interrupted".to_owned()),
            _ if Instant::now() > end => {
                Some(format!("mounted nothing within {} s", MOUNT_TIME.as_secs()))
            }
            _ => None,
        };
        if let Some(failed) = failed {
            give_up(&point, &mark, &mut child);
            return Err(format!(
                "the command of {} {failed}: {}",
                config.name,
                said()
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a command that has not mounted where it should: asked first, for it may have mounted elsewhere, and
/// only a daemon that is not killed unmounts that.
fn give_up(point: &Path, mark: &str, child: &mut Child) {
    let end = Instant::now() + END_TIME;
    let mut asked = HashSet::new();
    let mut looks_in_vain = 0;
    loop {
        let runs = matches!(child.try_wait(), Ok(None));
        let left = process::with_environment(MARK, mark);
        // A process that begins another program (execve(2)) shows no environment for a moment.
        looks_in_vain = if runs || !left.is_empty() {
            0
        } else {
            looks_in_vain + 1
        };
        if looks_in_vain > 1 {
            break;
        }
        if Instant::now() > end {
            left.iter().for_each(|pid| process::kill(*pid));
            let _ = child.kill();
            break;
        }
        for pid in left.into_iter().filter(|pid| asked.insert(*pid)) {
            process::terminate(pid);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.wait();
    // It may have come too late.
    if let Err(error) = mounts::unmount(point, END_TIME) {
        warn(&error);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        match self.take_down() {
            Ok(None) => {}
            Ok(Some(told)) | Err(told) => warn(&told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(config: &Config, source: &Path, point: &Path, log: &Path) -> Result<Target, String> {
        Target::mount(config, source, point, log, None, &AtomicBool::new(false))
    }

    #[test]
    fn a_configuration_is_a_known_name_or_a_command() {
        let parse = str::parse::<ConfigArgument>;
        assert_eq!(parse("fast").unwrap().command, None);
        let many = |text: &str| text.parse::<ConfigArguments>().map(|all| all.0.len());
        assert_eq!(many("native,base,JavaFuse1"), Ok(3));
        assert_eq!(many("x=mine -o a,b {mnt}"), Ok(1));
        assert!(many("base,other").is_err());
        let sshfs = parse("ssh=sshfs -o a=b host:{src} {mnt}").unwrap();
        assert_eq!(
            sshfs.command.as_deref(),
            Some("sshfs -o a=b host:{src} {mnt}")
        );
        assert!(parse("other").unwrap_err().contains("give its command"));
        assert!(parse("x=mount /a").unwrap_err().contains("{mnt}"));
        assert!(
            parse("native=x {src} {mnt}")
                .unwrap_err()
                .contains("takes no command")
        );
        assert!(
            parse("a/b=x {src} {mnt}")
                .unwrap_err()
                .contains("is no name")
        );
    }

    #[test]
    fn a_command_that_fails_is_told_with_what_it_said() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            name: "bad".into(),
            command: Some("echo no luck at {mnt} >&2; exit 4".into()),
            directory: None,
        };
        let point = directory.path().join("mnt");
        let log = directory.path().join("log");
        let error = mount(&config, directory.path(), &point, &log).unwrap_err();
        assert!(
            error.contains("no luck") && error.contains("status: 4"),
            "{error}"
        );
    }

    #[test]
    fn what_did_not_mount_is_asked_to_end_before_it_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| quoted(directory.path().join(name).to_str().unwrap());
        let (ready, ended) = (file("ready"), file("ended"));
        let daemon = format!(
            "trap 'echo > {ended}; exit' TERM; echo > {ready}; while :; do sleep 0.02; done"
        );
        let config = Config {
            name: "elsewhere".into(),
            command: Some(format!(
                "sh -c {} & while ! test -e {ready}; do sleep 0.02; done; exit 4 # {{mnt}}",
                quoted(&daemon.replace('\'', "\""))
            )),
            directory: None,
        };
        let point = directory.path().join("mnt");
        let log = directory.path().join("log");
        let error = mount(&config, directory.path(), &point, &log).unwrap_err();
        assert!(error.contains("status: 4"), "{error}");
        assert!(directory.path().join("ended").exists(), "it was killed");
    }

    #[test]
    fn a_mount_that_has_to_be_forced_is_an_error() {
        if !crate::host::is_root() {
            crate::terminal::warn("skipped: mounting needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (source, point) = (directory.path().join("src"), directory.path().join("mnt"));
        fs::create_dir(&source).unwrap();
        let config = Config {
            name: "bind".into(),
            command: Some("mount --bind {src} {mnt}".into()),
            directory: None,
        };
        let log = directory.path().join("log");
        let target = mount(&config, &source, &point, &log).unwrap();
        assert_eq!(target.unmount(), Ok(None));
        let target = mount(&config, &source, &point, &log).unwrap();
        let busy = File::create(point.join("file")).unwrap();
        let error = target.unmount().unwrap_err();
        assert!(error.contains("detached by force"), "{error}");
        assert!(mounts::at(&point).is_none());
        drop(busy);
    }

    #[test]
    fn native_is_the_source_itself() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let native = Config::native();
        let target = mount(&native, directory.path(), Path::new("/nonexistent"), &log).unwrap();
        assert_eq!(target.directory(), directory.path());
        assert_eq!(
            (target.connection(), target.trouble(), target.daemon_time()),
            (None, None, None)
        );
    }
}
