//! The forms in which others call this program: mount.fuse3(8), mount(8) and fstab(5).

use std::ffi::OsString;

use bickford_program::helper::{HelperCall, HelperError, is_helper};
use bickford_program::lift::lifted;
use clap::{ArgMatches, CommandFactory};

use crate::cli::Cli;

/// The arguments in the form of `bickford COMMAND ...`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) arguments: Vec<OsString>,
    /// Called by mount(8) under the name of a helper.
    pub(crate) helper: bool,
    /// Only check the arguments (`mount -f`).
    pub(crate) fake: bool,
}

impl Form {
    /// Recognises three forms: `bickford COMMAND ...`, `bickford SOURCE MOUNTPOINT ...` as mount.fuse3
    /// writes it, and a helper call through a link named `mount.TYPE`.
    pub(crate) fn detect(
        arguments: Vec<OsString>,
        command: &clap::Command,
    ) -> Result<Self, HelperError> {
        if is_helper(arguments.first()) {
            return Self::helper(arguments.get(1..).unwrap_or_default());
        }
        let mut rest = arguments.iter().skip(1);
        let positional = |argument: Option<&OsString>| {
            argument
                .filter(|text| !text.as_encoded_bytes().starts_with(b"-"))
                .cloned()
        };
        let is_mount = match (positional(rest.next()), positional(rest.next())) {
            (Some(first), Some(_)) => first != "help" && command.find_subcommand(&first).is_none(),
            _ => false,
        };
        let mut arguments = arguments;
        if is_mount {
            arguments.insert(1, "mount".into());
        }
        Ok(Self {
            arguments,
            helper: false,
            fake: false,
        })
    }

    fn helper(given: &[OsString]) -> Result<Self, HelperError> {
        let call = HelperCall::parse(given)?;
        let name = OsString::from("bickford");
        let arguments = match call.version {
            true => vec![name, "--version".into()],
            false => [vec![name, "mount".into()], call.arguments].concat(),
        };
        Ok(Self {
            arguments,
            helper: true,
            fake: call.fake,
        })
    }
}

/// Turns `-o NAME=VALUE` into `--NAME=VALUE` where NAME is a flag of `mount` and no mount option, so
/// that an fstab line can say everything the command line can.
///
/// The flags come before what was given on the command line, which therefore wins.
pub(crate) fn lift_options(
    arguments: Vec<OsString>,
    command: &clap::Command,
) -> Result<Vec<OsString>, clap::Error> {
    if arguments.get(1).is_none_or(|first| first != "mount") {
        return Ok(arguments);
    }
    let Some(mount) = command.find_subcommand("mount") else {
        return Ok(arguments);
    };
    let matches = command
        .clone()
        .ignore_errors(true)
        .try_get_matches_from(&arguments)?;
    let texts = matches
        .subcommand_matches("mount")
        .and_then(|matches| matches.get_many::<String>("options"))
        .into_iter()
        .flatten();
    let lifted = lifted(texts, mount);
    let (head, tail) = arguments.split_at(2);
    Ok(head.iter().chain(&lifted).chain(tail).cloned().collect())
}

/// What a command line, in any form, asks `mount` for.
pub(crate) fn matches_of_mount(arguments: Vec<OsString>) -> Option<ArgMatches> {
    let command = Cli::command();
    let form = Form::detect(arguments, &command).ok()?;
    let arguments = lift_options(form.arguments, &command).ok()?;
    let mut matches = command.try_get_matches_from(arguments).ok()?;
    Some(matches.remove_subcommand()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: &[&str]) -> Vec<OsString> {
        arguments.iter().map(OsString::from).collect()
    }

    fn detect(arguments: &[&str]) -> Form {
        Form::detect(words(arguments), &Cli::command()).unwrap()
    }

    #[test]
    fn commands_are_left_as_they_are() {
        for line in [
            &["bickford", "unmount", "/m"][..],
            &["bickford"],
            &["bickford", "--help"],
            &["bickford", "mont"],
        ] {
            assert_eq!(detect(line).arguments, words(line));
        }
        let line = ["bickford", "help", "mount"];
        assert_eq!(detect(&line).arguments, words(&line));
    }

    #[test]
    fn two_paths_are_a_mount() {
        let form = detect(&["/usr/bin/bickford", "/src", "/mnt", "-o", "rw,dev"]);
        assert_eq!(
            form.arguments,
            words(&["/usr/bin/bickford", "mount", "/src", "/mnt", "-o", "rw,dev"])
        );
        assert!(!form.helper);
    }

    #[test]
    fn a_helper_call_of_mount() {
        let form = detect(&[
            "/sbin/mount.bickford",
            "/src",
            "/mnt",
            "-sv",
            "-o",
            "rw,x-a",
            "-t",
            "fuse.bickford",
        ]);
        let expected = words(&[
            "bickford", "mount", "/src", "/mnt", "--sloppy", "-o", "rw,x-a",
        ]);
        assert_eq!(
            form,
            Form {
                arguments: expected,
                helper: true,
                fake: false
            }
        );
        assert!(detect(&["mount.fuse.bickford", "/src", "/mnt", "-f"]).fake);
    }

    #[test]
    fn flags_in_options_come_before_the_command_line() {
        let line = words(&[
            "bickford",
            "mount",
            "-o",
            r"ro,preset=opt,x=1",
            "--preset",
            "base",
            "/s",
            "/m",
        ]);
        let lifted = lift_options(line, &Cli::command()).unwrap();
        assert_eq!(
            lifted,
            words(&[
                "bickford",
                "mount",
                "--preset=opt",
                "-o",
                "ro,preset=opt,x=1",
                "--preset",
                "base",
                "/s",
                "/m"
            ])
        );
    }
}
