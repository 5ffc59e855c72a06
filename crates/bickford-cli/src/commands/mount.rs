//! `bickford mount`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bickford::mount::{MountOptions, OptionError, fsname_of, unknown};
use bickford_layers::crypt::makes_a_key;
use bickford_program::flags::Flags;
use bickford_program::layers::check_of_a_daemon;
use bickford_program::lift;
use bickford_program::remount::{REMOUNT, Remount};
use bickford_program::service::{self, Started, Told};
use clap::CommandFactory;

use crate::argv;
use crate::backend::{Backend, Choices};
use crate::cli::{Cli, Failure};
use crate::new_keys::NewKeys;

/// The type shown in /proc/mounts is `fuse.` and this.
const SUBTYPE: &str = "bickford";

/// Mount a directory through FUSE.
///
/// Returns when the mount answers, with status 0, or with the reason why it does not. SOURCE is opened
/// before it is mounted: MOUNTPOINT may be SOURCE itself or a directory above it.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    flags: Flags,

    #[command(flatten)]
    choices: Choices,

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

    fn is_remount(&self) -> bool {
        self.flags.split_options().any(|option| option == REMOUNT)
    }

    /// The options of the mount, those that name flags of this command left out.
    fn mount_options(&self) -> Result<MountOptions, OptionError> {
        let mut options = self.apply(self.flags.split_options(), MountOptions::new())?;
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
            if lift::own_flag(&option, mount).is_some() {
                continue;
            }
            match options.set(&option) {
                Err(OptionError::Unknown { .. }) if self.flags.sloppy => {}
                Err(OptionError::Unknown { option, .. }) => {
                    return Err(unknown_option(&option, mount));
                }
                other => other?,
            }
        }
        Ok(options)
    }
}

/// What is said of an option.
fn of_option(error: &OptionError) -> Failure {
    Failure::of_option(error, "bickford mount --help")
}

fn unknown_option(option: &str, mount: &clap::Command) -> OptionError {
    let known = MountOptions::known_names().chain([REMOUNT]);
    let known = known
        .map(str::to_owned)
        .chain(lift::own_flags(mount).map(str::to_owned))
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
    let options = arguments
        .mount_options()
        .map_err(|error| of_option(&error))?;
    if !arguments.flags.in_foreground() {
        check_of_a_daemon(&arguments.choices.layers, true)?;
    }
    let backend = Backend::open(&arguments.source, choices, &options)?;
    backend.check_mount(&arguments.mountpoint, &options)?;
    Ok(backend.into_new_keys())
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.is_remount() {
        return remount(arguments).map(|()| ExitCode::SUCCESS);
    }
    let check = || {
        let new_keys = check(arguments, &arguments.choices)?;
        Ok(|| new_keys.keep())
    };
    let served = service::serve(&arguments.flags, &[], check, || start(arguments));
    served.map(ExitCode::from)
}

fn remount(arguments: &Arguments) -> Result<(), Failure> {
    let cli = Cli::command();
    let Some(mount) = cli.find_subcommand("mount") else {
        return Ok(());
    };
    let remount = Remount {
        mountpoint: &arguments.mountpoint,
        words: std::env::args_os().collect(),
        before: Vec::new(),
        options: arguments.flags.split_options().collect(),
        settled: &[],
        command: mount,
        matches: &argv::matches_of_mount,
        apply: &|texts, start| {
            let applied = arguments.apply(texts.into_iter(), start);
            applied.map_err(|error| of_option(&error))
        },
        usage: "bickford mount -o remount,FLAGS SOURCE MOUNTPOINT",
    };
    remount.run()
}

/// Opens SOURCE; what is answered mounts it.
fn start(
    arguments: &Arguments,
) -> Result<impl FnOnce(&Told<'_>) -> Result<Started, Failure>, Failure> {
    let options = arguments
        .mount_options()
        .map_err(|error| of_option(&error))?;
    // It may wait, for a passphrase or a SOURCE that hangs.
    let backend = Backend::open(&arguments.source, &arguments.choices, &options)?;
    let single = arguments.flags.single_thread;
    Ok(move |mounted: &Told<'_>| {
        let serving = backend.mount(&arguments.mountpoint, &options, single, mounted)?;
        let new_keys = serving.new_keys;
        Ok(Started {
            session: Arc::new(serving.session),
            layers: serving.layers,
            begun: Box::new(|| new_keys.keep()),
            kept: Box::new(serving.watch),
        })
    })
}
