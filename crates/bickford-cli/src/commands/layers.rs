//! `bickford layers`.

use std::process::ExitCode;

use bickford_layers::Registry;

use crate::cli::Failure;

/// List the layers of 'bickford mount --layer' with their options.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<ExitCode, Failure> {
    super::say(Registry::default().help().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
