//! `bickford completions`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Failure};

/// Print the completions for a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "bickford", &mut text);
    super::say(&text)?;
    Ok(ExitCode::SUCCESS)
}
