//! The `bickford` command.

mod argv;
mod backend;
mod cli;
mod commands;
mod new_keys;

use std::ffi::OsString;
use std::process::ExitCode;

use bickford_program::{apart, status, terminal};
use clap::{CommandFactory, FromArgMatches};

use crate::argv::Form;
use crate::cli::{Cli, Command, Failure};

fn main() -> ExitCode {
    terminal::set_name("bickford");
    if let Some(status) = apart::unmount_if_asked() {
        return status.into();
    }
    let arguments = std::env::args_os().collect::<Vec<_>>();
    let form = match Form::detect(arguments, &Cli::command()) {
        Ok(form) => form,
        Err(error) => return status::fail(&Failure::from(error), status::USAGE).into(),
    };
    let quiet_success = form.fake;
    let helper = form.helper;
    match parse(form.arguments) {
        Ok(cli) if quiet_success => status::finish(check(&cli), helper),
        Ok(cli) => status::finish(run(cli), helper),
        Err(error) => status::say(&error, helper).into(),
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

/// `mount -f`: everything but the mount.
fn check(cli: &Cli) -> Result<ExitCode, Failure> {
    if let Command::Mount(arguments) = &cli.command {
        commands::mount::check_dry(arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}
