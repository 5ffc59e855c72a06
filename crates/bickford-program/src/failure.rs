//! Why a program ends without success.

use std::io;

use bickford::mount::OptionError;
use bickford::session::SessionError;
use thiserror::Error;

use crate::logging::reasons;

/// Why a command failed; the message is what the user sees after the program's name.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// With this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// That of a mount option; of one that is not known it says that `help` tells of all.
    #[must_use]
    pub fn of_option(error: &OptionError, help: &str) -> Self {
        match error {
            OptionError::Unknown {
                option, nearest, ..
            } => {
                let near = nearest.as_ref();
                let near = near.map(|name| format!("did you mean '{name}'? "));
                let near = near.unwrap_or_default();
                Self(format!(
                    "mount option '{option}' is not known; {near}'{help}' tells of all"
                ))
            }
            _ => Self(error.to_string()),
        }
    }

    /// That of a session that was to begin on a mount, with what was logged of it.
    #[must_use]
    pub fn of_start(error: &SessionError) -> Self {
        let SessionError::Start { mountpoint, source } = error else {
            return Self(error.to_string());
        };
        // Whoever refused has logged why.
        let reason = reasons::take().unwrap_or_else(|| source.to_string());
        Self(format!(
            "mount {}: the session did not begin: {reason}{}",
            mountpoint.display(),
            cure(source)
        ))
    }
}

/// What to do where the system has no more of what was asked for; nothing for other errors.
#[must_use]
pub fn cure(error: &io::Error) -> &'static str {
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
    crate::helper::HelperError,
);
