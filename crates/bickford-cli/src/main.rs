//! The `bickford` command.

mod argv;
mod backend;
mod cli;
mod commands;
mod daemon;
mod logging;
mod notify;
mod signals;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::argv::Form;
use crate::cli::{Cli, Command, Failure};

fn main() -> ExitCode {
    let arguments = std::env::args_os().collect::<Vec<_>>();
    let form = match Form::detect(arguments, &Cli::command()) {
        Ok(form) => form,
        Err(error) => return fail(&Failure::from(error), false),
    };
    let quiet_success = form.fake;
    let helper = form.helper;
    match parse(form.arguments) {
        Ok(cli) if quiet_success => finish(check(&cli), helper),
        Ok(cli) => finish(run(cli), helper),
        Err(error) => error.exit(),
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let command = Cli::command();
    let arguments = argv::lift_options(arguments, &command)?;
    Cli::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Mount(arguments) => commands::mount::run(&arguments),
        Command::Unmount(arguments) => commands::unmount::run(&arguments),
        Command::Stat(arguments) => commands::stat::run(&arguments),
        Command::Trace(arguments) => commands::trace::run(&arguments),
        Command::Layers(arguments) => commands::layers::run(&arguments),
        Command::Eval(arguments) => commands::eval::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
    }
}

fn finish(result: Result<ExitCode, Failure>, helper: bool) -> ExitCode {
    result.unwrap_or_else(|failure| fail(&failure, helper))
}

fn fail(failure: &Failure, helper: bool) -> ExitCode {
    // Not eprintln, which panics when the terminal is gone.
    let _ = writeln!(std::io::stderr(), "bickford: {failure}");
    // mount(8) passes the status of its helpers on; 32 is its "mount failure".
    ExitCode::from(if helper { 32 } else { 1 })
}

/// `mount -f`: everything but the mount.
fn check(cli: &Cli) -> Result<ExitCode, Failure> {
    if let Command::Mount(arguments) = &cli.command {
        commands::mount::check(arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}
