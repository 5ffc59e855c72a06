//! The forms in which others call this program: mount.fuse3(8), mount(8) and fstab(5).

use std::ffi::OsString;
use std::path::Path;

use bickford::mount::{MountOptions, split_options};
use thiserror::Error;

/// A helper call that cannot be served.
#[derive(Debug, Error)]
pub(crate) enum HelperError {
    #[error(
        "called as a mount helper with the unknown flag '{0}'; known: SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]"
    )]
    Flag(String),
    #[error("called as a mount helper with '{0}' as last argument; it needs a value")]
    Value(&'static str),
    #[error(
        "called as a mount helper with -N: mounting in another namespace is not supported; run it there with nsenter(1)"
    )]
    Namespace,
}

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
        let name = arguments.first().map(Path::new).and_then(Path::file_name);
        if name.is_some_and(|name| name.to_string_lossy().starts_with("mount.")) {
            return Self::helper(&arguments);
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

    /// `mount.TYPE SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]`, see mount(8).
    fn helper(arguments: &[OsString]) -> Result<Self, HelperError> {
        let mut form = Self {
            arguments: vec!["bickford".into(), "mount".into()],
            helper: true,
            fake: false,
        };
        let mut sloppy = false;
        let mut options = Vec::new();
        let mut given = arguments.iter().skip(1);
        while let Some(argument) = given.next() {
            match argument.to_str() {
                Some("-o") => options.push(given.next().ok_or(HelperError::Value("-o"))?.clone()),
                Some("-t") => {
                    given.next().ok_or(HelperError::Value("-t"))?;
                }
                Some("-N") => return Err(HelperError::Namespace),
                Some("-h" | "--help") => form.arguments.push("--help".into()),
                Some("-V" | "--version") => {
                    form.arguments = vec!["bickford".into(), "--version".into()];
                    return Ok(form);
                }
                Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                    for flag in flags.chars().skip(1) {
                        match flag {
                            's' => sloppy = true,
                            'f' => form.fake = true,
                            'n' | 'v' => {}
                            _ => return Err(HelperError::Flag(flags.to_owned())),
                        }
                    }
                }
                _ => form.arguments.push(argument.clone()),
            }
        }
        if sloppy {
            form.arguments.push("--sloppy".into());
        }
        for option in options {
            form.arguments.extend([OsString::from("-o"), option]);
        }
        Ok(form)
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
    let lifted = texts
        .flat_map(|text| split_options(text))
        .filter(|option| own_flag(option, mount).is_some())
        .map(|option| OsString::from(format!("--{option}")))
        .collect::<Vec<_>>();
    let (head, tail) = arguments.split_at(2);
    Ok(head.iter().chain(&lifted).chain(tail).cloned().collect())
}

/// The flag of `mount` that an option names, if it does.
pub(crate) fn own_flag<'c>(option: &str, mount: &'c clap::Command) -> Option<&'c str> {
    let name = option.split('=').next().unwrap_or_default();
    if MountOptions::known_names().any(|known| known == name) {
        return None;
    }
    own_flags(mount).find(|long| *long == name)
}

/// The flags that may stand in `-o`: those with a long name, but not the ones that end the program.
pub(crate) fn own_flags(mount: &clap::Command) -> impl Iterator<Item = &str> {
    let longs = mount
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    longs
        .filter_map(clap::Arg::get_long)
        .filter(|long| !matches!(*long, "help" | "version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

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
    fn helper_calls_that_cannot_be_served_say_why() {
        let message = |line: &[&str]| {
            Form::detect(words(line), &Cli::command())
                .unwrap_err()
                .to_string()
        };
        assert!(message(&["mount.bickford", "/s", "/m", "-x"]).contains("'-x'"));
        assert!(message(&["mount.bickford", "/s", "/m", "-o"]).contains("'-o'"));
        assert!(message(&["mount.bickford", "/s", "/m", "-N", "/proc/1/ns/mnt"]).contains("-N"));
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
