//! Results row by row: summaries, comparisons with native, resources, explanations, verdicts.

use crate::measure::OpLatency;
use crate::measure::disk::Counters;
use crate::measure::tracepoints::Requests;
use crate::reference::{self, PaperRow};
use crate::results::{Measured, Results};
use crate::rows::{Kind, Row, WorkloadClass};
use crate::stats::{Class, Comparison, Summary, median};

use super::explain::{self, Cpus, Sentence};
use super::figure;

/// Everything the report says, before it is laid out.
#[derive(Debug)]
pub struct Analysis<'a> {
    /// Names of the configurations, native first, in the order they are shown in.
    pub configs: Vec<&'a str>,
    /// The rows that were begun.
    pub rows: Vec<RowAnalysis<'a>>,
}

/// A row in all configurations.
#[derive(Debug)]
pub struct RowAnalysis<'a> {
    /// The row.
    pub row: &'a Row,
    /// The paper's figures, where it is a row of FAST'17.
    pub paper: Option<PaperRow>,
    /// One per configuration, native first.
    pub cells: Vec<Cell<'a>>,
}

/// A row in one configuration.
#[derive(Debug)]
pub struct Cell<'a> {
    /// The configuration.
    pub config: &'a str,
    /// Throughput of the counted rounds.
    pub summary: Option<Summary>,
    /// Against native; `None` for native itself and where either has no result.
    pub comparison: Option<Comparison>,
    /// What makes the comparison uncertain whatever its spread: native has fewer rounds.
    pub doubt: Option<String>,
    /// The part by which the clock may be off, and by which the interval of the comparison is wider.
    pub coarseness: f64,
    /// What ended the row.
    pub error: Option<&'a str>,
    /// Resources, medians of the counted rounds.
    pub usage: Usage,
    /// The operation whose percentiles stand for the row: the one natively most time goes to.
    pub operation: Option<&'a str>,
    /// Requests of the round that is not counted, with that run.
    pub requests: Option<(&'a Measured, &'a Requests)>,
    /// Why it is as it is, from the measurements.
    pub explanation: Vec<Sentence>,
}

impl RowAnalysis<'_> {
    /// Native's throughput with its unit; `None` where there is no result.
    pub(super) fn native(&self) -> Option<String> {
        let summary = self.cells.first()?.summary?;
        Some(format!(
            "{} {}",
            figure(summary.median),
            self.row.kind.unit()
        ))
    }
}

impl Cell<'_> {
    /// True where it is compared and the class may be another one.
    #[must_use]
    pub fn uncertain(&self) -> bool {
        self.comparison
            .is_some_and(|c| c.uncertain() || self.doubt.is_some())
    }
}

/// Resources of a row in one configuration.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Usage {
    pub operations: Option<f64>,
    pub elapsed_s: Option<f64>,
    pub wall_s: Option<f64>,
    pub mean_us: Option<f64>,
    pub p50_us: Option<f64>,
    pub p95_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    pub workload_s: Option<f64>,
    pub daemon_s: Option<f64>,
    pub machine_s: Option<f64>,
    pub kernel_s: Option<f64>,
    pub cycles: Option<f64>,
    pub disk_read: Option<f64>,
    pub disk_written: Option<f64>,
    pub disk_busy_pct: Option<f64>,
    /// Read and written, over the time of the workload's process.
    pub disk_mb_s: Option<f64>,
    pub files_per_s: Option<f64>,
    pub cache_lower: Option<f64>,
    pub cache_upper: Option<f64>,
    pub memory_limit: Option<f64>,
    /// Of the round that is not counted; by MiB where the row's throughput is in MB.
    pub requests_per_operation: Option<f64>,
}

impl Usage {
    fn of(runs: &[&Measured], operation: Option<&str>) -> Self {
        let over = |pick: &dyn Fn(&Measured) -> Option<f64>| {
            median(&runs.iter().filter_map(|m| pick(m)).collect::<Vec<_>>())
        };
        // Over all kinds of operations, weighted by how many there were.
        let latency = |pick: fn(&OpLatency) -> f64| {
            over(&|m| {
                let counts = m.work.latencies.iter().map(|l| l.count);
                let count = counts.fold(0, u64::saturating_add);
                let sum: f64 = m
                    .work
                    .latencies
                    .iter()
                    .map(|l| pick(l) * l.count as f64)
                    .sum();
                (count > 0).then(|| sum / count as f64)
            })
        };
        // Percentiles of different operations do not add up: one stands for the row.
        let most = |pick: fn(&OpLatency) -> f64| {
            over(&|m| {
                m.work
                    .latencies
                    .iter()
                    .find(|l| Some(l.op.as_str()) == operation)
                    .map(pick)
            })
        };
        Self {
            operations: over(&|m| Some(m.work.operations as f64)),
            elapsed_s: over(&|m| Some(m.work.elapsed_s)),
            wall_s: over(&|m| Some(m.wall_s)),
            mean_us: latency(|l| l.mean_us),
            p50_us: most(|l| l.p50_us),
            p95_us: most(|l| l.p95_us),
            p99_us: most(|l| l.p99_us),
            p999_us: most(|l| l.p999_us),
            workload_s: over(&|m| Some(m.workload_s)),
            daemon_s: over(&|m| m.daemon.map(|d| d.total())),
            machine_s: over(&|m| Some(m.system.busy_s())),
            kernel_s: over(&|m| Some(m.system.system_s)),
            cycles: over(&|m| Some(m.cycles? as f64 / m.work.operations.max(1) as f64)),
            disk_read: over(&|m| m.disk.map(|d| d.read_bytes as f64)),
            disk_written: over(&|m| m.disk.map(|d| d.written_bytes as f64)),
            disk_busy_pct: over(&|m| {
                m.disk
                    .map(|d| (d.busy_ms as f64 / 10.0 / m.wall_s.max(1e-3)).min(100.0))
            }),
            disk_mb_s: over(&|m| {
                let moved = |d: Counters| d.read_bytes.saturating_add(d.written_bytes) as f64;
                m.disk.map(|d| moved(d) / 1e6 / m.wall_s.max(1e-3))
            }),
            files_per_s: over(&|m| {
                (m.work.files > 0).then(|| m.work.files as f64 / m.work.elapsed_s.max(1e-9))
            }),
            cache_lower: over(&|m| m.caches.map(|c| c.lower as f64)),
            cache_upper: over(&|m| m.caches.map(|c| c.upper as f64)),
            memory_limit: over(&|m| m.memory_limit.map(|l| l as f64)),
            requests_per_operation: None,
        }
    }
}

/// Names of the configurations as they are shown: as they were given, but `fast`, which is what mounts are
/// unless asked for otherwise, before `base` and `opt`, which are there for comparison with the papers.
fn in_order(results: &Results) -> Vec<&str> {
    let configs = results.settings.configs.iter();
    let mut names: Vec<&str> = configs.map(|c| c.name.as_str()).collect();
    let first = names.iter().position(|n| ["base", "opt"].contains(n));
    let fast = names.iter().position(|n| *n == "fast");
    if let (Some(first), Some(fast)) = (first, fast)
        && first < fast
    {
        let fast = names.remove(fast);
        names.insert(first, fast);
    }
    names
}

impl<'a> Analysis<'a> {
    /// Works out everything.
    #[must_use]
    pub fn of(results: &'a Results) -> Self {
        let configs = in_order(results);
        let papers = reference::fast17();
        let begun = |row: &&Row| results.samples.iter().any(|s| s.row == row.id);
        let rows = results.settings.rows.iter().filter(begun).map(|row| {
            let cells = cells(results, row, &configs);
            let paper = row
                .fast17
                .and_then(|n| papers.iter().find(|p| p.row == n).cloned());
            RowAnalysis { row, paper, cells }
        });
        Self {
            rows: rows.collect(),
            configs,
        }
    }

    /// The configurations that are compared with native.
    pub fn compared(&self) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        self.configs.iter().copied().skip(1)
    }

    /// How many rows of `config` are in each class, best first, and how many have no result.
    #[must_use]
    pub fn counts(&self, config: &str) -> ([usize; 4], usize) {
        let mut counts = [0; 4];
        let mut without = 0;
        for cell in self
            .rows
            .iter()
            .flat_map(|r| &r.cells)
            .filter(|c| c.config == config)
        {
            match cell
                .comparison
                .and_then(|c| counts.get_mut(c.class as usize))
            {
                Some(count) => *count += 1,
                None => without += 1,
            }
        }
        (counts, without)
    }

    /// What to make of `config` for a class of workloads; `None` where no row of it was run.
    #[must_use]
    pub fn verdict(&self, config: &str, class: WorkloadClass) -> Option<Verdict> {
        let rows = self.rows.iter().filter(|r| r.row.class == class);
        let cells: Vec<&Cell<'_>> = rows
            .flat_map(|r| &r.cells)
            .filter(|c| c.config == config)
            .collect();
        if cells.is_empty() {
            return None;
        }
        let differences: Vec<f64> = cells
            .iter()
            .filter_map(|c| Some(c.comparison?.difference_pct))
            .collect();
        let failed = cells.iter().filter(|c| c.error.is_some()).count();
        let uncertain = cells.iter().filter(|c| c.uncertain()).count();
        let Some(middle) = median(&differences) else {
            let text = if failed > 0 {
                let rows = if failed == 1 { "row" } else { "rows" };
                format!("{failed} {rows} failed, none was measured.")
            } else {
                "Not measured.".into()
            };
            return Some(Verdict { class: None, text });
        };
        let worst = differences.iter().copied().fold(f64::INFINITY, f64::min);
        let worst_class = Class::of_difference(worst);
        let green = differences
            .iter()
            .filter(|d| Class::of_difference(**d) == Class::Green)
            .count();
        let count = differences.len();
        let without = cells.len() - count - failed;
        let advice = match Class::of_difference(middle) {
            _ if green == cells.len() && uncertain == 0 => "No reason against it.",
            _ if green == cells.len() => "Green as far as it is known.",
            _ if 2 * green >= count => "Fine for part of it; look at the rows that are not green.",
            Class::Green | Class::Yellow => "Acceptable where its features are wanted.",
            Class::Orange => "Costs a good part of the throughput; measure your own workload.",
            Class::Red => "Costs more than half of the throughput.",
        };
        let mut text = if cells.len() == 1 {
            format!("{advice} {middle:+.1}% in its only row.")
        } else if count == 1 {
            format!("{advice} {middle:+.1}% in the only row measured.")
        } else {
            format!(
                "{advice} Median {middle:+.1}%, worst {worst:+.1}%, {green} of {count} rows green."
            )
        };
        if uncertain > 0 {
            text.push_str(&format!(" {uncertain} uncertain."));
        }
        if failed > 0 {
            text.push_str(&format!(" {failed} failed."));
        }
        if without > 0 {
            text.push_str(&format!(" {without} not compared."));
        }
        Some(Verdict {
            class: (failed == 0).then_some(worst_class),
            text,
        })
    }
}

/// What to make of a configuration for a class of workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The class of its worst row; `None` where that has no result.
    pub class: Option<Class>,
    /// For people.
    pub text: String,
}

fn cells<'a>(results: &'a Results, row: &'a Row, configs: &[&'a str]) -> Vec<Cell<'a>> {
    let native_runs = configs
        .first()
        .map(|c| results.throughputs(&row.id, c))
        .unwrap_or_default();
    let operation = configs
        .iter()
        .find_map(|c| costliest(results.counted(&row.id, c).next()?));
    let mut cells: Vec<Cell<'a>> = Vec::new();
    for config in configs {
        let runs: Vec<&Measured> = results.counted(&row.id, config).collect();
        let throughputs: Vec<f64> = runs.iter().map(|m| m.throughput).collect();
        let error = results.error(&row.id, config);
        let is_native = cells.is_empty();
        // A configuration that failed in a later round has no result to compare.
        let comparable = !is_native && error.is_none();
        let comparison = comparable
            .then(|| Comparison::of(&native_runs, &throughputs))
            .flatten();
        let native = configs.first().copied().unwrap_or(config);
        let coarseness = coarseness(results, row, &[native, config]);
        let comparison = comparison.map(|c| match coarseness {
            0.0 => c,
            by => c.widened(by),
        });
        let requests = results.requests(&row.id, config);
        let mut usage = Usage::of(&runs, operation);
        if matches!(row.kind, Kind::Postmark { .. }) {
            // Older records have the number that it begins with, which is not what it did.
            usage.files_per_s = None;
        }
        usage.requests_per_operation = requests.and_then(|(run, requests)| {
            let (units, _) = explain::unit(row, run);
            (units > 0.0).then(|| requests.total() as f64 / units)
        });
        let mut cell = Cell {
            config,
            summary: Summary::of(&throughputs),
            comparison,
            doubt: comparison.and_then(|_| doubt(results, &row.id, config)),
            coarseness,
            error,
            operation,
            usage,
            requests,
            explanation: Vec::new(),
        };
        if let Some(native) = cells.first() {
            let all = results.settings.machine.cpus;
            let usable = results.settings.cpus();
            cell.explanation = explain::row(row, native, &cell, Cpus { all, usable });
        }
        cells.push(cell);
    }
    cells
}

/// The part by which a ratio of these configurations may be off for the clock's sake: each by that of its shortest round.
pub(super) fn coarseness(results: &Results, row: &Row, configs: &[&str]) -> f64 {
    let of = |config: &&str| {
        let runs = results.counted(&row.id, config);
        let parts = runs.map(|run| row.kind.coarseness(&run.work));
        parts.fold(0.0, f64::max)
    };
    configs.iter().map(of).sum()
}

/// Why a comparison of `config` with native is uncertain for native's own sake.
pub(super) fn doubt(results: &Results, row: &str, config: &str) -> Option<String> {
    let native = &results.settings.configs.first()?.name;
    let rounds = |config: &str| results.counted(row, config).count();
    let (below, above) = (rounds(native), rounds(config));
    let error = results.error(row, native);
    (below < above || error.is_some()).then(|| {
        let why = error.map_or(String::new(), |e| {
            format!(", for it ended with an error: {e}")
        });
        format!("of counted rounds native has {below}, {config} {above}{why}")
    })
}

/// The operation most of a run's time went to.
fn costliest(run: &Measured) -> Option<&str> {
    let time = |l: &&OpLatency| l.count as f64 * l.mean_us;
    let most = run
        .work
        .latencies
        .iter()
        .max_by(|a, b| time(a).total_cmp(&time(b)));
    most.map(|l| l.op.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::results::Outcome;

    #[test]
    fn no_reason_against_it_only_where_every_row_is_known_to_be_green() {
        let verdict = |second: &str| {
            let mut results = fixture::results(&["f37", "f38"], &["base"]);
            for config in ["native", "base"] {
                fixture::run(&mut results, "f37", config, &[100.0; 3]);
            }
            if let "measured" | "doubtful" = second {
                let rounds = if second == "measured" { 3 } else { 2 };
                fixture::run(&mut results, "f38", "native", &[100.0; 3][..rounds]);
                fixture::run(&mut results, "f38", "base", &[100.0; 3]);
            } else {
                let outcome = Outcome::Failed("no luck".to_owned());
                fixture::add(&mut results, "f38", second, 1, outcome);
            }
            let verdict = Analysis::of(&results).verdict("base", WorkloadClass::Metadata);
            verdict.expect("there are rows")
        };
        let both = verdict("measured");
        assert!(both.text.starts_with("No reason against it."), "{both:?}");
        assert_eq!(both.class, Some(Class::Green));
        let doubtful = verdict("doubtful");
        let told = "Green as far as it is known. Median +0.0%, worst +0.0%, 2 of 2 rows green. 1 uncertain.";
        assert_eq!(doubtful.text, told);
        let failed = verdict("base");
        let told = "+0.0% in the only row measured. 1 failed.";
        assert!(failed.text.ends_with(told), "{failed:?}");
        assert_eq!(failed.class, None);
        let uncompared = verdict("native");
        let told = "+0.0% in the only row measured. 1 not compared.";
        assert!(uncompared.text.ends_with(told), "{uncompared:?}");
        for one in [failed, uncompared] {
            assert!(!one.text.contains("No reason"), "{one:?}");
        }
    }

    #[test]
    fn native_with_fewer_rounds_makes_the_class_uncertain() {
        let of = |native: usize, error: Option<&str>| {
            let mut results = fixture::results(&["f37"], &["base"]);
            fixture::run(&mut results, "f37", "native", &[100.0].repeat(native));
            if let Some(error) = error {
                let outcome = Outcome::Failed(error.to_owned());
                fixture::add(&mut results, "f37", "native", native as u32 + 1, outcome);
            }
            fixture::run(&mut results, "f37", "base", &[90.0; 3]);
            let analysis = Analysis::of(&results);
            let cell = &analysis.rows[0].cells[1];
            let verdict = analysis.verdict("base", WorkloadClass::Metadata);
            (
                cell.uncertain(),
                explain::full(&cell.explanation),
                verdict.map_or(String::new(), |v| v.text),
            )
        };
        let (uncertain, why, verdict) = of(1, Some("the device is full"));
        assert!(uncertain);
        assert!(why.contains("native has 1, base 3"), "{why}");
        assert!(why.contains("the device is full"), "{why}");
        assert!(verdict.contains("1 uncertain"), "{verdict}");
        let (uncertain, why, _) = of(2, None);
        assert!(uncertain && why.contains("native has 2"), "{why}");
        let (uncertain, why, verdict) = of(3, None);
        assert!(!uncertain && !why.contains("native has"), "{why}");
        assert!(!verdict.contains("uncertain"), "{verdict}");
    }

    #[test]
    fn files_of_postmark_are_not_those_that_it_begins_with() {
        let mut results = fixture::results(&["f37"], &[]);
        results.settings.rows.extend(crate::rows::sac10(0.01));
        for row in ["f37", "s4"] {
            let mut measured = fixture::measured(1.0);
            measured.work.files = 50;
            let outcome = Outcome::Measured(Box::new(measured));
            fixture::add(&mut results, row, "native", 1, outcome);
        }
        let analysis = Analysis::of(&results);
        let files = analysis.rows.iter().map(|r| r.cells[0].usage.files_per_s);
        assert_eq!(files.collect::<Vec<_>>(), [Some(50.0), None]);
    }
}
