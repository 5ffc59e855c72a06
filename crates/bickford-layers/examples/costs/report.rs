//! What was measured, as a table and as raw numbers.

use std::fmt::Write as _;
use std::path::Path;

use crate::bench::{Outcome, Timed};

/// The value below which this part of the values lies.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1)) as f64 * part;
    sorted.get(at.round() as usize).copied().unwrap_or(f64::NAN)
}

/// Tables, and the numbers behind them.
#[derive(Default)]
pub(crate) struct Report {
    table: String,
    raw: String,
}

impl Report {
    /// Adds benches that ran in one, the first of which is what the others are compared with.
    /// Answers the median ratio of the last one.
    pub(crate) fn add(&mut self, title: &str, benches: &[impl Timed]) -> Outcome<f64> {
        let first = benches.first().ok_or("nothing was measured")?;
        let (rounds, mut ratio) = (first.times().len(), f64::NAN);
        let mut table = format!("\n{title}, {rounds} rounds, ns a request\n");
        let header = format!(
            "{:<40}{:>9}{:>9}{:>9}{:>8}{:>9}",
            "", "median", "least", "q3", "ratio", "more"
        );
        writeln!(table, "{header}")?;
        for bench in benches {
            let pairs = || bench.times().iter().zip(first.times());
            let ratios: Vec<_> = pairs().map(|(time, bare)| time / bare).collect();
            let more: Vec<_> = pairs().map(|(time, bare)| time - bare).collect();
            ratio = quantile(&ratios, 0.5);
            writeln!(
                table,
                "{:<40}{:>9.0}{:>9.0}{:>9.0}{:>8.3}{:>9.0}",
                bench.name(),
                quantile(bench.times(), 0.5),
                quantile(bench.times(), 0.0),
                quantile(bench.times(), 0.75),
                ratio,
                quantile(&more, 0.5),
            )?;
            for (round, time) in bench.times().iter().enumerate() {
                writeln!(self.raw, "{title}\t{}\t{round}\t{time:.1}", bench.name())?;
            }
        }
        self.say(&table);
        Ok(ratio)
    }

    /// Prints a text, and keeps it for the table.
    pub(crate) fn say(&mut self, text: &str) {
        print!("{text}");
        self.table += text;
    }

    /// Writes `costs.txt` and `costs.tsv` into a directory, which is made.
    pub(crate) fn write(&self, directory: &Path) -> Outcome {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("costs.txt"), self.table.trim_start())?;
        let raw = format!("title\tname\tround\tnanoseconds\n{}", self.raw);
        std::fs::write(directory.join("costs.tsv"), raw)?;
        println!("\nwritten to {}", directory.display());
        Ok(())
    }
}
