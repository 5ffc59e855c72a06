//! What changed between two runs.

use std::collections::BTreeSet;
use std::fmt;

use super::analysis::doubt;
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
            *ratio = Comparison::of(&a.throughputs, &b.throughputs).map(Figure::from);
            let groups = |side: &Side<'_>| Some((side.native.clone()?, side.throughputs.clone()));
            *change = groups(a)
                .zip(groups(b))
                .and_then(|(a, b)| Change::of((&a.0, &a.1), (&b.0, &b.1)).map(Figure::from));
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
}

impl<'a> Side<'a> {
    fn of(name: &'a str, results: &Results, row: &str, config: &str) -> Self {
        let throughputs = results.throughputs(row, config);
        // As in the reports, a configuration that failed in a later round has no result.
        let missing = match results.error(row, config) {
            Some(error) => Some(format!("error: {}", error.replace('\n', " "))),
            None => throughputs.is_empty().then(|| "no result".to_owned()),
        };
        let native = results.settings.configs.first();
        let native = native.filter(|n| n.name != config);
        let native = native.map(|n| results.throughputs(row, &n.name));
        let compared = missing.is_none() && native.is_some();
        Self {
            name,
            throughputs,
            limits: results
                .counted(row, config)
                .map(|m| m.memory_limit)
                .collect(),
            missing,
            native,
            doubt: compared.then(|| doubt(results, row, config)).flatten(),
        }
    }

    fn to_native(&self) -> Option<Figure> {
        let native = self.native.as_ref().filter(|_| self.missing.is_none())?;
        Comparison::of(native, &self.throughputs).map(Figure::from)
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
            let a = Side::of("A", before, &row.id, config);
            let b = Side::of("B", after, &row.id, config);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{add, results, run};
    use crate::results::Outcome;

    /// Native and `base` of row 37.
    fn base(native: f64, base: f64) -> Results {
        let mut results = results(&["f37"], &["base"]);
        let around = |v: f64| [v, v * 1.01, v * 0.99];
        run(&mut results, "f37", "native", &around(native));
        run(&mut results, "f37", "base", &around(base));
        results
    }

    fn line(text: &str, config: &str) -> String {
        let mut lines = text.lines();
        let found = lines.find(|l| l.starts_with("f37") && l.contains(config));
        found.unwrap_or_default().to_owned()
    }

    #[test]
    fn a_change_against_native_has_its_own_spread() {
        let same = line(&text(&base(100.0, 50.0), &base(200.0, 100.0)), "base");
        assert!(same.contains("+100.0% (+96.0 to +104.0)"), "{same}");
        assert!(same.contains("-50.0% (-51.0 to -49.0)"), "{same}");
        assert!(
            same.ends_with("change to native within the spread"),
            "{same}"
        );
        let better = line(&text(&base(100.0, 50.0), &base(100.0, 80.0)), "base");
        assert!(
            better.contains("+60.0%") && !better.contains("within"),
            "{better}"
        );
    }

    #[test]
    fn what_only_one_run_has_is_a_line() {
        let mut a = base(100.0, 50.0);
        let mut b = base(100.0, 50.0);
        b.samples.retain(|s| s.config != "base");
        let unmeasured = line(&text(&a, &b), "base");
        assert!(
            unmeasured.contains("-50.0% (") && unmeasured.ends_with("B: no result"),
            "{unmeasured}"
        );
        add(&mut b, "f37", "base", 1, Outcome::Failed("no luck".into()));
        let failed = line(&text(&a, &b), "base");
        assert!(failed.ends_with("B: error: no luck"), "{failed}");
        let rows = results(&["f37", "f38"], &["fast"]);
        b.settings.rows = rows.settings.rows;
        b.settings.configs = rows.settings.configs;
        let other = text(&a, &b);
        assert!(
            other.contains("f38") && other.contains("only in B"),
            "{other}"
        );
        assert!(other.contains("Configuration base: only in A."), "{other}");
        assert!(other.contains("Configuration fast: only in B."), "{other}");
        a.settings.rows.clear();
        assert!(line(&text(&b, &a), "").ends_with("only in A"));
    }

    #[test]
    fn rows_that_do_other_work_are_not_compared() {
        let a = base(100.0, 50.0);
        let mut b = base(100.0, 60.0);
        if let Some(row) = b.settings.rows.first_mut() {
            row.memory *= 2;
        }
        let memory = line(&text(&a, &b), "base");
        assert!(
            memory.contains("other work: not compared (memory"),
            "{memory}"
        );
        assert!(
            memory.contains("-40.0%") && !memory.contains("+20.0%"),
            "{memory}"
        );
        if let Some(row) = b.settings.rows.first_mut() {
            row.kind = Kind::Copy { bytes: 1 };
        }
        let kind = line(&text(&a, &b), "native");
        assert!(kind.ends_with("other work: not compared"), "{kind}");
    }

    #[test]
    fn rows_under_other_memory_limits_are_not_compared() {
        let (a, mut b) = (base(100.0, 50.0), base(100.0, 60.0));
        for sample in b.samples.iter_mut().filter(|s| s.config == "base") {
            if let Outcome::Measured(measured) = &mut sample.outcome {
                measured.memory_limit = Some(64 << 20);
            }
        }
        let told = line(&text(&a, &b), "base");
        let remark = "another memory limit: not compared (none in A, 64 MB in B)";
        assert!(told.ends_with(remark) && !told.contains("+20.0%"), "{told}");
        assert!(!text(&b, &b).contains("limit"), "{}", text(&b, &b));
    }

    #[test]
    fn other_rights_and_another_file_system_below_are_told() {
        let (mut a, mut b) = (base(100.0, 50.0), base(100.0, 50.0));
        b.settings.root = Some(true);
        b.settings.limited = Some(true);
        b.settings.file_system = Some("ext4 on /dev/sda1".into());
        let older = text(&a, &b);
        assert!(
            !older.contains("root") && !older.contains("different"),
            "{older}"
        );
        assert!(!text(&b, &b).contains("Only"), "{}", text(&b, &b));
        a.settings.root = Some(false);
        a.settings.limited = Some(false);
        a.settings.file_system = Some("xfs on /dev/sdb1".into());
        let told = text(&a, &b);
        for part in [
            "Only B was run as root",
            "Only in B could a memory limit be had",
            "The runs have different devices",
            "A: disk, work directory /var/tmp (xfs on /dev/sdb1)",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn what_differs_of_the_machines_is_told_and_a_restart_makes_no_other_machine() {
        let a = base(100.0, 50.0);
        let mut b = base(100.0, 50.0);
        // The kernel keeps a little more for itself.
        b.settings.machine.memory_bytes -= 4096;
        assert!(!text(&a, &b).contains("different"), "{}", text(&a, &b));
        b.settings.machine.memory_bytes /= 2;
        b.settings.machine.kernel = "Linux 7".into();
        let told = text(&a, &b);
        for part in [
            "different machines (the kernel Linux 6 in A, Linux 7 in B; ",
            "the machine with 4096 MB of memory in A, with 2047 MB of memory in B)",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn cpus_that_only_one_run_might_not_use_are_told() {
        let a = base(100.0, 50.0);
        let mut b = base(100.0, 50.0);
        // All that there are, as in older records.
        b.settings.usable_cpus = Some(2);
        assert!(!text(&a, &b).contains("CPUs"), "{}", text(&a, &b));
        b.settings.usable_cpus = Some(1);
        let told = text(&a, &b);
        assert!(told.contains("of CPUs, 2 in A and 1 in B"), "{told}");
        assert!(!text(&b, &b).contains("CPUs"), "{}", text(&b, &b));
    }

    #[test]
    fn other_devices_and_commands_are_told() {
        let a = base(100.0, 50.0);
        assert!(!text(&a, &a).contains("different"), "{}", text(&a, &a));
        let mut b = base(100.0, 50.0);
        b.settings.enable_uring = Some("N".into());
        assert!(!text(&a, &b).contains("io_uring"), "an older record");
        let mut on = base(100.0, 50.0);
        on.settings.enable_uring = Some("Y".into());
        let told = text(&on, &b);
        assert!(told.contains("is Y in A and N in B"), "{told}");
        b.settings.device = crate::host::device::Choice::Ram;
        if let Some(config) = b.settings.configs.last_mut() {
            config.command = Some("other {src} {mnt}".into());
        }
        let told = text(&a, &b);
        assert!(told.contains("different devices"), "{told}");
        assert!(told.contains("base: its command is another one"), "{told}");
        assert!(told.contains("B: other {src} {mnt}"), "{told}");
    }

    #[test]
    fn native_with_fewer_rounds_is_told() {
        let mut b = base(100.0, 50.0);
        b.samples.retain(|s| s.config != "native" || s.round < 3);
        let told = line(&text(&base(100.0, 50.0), &b), "base");
        assert!(
            told.contains("B: of counted rounds native has 2, base 3"),
            "{told}"
        );
    }
}
