//! The command line: every flag is declared once, in the arguments of its command; parser, help, man
//! pages and completions derive from that.

use std::io;

use bickford::mount::OptionError;
use clap::{Parser, Subcommand};
use thiserror::Error;

use crate::commands::{completions, doctor, eval, layers, man, mount, stat, trace, unmount};

/// Mount a directory through FUSE, and look after FUSE mounts.
#[derive(Debug, Parser)]
#[command(
    name = "bickford",
    version,
    after_help = "'bickford SOURCE MOUNTPOINT -o ...' means 'bickford mount ...': so \
        'mount -t fuse.bickford' and fstab(5) work."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Mount(mount::Arguments),
    #[command(alias = "umount")]
    Unmount(unmount::Arguments),
    Stat(stat::Arguments),
    Trace(trace::Arguments),
    Layers(layers::Arguments),
    Eval(eval::Arguments),
    Doctor(doctor::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// Why a command failed; the message is what the user sees after `bickford: `.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// What to do where the system has no more of what was asked for; nothing for other errors.
pub(crate) fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            "; no thread could be started: allow more processes (ulimit -u, pids.max of the cgroup) or address \
             space (ulimit -v), or ask for fewer threads with --workers or -s"
        }
        io::ErrorKind::OutOfMemory => {
            "; there is too little memory: allow more (ulimit -v, memory.max of the cgroup), or ask for fewer \
             threads with --workers or -s"
        }
        _ => "",
    }
}

macro_rules! failure_from {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )*};
}

failure_from!(
    bickford::mount::MountError,
    bickford::mount::UnmountError,
    crate::argv::HelperError,
);

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        match error {
            OptionError::Unknown {
                option, nearest, ..
            } => {
                let near = nearest.map(|name| format!("did you mean '{name}'? "));
                let near = near.unwrap_or_default();
                let all = "'bickford mount --help' tells of all";
                Self(format!("mount option '{option}' is not known; {near}{all}"))
            }
            _ => Self(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_are_consistent() {
        Cli::command().debug_assert();
    }
}
