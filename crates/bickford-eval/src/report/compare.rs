//! What changed between two runs.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use super::analysis::{coarseness, doubt};
use crate::host::Machine;
use crate::results::{Results, Settings, differences};
use crate::rows::{Kind, Row};
use crate::stats::{Change, Comparison, Interval, interval_label, interval_name};
use crate::terminal::harmless;

/// For every row and configuration of either run: throughput of the second against the first, and how
/// the difference to native changed, which a faster or slower machine does not touch. What only one of them
/// has a result of, and rows that do not do the same work, are told and not compared.
#[must_use]
pub fn text(before: &Results, after: &Results) -> String {
    let mut out = warnings(&before.settings, &after.settings);
    let lines = lines(before, after);
    let figures = lines.iter().flat_map(|l| l.figures.iter().flatten());
    let rounds = figures.map(|f| f.rounds).min();
    let head = [
        "row".to_owned(),
        "workload".to_owned(),
        "configuration".to_owned(),
        format!("B/A ({})", interval_label(rounds.unwrap_or(0))),
        "A to native".to_owned(),
        "B to native".to_owned(),
        "change to native".to_owned(),
        String::new(),
    ];
    let table: Vec<_> = std::iter::once(head)
        .chain(lines.iter().map(Line::cells))
        .collect();
    let width = |index: usize| {
        let cells = table.iter().filter_map(|line| line.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..7).map(width).chain([0]).collect();
    for line in &table {
        let cells: Vec<String> = std::iter::zip(line, &widths)
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        out.push(cells.join("  ").trim_end().to_owned());
    }
    if let Some(rounds) = rounds {
        out.push(format!(
            "In parentheses: the {}. Within the spread: it holds 0%.",
            interval_name(rounds)
        ));
    }
    harmless(&out.join("\n")) + "\n"
}

/// A difference in percent.
struct Figure {
    difference: f64,
    interval: Interval,
    rounds: usize,
}

impl From<Comparison> for Figure {
    fn from(c: Comparison) -> Self {
        Self {
            difference: c.difference_pct,
            interval: c.interval_pct,
            rounds: c.rounds,
        }
    }
}

impl From<Change> for Figure {
    fn from(c: Change) -> Self {
        Self {
            difference: c.difference_pct,
            interval: c.interval_pct,
            rounds: c.rounds,
        }
    }
}

impl Figure {
    /// The same where the ratio may be off by this part of it, too.
    fn widened(mut self, by: f64) -> Self {
        if by > 0.0 {
            self.interval = self.interval.widened(by);
        }
        self
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { low, high } = self.interval;
        write!(f, "{:+.1}% ({low:+.1} to {high:+.1})", self.difference)
    }
}

/// A row in a configuration, in both runs.
struct Line<'a> {
    row: &'a Row,
    config: &'a str,
    /// B/A, A to native, B to native, and the change of that.
    figures: [Option<Figure>; 4],
    /// Why a figure is not there, or not sure.
    remarks: Vec<String>,
}

impl<'a> Line<'a> {
    /// A row of one run.
    fn only(row: &'a Row, run: &str) -> Self {
        Self {
            row,
            config: "",
            figures: [None, None, None, None],
            remarks: vec![format!("only in {run}")],
        }
    }

    fn of(a: &Side<'_>, b: &Side<'_>, row: &'a Row, other: &Row, config: &'a str) -> Self {
        let mut line = Self::only(row, "");
        line.config = config;
        let apart = other_work(row, other).or_else(|| other_limit(a, b));
        line.remarks = [a.remark(), b.remark(), apart.clone()]
            .into_iter()
            .flatten()
            .collect();
        let [ratio, a_to_native, b_to_native, change] = &mut line.figures;
        *a_to_native = a.to_native();
        *b_to_native = b.to_native();
        if apart.is_none() && a.missing.is_none() && b.missing.is_none() {
            let coarse = a.coarseness + b.coarseness;
            *ratio = Comparison::of(&a.throughputs, &b.throughputs).map(Figure::from);
            *ratio = ratio.take().map(|f| f.widened(coarse));
            let groups = |side: &Side<'_>| Some((side.native.clone()?, side.throughputs.clone()));
            *change = groups(a)
                .zip(groups(b))
                .and_then(|(a, b)| Change::of((&a.0, &a.1), (&b.0, &b.1)).map(Figure::from))
                .map(|f| f.widened(coarse + a.native_coarseness + b.native_coarseness));
        }
        let within = |f: &Option<Figure>| f.as_ref().is_some_and(|f| f.interval.holds_zero());
        let told = match (within(ratio), within(change)) {
            (true, true) => Some("both within the spread"),
            (true, false) => Some("B/A within the spread"),
            (false, true) => Some("change to native within the spread"),
            (false, false) => None,
        };
        line.remarks.extend(told.map(str::to_owned));
        line
    }

    fn cells(&self) -> [String; 8] {
        let [ratio, a, b, change] = &self.figures;
        let figure = |f: &Option<Figure>| f.as_ref().map_or(String::new(), Figure::to_string);
        [
            self.row.id.clone(),
            self.row.name.clone(),
            self.config.to_owned(),
            figure(ratio),
            figure(a),
            figure(b),
            figure(change),
            self.remarks.join("; "),
        ]
    }
}

/// A row in a configuration, in one run.
struct Side<'a> {
    name: &'a str,
    throughputs: Vec<f64>,
    /// The memory limits of its counted rounds.
    limits: BTreeSet<Option<u64>>,
    /// Why there is nothing to compare.
    missing: Option<String>,
    /// Native's throughputs; `None` for native itself.
    native: Option<Vec<f64>>,
    doubt: Option<String>,
    /// [`coarseness`] of its rounds, and of native's.
    coarseness: f64,
    native_coarseness: f64,
}

impl<'a> Side<'a> {
    fn of(name: &'a str, results: &Results, row: &Row, config: &str) -> Self {
        let id = row.id.as_str();
        let throughputs = results.throughputs(id, config);
        // As in the reports, a configuration that failed in a later round has no result.
        let missing = match results.error(id, config) {
            Some(error) => Some(format!("error: {}", error.replace('\n', " "))),
            None => throughputs.is_empty().then(|| "no result".to_owned()),
        };
        let native = results.settings.configs.first();
        let native = native.filter(|n| n.name != config);
        let native_coarseness =
            native.map_or(0.0, |n| coarseness(results, row, &[n.name.as_str()]));
        let native = native.map(|n| results.throughputs(id, &n.name));
        let compared = missing.is_none() && native.is_some();
        Self {
            name,
            throughputs,
            limits: results
                .counted(id, config)
                .map(|m| m.memory_limit)
                .collect(),
            missing,
            native,
            doubt: compared.then(|| doubt(results, id, config)).flatten(),
            coarseness: coarseness(results, row, &[config]),
            native_coarseness,
        }
    }

    fn to_native(&self) -> Option<Figure> {
        let native = self.native.as_ref().filter(|_| self.missing.is_none())?;
        let figure = Comparison::of(native, &self.throughputs).map(Figure::from)?;
        Some(figure.widened(self.coarseness + self.native_coarseness))
    }

    fn remark(&self) -> Option<String> {
        let remark = self.missing.as_ref().or(self.doubt.as_ref())?;
        Some(format!("{}: {remark}", self.name))
    }
}

/// Every row of either run.
fn lines<'a>(before: &'a Results, after: &'a Results) -> Vec<Line<'a>> {
    let (ours, theirs) = (&before.settings.rows, &after.settings.rows);
    let both = |name: &str| after.settings.configs.iter().any(|c| c.name == name);
    let mut lines = Vec::new();
    for row in ours {
        let Some(other) = theirs.iter().find(|r| r.id == row.id) else {
            lines.push(Line::only(row, "A"));
            continue;
        };
        let names = before.settings.configs.iter().map(|c| c.name.as_str());
        for config in names.filter(|name| both(name)) {
            let a = Side::of("A", before, row, config);
            let b = Side::of("B", after, other, config);
            lines.push(Line::of(&a, &b, row, other, config));
        }
    }
    let new = |row: &&Row| !ours.iter().any(|r| r.id == row.id);
    lines.extend(theirs.iter().filter(new).map(|row| Line::only(row, "B")));
    lines
}

/// What makes the work of two rows with the same identifier different.
fn other_work(a: &Row, b: &Row) -> Option<String> {
    let same = match (&a.kind, &b.kind) {
        (Kind::Wml { text, scale }, Kind::Wml { text: t, scale: s }) => {
            text == t && same_factor(*scale, *s)
        }
        (kind, other) => kind == other,
    };
    if !same {
        return Some("other work: not compared".to_owned());
    }
    (a.memory != b.memory).then(|| {
        format!(
            "other work: not compared (memory for {} and {} MB)",
            a.memory >> 20,
            b.memory >> 20
        )
    })
}

/// What of the memory limits makes two results incomparable.
fn other_limit(a: &Side<'_>, b: &Side<'_>) -> Option<String> {
    let limits = |side: &Side<'_>| {
        let one = |limit: &Option<u64>| {
            limit.map_or("none".to_owned(), |bytes| format!("{} MB", bytes >> 20))
        };
        side.limits
            .iter()
            .map(one)
            .collect::<Vec<_>>()
            .join(" and ")
    };
    let both = a.missing.is_none() && b.missing.is_none();
    (both && a.limits != b.limits).then(|| {
        let (a, b) = (limits(a), limits(b));
        format!("another memory limit: not compared ({a} in A, {b} in B)")
    })
}

/// Numbers that were written and read again may differ in their last digit.
fn same_factor(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// What makes the runs different as a whole.
fn warnings(a: &Settings, b: &Settings) -> Vec<String> {
    let mut out = Vec::new();
    let differences = differences(&a.machine, &b.machine);
    if !differences.is_empty() {
        let told = differences.iter();
        let told = told.map(|(what, a, b)| format!("{what} {a} in A, {b} in B"));
        out.push(format!(
            "The runs come from different machines ({}): compare the differences to native only.\n  A: {}\n  B: {}",
            told.collect::<Vec<_>>().join("; "),
            machine(&a.machine),
            machine(&b.machine)
        ));
    }
    let others = |(a, b): (&String, &String)| a != b;
    let other_below = a.file_system.as_ref().zip(b.file_system.as_ref());
    if (&a.device, &a.directory) != (&b.device, &b.directory) || other_below.is_some_and(others) {
        let of = |s: &Settings| {
            let below = s.file_system.as_deref();
            let below = below.map_or(String::new(), |below| format!(" ({below})"));
            format!(
                "{}, work directory {}{below}",
                s.device,
                s.directory.display()
            )
        };
        out.push(format!(
            "The runs have different devices: compare the differences to native only.\n  A: {}\n  B: {}",
            of(a),
            of(b)
        ));
    }
    if !same_factor(a.scale, b.scale) {
        out.push(format!(
            "The runs have different scales, {} and {}: their rows do not do the same work.",
            a.scale, b.scale
        ));
    }
    if a.usable_cpus != b.usable_cpus && a.cpus() != b.cpus() {
        out.push(format!(
            "The runs might use different numbers of CPUs, {} in A and {} in B (affinity or a quota of CPU time): compare the differences to native only.",
            a.cpus(),
            b.cpus()
        ));
    }
    if let (Some(of_a), Some(of_b)) = (&a.enable_uring, &b.enable_uring)
        && of_a != of_b
    {
        out.push(format!(
            "FUSE over io_uring: enable_uring of the module fuse is {of_a} in A and {of_b} in B, so that mounts that would use it differ."
        ));
    }
    out.extend(rights(a, b));
    for config in &a.configs {
        let other = b.configs.iter().find(|c| c.name == config.name);
        match other {
            None => out.push(format!("Configuration {}: only in A.", config.name)),
            Some(other) if other.command != config.command => out.push(format!(
                "Configuration {}: its command is another one.\n  A: {}\n  B: {}",
                config.name,
                config.command.as_deref().unwrap_or("none"),
                other.command.as_deref().unwrap_or("none")
            )),
            Some(_) => {}
        }
    }
    let new = b.configs.iter();
    let new = new.filter(|c| !a.configs.iter().any(|o| o.name == c.name));
    out.extend(new.map(|c| format!("Configuration {}: only in B.", c.name)));
    out
}

/// What one of the runs might do and the other not.
fn rights(a: &Settings, b: &Settings) -> Vec<String> {
    let which = |of_a: Option<bool>, of_b: Option<bool>| match (of_a?, of_b?) {
        (true, false) => Some("A"),
        (false, true) => Some("B"),
        _ => None,
    };
    let root = which(a.root, b.root).map(|run| {
        format!("Only {run} was run as root: in the other, caches stayed warm and requests were not counted.")
    });
    let limited = which(a.limited, b.limited).map(|run| {
        format!(
            "Only in {run} could a memory limit be had: in the other, files fit in the page cache."
        )
    });
    root.into_iter().chain(limited).collect()
}

fn machine(m: &Machine) -> String {
    let memory = m.memory_bytes >> 20;
    format!("{}, {} CPUs, {memory} MB, {}", m.cpu, m.cpus, m.kernel)
}
