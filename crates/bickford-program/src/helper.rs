//! The form in which mount(8) calls its helpers.

use std::ffi::OsString;
use std::path::Path;

use thiserror::Error;

/// A helper call that cannot be served.
#[derive(Debug, Error)]
pub enum HelperError {
    /// A flag that is not one of mount(8)'s.
    #[error(
        "called as a mount helper with the unknown flag '{0}'; known: SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]"
    )]
    Flag(String),
    /// A flag without the value that it needs.
    #[error("called as a mount helper with '{0}' as last argument; it needs a value")]
    Value(&'static str),
    /// `-N`.
    #[error(
        "called as a mount helper with -N: mounting in another namespace is not supported; run it there with nsenter(1)"
    )]
    Namespace,
}

/// `mount.TYPE SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]`, see mount(8), as arguments
/// of the program itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HelperCall {
    /// Without the program's name. `-s` is `--sloppy`.
    pub arguments: Vec<OsString>,
    /// Only check the arguments (`mount -f`).
    pub fake: bool,
    /// Nothing but the version is asked for.
    pub version: bool,
}

/// Whether a program that is called by this name is called by mount(8): the name begins with `mount.`.
#[must_use]
pub fn is_helper(name: Option<&OsString>) -> bool {
    let name = name.map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name.to_string_lossy().starts_with("mount."))
}

impl HelperCall {
    /// Of what follows the program's name.
    ///
    /// # Errors
    /// It is not in that form.
    pub fn parse(given: &[OsString]) -> Result<Self, HelperError> {
        let mut call = Self::default();
        let mut sloppy = false;
        let mut options = Vec::new();
        let mut given = given.iter();
        while let Some(argument) = given.next() {
            match argument.to_str() {
                Some("-o") => options.push(given.next().ok_or(HelperError::Value("-o"))?.clone()),
                Some("-t") => {
                    given.next().ok_or(HelperError::Value("-t"))?;
                }
                Some("-N") => return Err(HelperError::Namespace),
                Some("-h" | "--help") => call.arguments.push("--help".into()),
                Some("-V" | "--version") => {
                    let version = true;
                    return Ok(Self { version, ..call });
                }
                Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                    for flag in flags.chars().skip(1) {
                        match flag {
                            's' => sloppy = true,
                            'f' => call.fake = true,
                            'n' | 'v' => {}
                            _ => return Err(HelperError::Flag(flags.to_owned())),
                        }
                    }
                }
                _ => call.arguments.push(argument.clone()),
            }
        }
        if sloppy {
            call.arguments.push("--sloppy".into());
        }
        for option in options {
            call.arguments.extend([OsString::from("-o"), option]);
        }
        Ok(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<HelperCall, HelperError> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        HelperCall::parse(&words)
    }

    #[test]
    fn a_call_of_mount() {
        let line = ["/src", "/mnt", "-sv", "-o", "rw,x-a", "-t", "fuse.bickford"];
        let expected = ["/src", "/mnt", "--sloppy", "-o", "rw,x-a"];
        let call = parse(&line).unwrap();
        assert_eq!(call.arguments, expected.map(OsString::from));
        assert!(!call.fake && !call.version);
        assert!(parse(&["/src", "/mnt", "-f"]).unwrap().fake);
        assert!(parse(&["-V"]).unwrap().version);
        assert!(is_helper(Some(&"/sbin/mount.fuse.bickford".into())));
        assert!(!is_helper(Some(&"/mount.d/bickford".into())) && !is_helper(None));
    }

    #[test]
    fn calls_that_cannot_be_served_say_why() {
        let message = |line: &[&str]| parse(line).unwrap_err().to_string();
        assert!(message(&["/s", "/m", "-x"]).contains("'-x'"));
        assert!(message(&["/s", "/m", "-o"]).contains("'-o'"));
        assert!(message(&["/s", "/m", "-N", "/proc/1/ns/mnt"]).contains("-N"));
    }
}
