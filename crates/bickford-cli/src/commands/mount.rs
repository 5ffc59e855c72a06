//! `bickford mount`.

mod remount;

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bickford::MountedSession;
use bickford::mount::{
    MountGuard, MountOptions, OptionError, Unmount, Via, fsname_of, split_options, unknown,
};
use bickford::trace::Snapshot;
use bickford::trace::control::{Control, socket_directory};
use bickford_eval::terminal::escaped;
use bickford_layers::crypt::makes_a_key;
use bickford_layers::{LayerSpec, Summary};
use bickford_stackfs::LowerWatch;
use clap::CommandFactory;

use crate::argv;
use crate::backend::{Backend, Choices, Serving};
use crate::cli::{Cli, Failure};
use crate::commands::stat;
use crate::commands::unmount::socket::remove_directory;
use crate::daemon::{self, Background};
use crate::logging::Log;
use crate::new_keys::NewKeys;
use crate::notify::notify;
use crate::signals::Signals;

/// The type shown in /proc/mounts is `fuse.` and this.
const SUBTYPE: &str = "bickford";

/// The option of mount(8) that asks for other flags on the mount that is there.
const REMOUNT: &str = "remount";

/// Mount a directory through FUSE.
///
/// Returns when the mount answers, with status 0, or with the reason why it does not. SOURCE is opened
/// before it is mounted: MOUNTPOINT may be SOURCE itself or a directory above it.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Stay in the foreground; log to standard error
    #[arg(short = 'f', long)]
    foreground: bool,

    /// As -f, with --log=debug unless --log is given
    #[arg(short = 'd', long)]
    debug: bool,

    /// Serve with one thread
    #[arg(short = 's', long, conflicts_with = "workers")]
    single_thread: bool,

    /// Mount options: the kernel's of mount.fuse3(8), and those of mount(8); NAME=VALUE also for the long flags here
    ///
    /// fsname, subtype, allow_other, allow_root, default_permissions, max_read, auto_unmount, ro, and the
    /// flags common to all file systems. A comma in a value is written as '\,'. With remount those flags
    /// are changed on the mount that is there, and nothing else is.
    #[arg(short = 'o', value_name = "OPT[,OPT]", action = clap::ArgAction::Append)]
    options: Vec<String>,

    #[command(flatten)]
    choices: Choices,

    /// Log counts and latencies by request when the mount ends; SIGUSR1 logs them at any time
    #[arg(long)]
    stats: bool,

    /// What to log: LEVEL or MODULE=LEVEL, separated by commas
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,

    /// Append the log to a file; without it a daemon logs to syslog
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    log_file: Option<PathBuf>,

    /// Ignore mount options that are not known
    #[arg(long, hide = true)]
    sloppy: bool,

    /// The directory to pass through
    #[arg(value_name = "SOURCE", value_hint = clap::ValueHint::DirPath)]
    source: PathBuf,

    /// Where to mount it, or /dev/fd/N for a mounted descriptor passed by the caller
    #[arg(value_name = "MOUNTPOINT", value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,
}

impl Arguments {
    /// Where to mount it, as given.
    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    fn in_foreground(&self) -> bool {
        self.foreground || self.debug
    }

    fn start_log(&self, daemon: bool) -> Result<Log, Failure> {
        let default = if self.debug { "debug" } else { "info" };
        let filter = self.log.as_deref().unwrap_or(default);
        Log::start(filter, self.log_file.as_deref(), daemon)
    }

    fn split_options(&self) -> impl Iterator<Item = String> {
        self.options.iter().flat_map(|text| split_options(text))
    }

    fn is_remount(&self) -> bool {
        self.split_options().any(|option| option == REMOUNT)
    }

    /// The options of the mount, those that name flags of this command left out.
    fn mount_options(&self) -> Result<MountOptions, OptionError> {
        let mut options = self.apply(self.split_options(), MountOptions::new())?;
        let source = std::path::absolute(&self.source).unwrap_or_else(|_| self.source.clone());
        options.fsname.get_or_insert_with(|| fsname_of(&source));
        options.subtype.get_or_insert_with(|| SUBTYPE.to_owned());
        Ok(options)
    }

    fn apply(
        &self,
        texts: impl Iterator<Item = String>,
        mut options: MountOptions,
    ) -> Result<MountOptions, OptionError> {
        let cli = Cli::command();
        let Some(mount) = cli.find_subcommand("mount") else {
            return Ok(options);
        };
        for option in texts {
            if argv::own_flag(&option, mount).is_some() {
                continue;
            }
            match options.set(&option) {
                Err(OptionError::Unknown { .. }) if self.sloppy => {}
                Err(OptionError::Unknown { option, .. }) => {
                    return Err(unknown_option(&option, mount));
                }
                other => other?,
            }
        }
        Ok(options)
    }
}

fn unknown_option(option: &str, mount: &clap::Command) -> OptionError {
    let known = MountOptions::known_names().chain([REMOUNT]);
    let known = known
        .map(str::to_owned)
        .chain(argv::own_flags(mount).map(str::to_owned))
        .collect::<Vec<_>>();
    unknown(option, &known)
}

/// `mount -f` of mount(8). A layer that would make a key is left out.
pub(crate) fn check_dry(arguments: &Arguments) -> Result<(), Failure> {
    let mut choices = arguments.choices.clone();
    choices.layers.retain(|layer| !makes_a_key(layer));
    if arguments.is_remount() {
        // What there is to check is the mount itself.
        return Ok(());
    }
    check(arguments, &choices).map(drop)
}

/// Says what is wrong with the arguments without mounting anything. Layers are made, with what files they make.
fn check(arguments: &Arguments, choices: &Choices) -> Result<NewKeys, Failure> {
    let options = arguments.mount_options()?;
    if !arguments.in_foreground() {
        check_layers_of_a_daemon(&arguments.choices.layers)?;
    }
    let backend = Backend::open(&arguments.source, choices, &options)?;
    backend.check_mount(&arguments.mountpoint, &options)?;
    Ok(backend.into_new_keys())
}

/// Files that layers read when they are made.
const READ: [&str; 2] = ["passphrase-file", "switches"];
/// Names of standard input, which a daemon has not, wherever it comes from.
const STANDARD_INPUT: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// Whether a file is gone, or not there for a daemon, once it has been read.
fn is_read_once(path: &Path) -> bool {
    let kind = || std::fs::metadata(path).map(|it| it.file_type());
    STANDARD_INPUT.iter().any(|name| path == Path::new(name))
        || kind().is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// A daemon has no standard error, which is where the layer `log` writes without a file, and makes layers that
/// this process has made before it, to say at once what is wrong with them.
fn check_layers_of_a_daemon(layers: &[LayerSpec]) -> Result<(), Failure> {
    for layer in layers {
        let mut files = layer.options().filter(|(key, _)| READ.contains(key));
        if let Some((key, path)) = files.find(|(_, path)| is_read_once(Path::new(path))) {
            return Err(Failure::new(format!(
                "--layer {layer}: {key}={path} can be read but once, and going into the background reads it twice; \
                 name a file that stays, or stay in the foreground (-f)"
            )));
        }
    }
    let to_stderr = |layer: &&LayerSpec| {
        layer.name() == "log" && !layer.options().any(|(key, _)| key == "file")
    };
    match layers.iter().find(to_stderr) {
        None => Ok(()),
        Some(layer) => Err(Failure::new(format!(
            "--layer {layer}: in the background there is no standard error to write to; give it a file \
             (log:file=PATH), or stay in the foreground (-f)"
        ))),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.is_remount() {
        return remount::run(arguments).map(|()| ExitCode::SUCCESS);
    }
    let Some(background) = Background::take()? else {
        if arguments.in_foreground() {
            let log = arguments.start_log(false)?;
            let started = Service::start(arguments, |_| {}).inspect_err(|_| log.failed());
            return started?.run(|_| Ok(()), &log);
        }
        let new_keys = check(arguments, &arguments.choices)?;
        let status = daemon::detach()?;
        new_keys.keep();
        return Ok(status);
    };
    let started = arguments.start_log(true).and_then(|log| {
        let started = Service::start(arguments, |it| background.mounted(it));
        let service = started.inspect_err(|_| log.failed())?;
        Ok((log, service))
    });
    match started {
        Ok((log, service)) => {
            let result = service.run(|session| background.ready(session), &log);
            if let Err(failure) = &result {
                tracing::error!("{failure}");
            }
            result
        }
        Err(failure) => {
            background.failed(&failure);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A mount that is being served.
struct Service {
    session: Arc<MountedSession>,
    watch: Option<LowerWatch>,
    layers: Summary,
    aborting: Arc<AtomicBool>,
    stats: bool,
}

impl Service {
    fn start(arguments: &Arguments, mounted: impl FnOnce(&MountGuard)) -> Result<Self, Failure> {
        let options = arguments.mount_options()?;
        // Before anything is mounted over it. It may wait, for a passphrase or a SOURCE that hangs, and is ended by
        // signals meanwhile.
        let backend = Backend::open(&arguments.source, &arguments.choices, &options)?;
        // Before anything is mounted, so that no signal ends this process with the mount in place.
        let signals = Signals::catch()?;
        let single = arguments.single_thread;
        let serving = backend.mount(&arguments.mountpoint, &options, single, mounted)?;
        let Serving {
            session,
            watch,
            layers,
            new_keys,
        } = serving;
        let session = Arc::new(session);
        let aborting = signals.end_on_signal(Arc::clone(&session))?;
        new_keys.keep();
        Ok(Self {
            session,
            watch,
            layers,
            aborting,
            stats: arguments.stats,
        })
    }

    /// Serves until the mount is gone.
    fn run(
        self,
        ready: impl FnOnce(&Arc<MountedSession>) -> io::Result<()>,
        log: &Log,
    ) -> Result<ExitCode, Failure> {
        let Self {
            session,
            watch,
            layers,
            aborting,
            stats,
        } = self;
        let control = serve_control(&session);
        if let Err(error) = &control {
            tracing::warn!("no control socket, so 'bickford stat' will not work: {error}");
        }
        let own = session.guard().via() != Via::Descriptor;
        if let Err(error) = ready(&session) {
            take_away(session.guard());
            return Err(Failure::new(format!(
                "the process that asked for the mount is gone: {error}"
            )));
        }
        log.started();
        let mountpoint = session.guard().mountpoint().display();
        // A line of its own: a path may have more.
        let shown = escaped(&mountpoint.to_string());
        notify(&format!(
            "READY=1\nMAINPID={}\nSTATUS=serving {shown}",
            std::process::id()
        ));
        session.wait();
        drop(watch);
        drop(control);
        remove_directory(&socket_directory());
        let report = layers.report();
        if !report.is_empty() {
            tracing::info!("layers:\n{report}");
        }
        if stats {
            tracing::info!("{}", statistics(&session));
        }
        notify("STOPPING=1");
        let guard = session.guard();
        let aborted = aborting.load(Ordering::SeqCst) || (own && guard.is_mounted());
        take_away(guard);
        if aborted {
            return Err(Failure::new(format!(
                "{mountpoint}: the connection was aborted"
            )));
        }
        tracing::info!("{mountpoint}: unmounted");
        Ok(ExitCode::SUCCESS)
    }
}

fn serve_control(session: &MountedSession) -> io::Result<Control> {
    match session.serve_control() {
        // Another daemon of the user has just ended, and removed the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => session.serve_control(),
        served => served,
    }
}

/// What the session did so far, for the log.
pub(crate) fn statistics(session: &MountedSession) -> String {
    let snapshot = Snapshot::of(session.server(), session.transport_name());
    stat::session_table(&snapshot, true)
}

fn take_away(guard: &MountGuard) {
    if let Err(error) = guard.unmount(Unmount::Lazy) {
        tracing::warn!("{error}");
    }
}
