//! What a run is turned into: table.md, table.csv and the plots.

mod against;
mod plot;
mod reach;
mod table;

use std::fs;
use std::path::Path;

use crate::results::{Results, Spread};

pub(crate) use against::{Chosen, against};

/// Writes everything below `directory`; returns the verdicts for the terminal.
pub(crate) fn write(results: &Results, directory: &Path) -> Result<String, String> {
    let save = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let verdicts = reach::markdown(results);
    save("table.md", &table::markdown(results, &verdicts))?;
    save("table.csv", &table::csv(results))?;
    for clients in plot::clients(results) {
        let svg = plot::svg(results, clients).map_err(|e| format!("plot: {e}"))?;
        save(&format!("ratios-{clients}.svg"), &svg)?;
    }
    Ok(verdicts)
}

/// A ratio with its least and its most.
fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |s| {
        format!(
            "{} ({} to {})",
            figure(s.median),
            figure(s.least),
            figure(s.most)
        )
    })
}

/// Three significant digits.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
