//! `bickford doctor`: what this machine offers, what is missing, how to get it.

mod directory;
mod kernel;
mod limits;
mod mounting;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use bickford_program::terminal::escaped;
use rustix::thread::CapabilitySet;

use crate::cli::Failure;

/// Tell what this machine offers to FUSE file systems, what is missing, and how to get it.
///
/// Ends with status 1 if nothing can be mounted.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A directory to be passed through: tell also about the file system it is on
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

/// How well it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Works.
    Works,
    /// Works, with something left out.
    Limited,
    /// Does not work; other ways are there.
    Missing,
    /// Does not work, and nothing can be mounted without it.
    Needed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Works => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
            Self::Needed => "NEEDED",
        })
    }
}

/// One thing looked at.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    status: Status,
    text: String,
    /// What to do about it.
    advice: Option<String>,
}

impl Finding {
    fn new(name: &'static str, status: Status, text: impl Into<String>) -> Self {
        Self {
            name,
            status,
            text: text.into(),
            advice: None,
        }
    }

    fn works(name: &'static str, text: impl Into<String>) -> Self {
        Self::new(name, Status::Works, text)
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut findings = mounting::look();
    findings.extend(kernel::look());
    findings.extend(limits::look());
    if let Some(directory) = &arguments.directory {
        findings.extend(directory::look(directory)?);
    }
    let report = findings.iter().map(render).collect::<String>();
    super::say(report.as_bytes())?;
    let needed = findings
        .iter()
        .any(|finding| finding.status == Status::Needed);
    Ok(if needed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn render(finding: &Finding) -> String {
    let Finding {
        name,
        status,
        text,
        advice,
    } = finding;
    let mut lines = format!("{name:<22}{status:<9}{}\n", escaped(text));
    if let Some(advice) = advice {
        lines.push_str(&format!("{:<31}-> {}\n", "", escaped(advice)));
    }
    lines
}

/// Whether this process has a capability in effect, be it in its user namespace only.
fn capable_here(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Whether it has it over the whole machine, as the kernel asks for where nothing else is said.
fn capable(capability: CapabilitySet) -> bool {
    capable_here(capability) && !in_user_namespace()
}

/// Whether this process is in another user namespace than the first.
fn in_user_namespace() -> bool {
    // PROC_USER_INIT_INO of include/linux/proc_ns.h.
    const FIRST: u64 = 0xEFFF_FFFD;
    std::fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() != FIRST)
}

/// What gives a capability to who lacks it.
fn as_root() -> &'static str {
    match in_user_namespace() {
        true => "run as root, outside of this user namespace",
        false => "run as root",
    }
}

/// The content of a one-line file of /proc or /sys.
fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories_begin_no_lines_and_colour_nothing() {
        let finding = Finding::works("lower file system", "/a\nb\u{1b}[31m").advise("mount /a\nb");
        let lines = render(&finding);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(!lines.contains('\u{1b}'), "{lines:?}");
    }
}
