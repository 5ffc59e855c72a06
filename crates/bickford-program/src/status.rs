//! The status with which a program ends, and what it says before.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::terminal;

/// mount(8) passes the status of its helpers on; this is its "incorrect invocation".
pub const USAGE: u8 = 1;
/// Its "mount failure".
pub const MOUNT_FAILURE: u8 = 32;

/// Help and version, or what is wrong with the command line. `helper`: mount(8) asks.
#[must_use]
pub fn say(error: &clap::Error, helper: bool) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let error = Failure::new(format!("write to standard output: {error}"));
            fail(&error, USAGE)
        }
        _ if helper && error.use_stderr() => ExitCode::from(USAGE),
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE)),
    }
}

/// Says why it ends so.
#[must_use]
pub fn fail(failure: &Failure, status: u8) -> ExitCode {
    terminal::tell(&failure.0);
    ExitCode::from(status)
}

/// The status of what was done. `helper`: mount(8) asks.
#[must_use]
pub fn finish(result: Result<ExitCode, Failure>, helper: bool) -> ExitCode {
    let status = if helper { MOUNT_FAILURE } else { 1 };
    result.unwrap_or_else(|failure| fail(&failure, status))
}
