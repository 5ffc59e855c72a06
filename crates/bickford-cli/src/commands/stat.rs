//! `bickford stat`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use bickford::trace::{Snapshot, control};
use bickford_program::statistics::session_table;
use bickford_program::terminal::printable;
use serde::Serialize;

use super::target::{self, Target};
use crate::cli::Failure;

/// Show what a mount did and is doing: requests, latencies, and which of them are stuck.
///
/// The mount itself is not touched, so this works while it hangs. Requests by opcode are known for
/// mounts that bickford serves, root's and the caller's own; root sees those of every user. Of others,
/// and where the daemon does not answer, this shows what the kernel tells, and why no more.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the log2 histogram of the handler's time for each opcode
    #[arg(long)]
    histograms: bool,
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT", value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,
}

#[derive(Serialize)]
struct Report {
    mountpoint: String,
    fs_type: String,
    connection: u32,
    waiting: Option<u64>,
    max_background: Option<u64>,
    congestion_threshold: Option<u64>,
    session: Option<Snapshot>,
    /// The daemon's process here, where it answers: `session` has the number in its own PID namespace.
    daemon: Option<u32>,
    /// Why there is no `session`.
    session_error: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let target = Target::find(&arguments.mountpoint)?;
    let (session, session_error) = match target.ask(control::snapshot) {
        Ok(session) => (Some(session), None),
        Err(reason) => (None, Some(reason)),
    };
    let connection = target.connection();
    let report = Report {
        mountpoint: target.mountpoint.display().to_string(),
        fs_type: target.fs_type.clone(),
        connection: target.connection,
        waiting: connection.waiting,
        max_background: connection.max_background,
        congestion_threshold: connection.congestion_threshold,
        daemon: session.as_ref().and_then(|_| target.daemon_number()),
        session,
        session_error,
    };
    let text = if arguments.json {
        let text = serde_json::to_string_pretty(&report);
        text.map_err(|error| Failure::new(error.to_string()))? + "\n"
    } else {
        table(&report, arguments.histograms)
    };
    super::say(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(report: &Report, histograms: bool) -> String {
    let mut text = String::new();
    let known = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    let _ = writeln!(
        text,
        "{} type {} connection {}: requests waiting {}, background limit {}, congestion from {}",
        printable(&report.mountpoint),
        printable(&report.fs_type),
        report.connection,
        known(report.waiting),
        known(report.max_background),
        known(report.congestion_threshold),
    );
    if report.waiting.is_none() {
        text.push_str(match target::is_told_to_others(report.connection) {
            true => "  (these are told to root, and to who mounted it)\n",
            false => "  (for these: mount -t fusectl none /sys/fs/fuse/connections)\n",
        });
    }
    if let Some(reason) = &report.session_error {
        let _ = writeln!(
            text,
            "This is what the kernel tells: {reason}. 'bickford trace' shows requests, as root; where they fail with \
             ENOTCONN no daemon is left, and 'bickford unmount' takes the mount away."
        );
    }
    match &report.session {
        Some(session) => {
            if let Some(pid) = report.daemon.filter(|pid| *pid != session.pid) {
                let _ = writeln!(
                    text,
                    "The daemon is process {pid} here, and {} in its own PID namespace.",
                    session.pid
                );
            }
            text + &session_table(session, histograms)
        }
        None => text,
    }
}
