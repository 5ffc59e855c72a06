//! The status with which a program ends, and what it says before.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::terminal;

/// The status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    /// Zero.
    pub const SUCCESS: Self = Self(0);
    /// One.
    pub const FAILURE: Self = Self(1);
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.0)
    }
}

/// mount(8) passes the status of its helpers on; this is its "incorrect invocation".
pub const USAGE: Status = Status(1);
/// Its "mount failure".
pub const MOUNT_FAILURE: Status = Status(32);

/// Help and version, or what is wrong with the command line. `helper`: mount(8) asks.
#[must_use]
pub fn say(error: &clap::Error, helper: bool) -> Status {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let error = Failure::new(format!("write to standard output: {error}"));
            fail(&error, USAGE)
        }
        _ if helper && error.use_stderr() => USAGE,
        _ => u8::try_from(error.exit_code()).map_or(USAGE, Status),
    }
}

/// Says why it ends so.
#[must_use]
pub fn fail(failure: &Failure, status: Status) -> Status {
    terminal::tell(&failure.0);
    status
}

/// The status of what was done. `helper`: mount(8) asks.
#[must_use]
pub fn finish<S: From<Status>>(result: Result<S, Failure>, helper: bool) -> S {
    let status = match helper {
        true => MOUNT_FAILURE,
        false => Status::FAILURE,
    };
    result.unwrap_or_else(|failure| fail(&failure, status).into())
}
