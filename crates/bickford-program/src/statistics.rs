//! What a session did and is doing, as text.

use std::fmt::Write as _;

use bickford::MountedSession;
use bickford::trace::{OpcodeRow, Snapshot};

use crate::terminal::printable;

/// What the session did so far, with histograms, for the log.
#[must_use]
pub fn statistics(session: &MountedSession) -> String {
    let snapshot = Snapshot::of(session.server(), session.transport_name());
    session_table(&snapshot, true)
}

/// What a session did and is doing.
#[must_use]
pub fn session_table(session: &Snapshot, histograms: bool) -> String {
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
