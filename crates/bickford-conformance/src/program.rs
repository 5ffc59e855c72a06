//! Running other programs and keeping what they say.

use std::io;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

/// A program that ended.
#[derive(Debug)]
pub struct Finished {
    /// Program and arguments.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

impl Finished {
    /// Everything about it, for a failure's message.
    #[must_use]
    pub fn report(&self) -> String {
        let Self {
            command,
            status,
            output,
            errors,
        } = self;
        format!("{command}: {status}\n{output}{errors}")
    }
}

/// Runs a program to its end, with nothing to read.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Finished {
    let shown = show(command);
    let result = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot run {shown}: {error}; scripts/prerequisites.sh test installs what is missing")
        });
    Finished {
        command: shown,
        status: result.status,
        output: String::from_utf8_lossy(&result.stdout).into_owned(),
        errors: String::from_utf8_lossy(&result.stderr).into_owned(),
    }
}

/// Runs a program that must succeed, and gives its standard output.
///
/// # Panics
/// When it cannot be started or fails.
pub fn run_ok(command: &mut Command) -> String {
    let finished = run(command);
    assert!(finished.status.success(), "{}", finished.report());
    finished.output
}

/// How a program of the tests ends: with what went wrong on its standard output.
#[must_use]
pub fn exit_code(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_errors_and_status_are_kept() {
        let finished = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(finished.output, "out\n");
        assert_eq!(finished.errors, "err\n");
        assert!(finished.report().contains("exit status: 3"));
    }

    #[test]
    #[should_panic(expected = "exit status: 1")]
    fn a_failure_is_not_overlooked() {
        let _ = run_ok(&mut Command::new("false"));
    }
}
