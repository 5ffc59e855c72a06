//! The command line: every flag is declared once, in the arguments of its command; parser, help, man
//! pages and completions derive from that.

pub(crate) use bickford_program::Failure;
use clap::{Parser, Subcommand};

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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_are_consistent() {
        Cli::command().debug_assert();
    }
}
