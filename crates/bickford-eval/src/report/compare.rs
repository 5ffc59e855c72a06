//! What changed between two runs.

use std::fmt::Write as _;

use crate::results::Results;
use crate::stats::{Comparison, interval_label};

/// For every row and configuration both runs have: throughput of the second against the first, and how
/// the difference to native changed, which a faster or slower machine does not touch.
#[must_use]
pub fn text(before: &Results, after: &Results) -> String {
    let mut out = String::new();
    if before.settings.machine != after.settings.machine {
        out.push_str(
            "The runs come from different machines: compare the differences to native only.\n",
        );
    }
    if (before.settings.scale - after.settings.scale).abs() > 1e-9 {
        out.push_str("The runs have different scales: their rows do not do the same work.\n");
    }
    let rounds = before.settings.rounds.min(after.settings.rounds);
    let range = format!("{} of B/A", interval_label(rounds as usize));
    let head = (
        "row",
        "workload",
        "configuration",
        "B/A",
        range.as_str(),
        "A to native",
        "B to native",
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{:<7} {:<28} {:<14} {:>8} {:>18} {:>12} {:>12}",
        head.0, head.1, head.2, head.3, head.4, head.5, head.6
    );
    for row in &before.settings.rows {
        for config in &before.settings.configs {
            let name = config.name.as_str();
            let (a, b) = (
                before.throughputs(&row.id, name),
                after.throughputs(&row.id, name),
            );
            let Some(change) = Comparison::of(&a, &b) else {
                continue;
            };
            let interval = change.interval_pct;
            let certain = interval.low > 0.0 || interval.high < 0.0;
            let _ = writeln!(
                out,
                "{:<7} {:<28} {:<14} {:>+7.1}% {:>18} {:>12} {:>12}{}",
                row.id,
                row.name,
                name,
                change.difference_pct,
                format!("{:+.1} to {:+.1}", interval.low, interval.high),
                to_native(before, &row.id, name),
                to_native(after, &row.id, name),
                if certain { "" } else { "  within the spread" }
            );
        }
    }
    out
}

fn to_native(results: &Results, row: &str, config: &str) -> String {
    let Some(native) = results
        .settings
        .configs
        .first()
        .filter(|n| n.name != config)
    else {
        return String::new();
    };
    Comparison::of(
        &results.throughputs(row, &native.name),
        &results.throughputs(row, config),
    )
    .map_or_else(|| "-".to_owned(), |c| format!("{:+.1}%", c.difference_pct))
}
