//! `bickford man`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::{Cli, Failure};

/// Write the man pages, one per command, into a directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where to write bickford.1 and bickford-COMMAND.1
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(with_usage(Cli::command()), directory))
        .map_err(|error| {
            Failure::new(format!(
                "write man pages into {}: {error}",
                directory.display()
            ))
        })?;
    Ok(ExitCode::SUCCESS)
}

/// Has each synopsis be the usage that `--help` shows: what is made of the options themselves leaves out
/// that they have values.
fn with_usage(command: clap::Command) -> clap::Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command.mut_subcommands(|mut subcommand| {
        let usage = subcommand.render_usage().to_string();
        match usage.strip_prefix("Usage: ") {
            Some(usage) => subcommand.override_usage(usage.to_owned()),
            None => subcommand,
        }
    })
}
