//! The `bickford` command.

mod argv;
mod backend;
mod cli;
mod commands;
mod new_keys;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use bickford_program::{apart, terminal};
use clap::{CommandFactory, FromArgMatches};

use crate::argv::Form;
use crate::cli::{Cli, Command, Failure};

/// mount(8) passes the status of its helpers on; these are its "incorrect invocation" and "mount failure".
const USAGE: u8 = 1;
const MOUNT_FAILURE: u8 = 32;

fn main() -> ExitCode {
    terminal::set_name("bickford");
    if let Some(status) = apart::unmount_if_asked() {
        return status;
    }
    let arguments = std::env::args_os().collect::<Vec<_>>();
    let form = match Form::detect(arguments, &Cli::command()) {
        Ok(form) => form,
        Err(error) => return fail(&Failure::from(error), USAGE),
    };
    let quiet_success = form.fake;
    let helper = form.helper;
    match parse(form.arguments) {
        Ok(cli) if quiet_success => finish(check(&cli), helper),
        Ok(cli) => finish(run(cli), helper),
        Err(error) => say(&error, helper),
    }
}

/// Help and version, or what is wrong with the command line.
fn say(error: &clap::Error, helper: bool) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let error = Failure::new(format!("write to standard output: {error}"));
            fail(&error, USAGE)
        }
        _ if helper && error.use_stderr() => ExitCode::from(USAGE),
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE)),
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
    let status = if helper { MOUNT_FAILURE } else { 1 };
    result.unwrap_or_else(|failure| fail(&failure, status))
}

fn fail(failure: &Failure, status: u8) -> ExitCode {
    terminal::tell(&failure.0);
    ExitCode::from(status)
}

/// `mount -f`: everything but the mount.
fn check(cli: &Cli) -> Result<ExitCode, Failure> {
    if let Command::Mount(arguments) = &cli.command {
        commands::mount::check_dry(arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}
