//! `bickford stat`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use bickford::trace::{OpcodeRow, Snapshot, control};
use serde::Serialize;

use super::printable;
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

/// What a session did and is doing.
pub(crate) fn session_table(session: &Snapshot, histograms: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "daemon {} over {}",
        session.pid,
        printable(&session.transport)
    );
    let _ = writeln!(
        text,
        "{:<18} {:>10} {:>8} {:>14} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "request",
        "count",
        "errors",
        "bytes out",
        "decode us",
        "handler us",
        "p50 <us",
        "p99 <us",
        "reply us",
    );
    for row in &session.opcodes {
        add_row(&mut text, row, histograms);
    }
    let _ = writeln!(text, "requests in flight: {}", session.in_flight.len());
    for request in &session.in_flight {
        let _ = writeln!(
            text,
            "  {:<18} unique {:<10} node {:<20} pid {:<8} for {:.3} s{}",
            printable(&request.name),
            request.unique,
            request.node,
            request.pid,
            request.age_us as f64 / 1e6,
            if request.interrupted {
                ", interrupted"
            } else {
                ""
            },
        );
    }
    text
}

fn add_row(text: &mut String, row: &OpcodeRow, histograms: bool) {
    let mean = |stage: usize| {
        let total = row.nanoseconds.get(stage).copied().unwrap_or(0);
        total as f64 / row.count.max(1) as f64 / 1e3
    };
    let handler = row.histogram.get(1).map(Vec::as_slice).unwrap_or_default();
    let _ = writeln!(
        text,
        "{:<18} {:>10} {:>8} {:>14} {:>10.1} {:>10.1} {:>10} {:>10} {:>10.1}",
        printable(&row.name),
        row.count,
        row.errors,
        row.bytes_out,
        mean(0),
        mean(1),
        bound(handler, 0.5),
        bound(handler, 0.99),
        mean(2),
    );
    if histograms {
        for (column, count) in handler.iter().enumerate().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "    {:>14} ns and more: {count}", start_ns(column));
        }
    }
}

/// Where a column begins. A daemon may send more of them than there are.
fn start_ns(column: usize) -> u64 {
    u32::try_from(column)
        .ok()
        .and_then(|column| 1u64.checked_shl(column))
        .unwrap_or(u64::MAX)
}

/// The upper bound in microseconds of the column that holds a quantile; of the last, which has none, the
/// lower bound.
fn bound(histogram: &[u64], quantile: f64) -> String {
    let total: u64 = histogram.iter().sum();
    let wanted = (total as f64 * quantile).ceil() as u64;
    let mut seen = 0;
    for (column, count) in histogram.iter().enumerate() {
        seen += count;
        if seen >= wanted && total > 0 {
            let us = |ns: u64| ns as f64 / 1e3;
            return if column + 1 < histogram.len() {
                format!("{:.1}", us(start_ns(column + 1)))
            } else {
                format!(">{:.1}", us(start_ns(column)))
            };
        }
    }
    "-".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_of_columns() {
        let mut histogram = vec![0; 32];
        histogram[10] = 99;
        histogram[20] = 1;
        assert_eq!(bound(&histogram, 0.5), "2.0");
        assert_eq!(bound(&histogram, 0.99), "2.0");
        assert_eq!(bound(&histogram, 1.0), "2097.2");
        assert_eq!(bound(&[], 0.5), "-");
        // Everything from 2^31 ns on is in the last column.
        histogram[31] = 900;
        assert_eq!(bound(&histogram, 0.99), ">2147483.6");
        assert_eq!(
            bound(&[&[0; 99][..], &[1]].concat(), 0.5),
            format!(">{:.1}", u64::MAX as f64 / 1e3)
        );
    }
}
