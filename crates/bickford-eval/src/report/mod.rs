//! From results to something a person reads: HTML, CSV, JSON, and text for the terminal.

pub mod analysis;
pub mod compare;
mod explain;
#[cfg(test)]
pub(crate) mod fixture;
mod html;
pub mod markdown;
mod plots;
mod sections;
pub mod terminal;

use std::fs;
use std::path::Path;

use analysis::{Analysis, Cell};
use jiff::Timestamp;

use crate::error::EvalError;
use crate::results::{CSV, HTML, JSON, Results};
use crate::rows::Row;
use crate::stats::interval_label;

/// Writes `report.html`, `report.json` and `report.csv` into `directory`.
///
/// # Errors
/// A file could not be written, or a plot not drawn.
pub fn write(results: &Results, directory: &Path) -> Result<(), EvalError> {
    let analysis = Analysis::of(results);
    let put = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(EvalError::io(path))
    };
    put(
        HTML,
        html::page(results, &analysis).map_err(EvalError::Report)?,
    )?;
    let json = serde_json::to_string(results).map_err(EvalError::json(directory.join(JSON)))?;
    put(JSON, json)?;
    put(CSV, csv(&analysis).map_err(EvalError::Report)?)
}

/// The columns of `report.csv`. New ones come last: scripts count the others from the left.
const COLUMNS: [&str; 35] = [
    "row",
    "name",
    "class",
    "config",
    "unit",
    "rounds",
    "median",
    "mad",
    "min",
    "max",
    "difference_pct",
    "low_pct",
    "high_pct",
    "grade",
    "uncertain",
    "p50_us",
    "p99_us",
    "workload_cpu_s",
    "daemon_cpu_s",
    "machine_cpu_s",
    "disk_read_bytes",
    "disk_written_bytes",
    "disk_busy_pct",
    "files_per_s",
    "error",
    "interval",
    "p95_us",
    "p999_us",
    "kernel_cpu_s",
    "disk_mb_s",
    "requests_per_operation",
    "cycles_per_operation",
    "cache_lower_bytes",
    "cache_upper_bytes",
    "memory_limit_bytes",
];

/// One line per row and configuration.
fn csv(analysis: &Analysis<'_>) -> Result<String, String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(COLUMNS).map_err(|e| e.to_string())?;
    for row in &analysis.rows {
        for cell in &row.cells {
            let record = record(row.row, cell);
            out.write_record(&record).map_err(|e| e.to_string())?;
        }
    }
    let bytes = out.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

/// A line in the order of [`COLUMNS`].
fn record(row: &Row, cell: &Cell<'_>) -> [String; COLUMNS.len()] {
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.3}"));
    let fine = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.6}"));
    let summary = cell.summary;
    let use_ = &cell.usage;
    let compared = cell.comparison;
    [
        row.id.clone(),
        row.name.clone(),
        row.class.title().to_owned(),
        cell.config.to_owned(),
        row.kind.unit().to_owned(),
        summary.map_or(String::new(), |s| s.rounds.to_string()),
        number(summary.map(|s| s.median)),
        number(summary.map(|s| s.mad)),
        number(summary.map(|s| s.min)),
        number(summary.map(|s| s.max)),
        number(compared.map(|c| c.difference_pct)),
        number(compared.map(|c| c.interval_pct.low)),
        number(compared.map(|c| c.interval_pct.high)),
        compared.map_or(String::new(), |c| c.class.to_string()),
        compared.map_or(String::new(), |_| cell.uncertain().to_string()),
        number(use_.p50_us),
        number(use_.p99_us),
        number(use_.workload_s),
        number(use_.daemon_s),
        number(use_.machine_s),
        number(use_.disk_read),
        number(use_.disk_written),
        number(use_.disk_busy_pct),
        number(use_.files_per_s),
        cell.error.unwrap_or_default().to_owned(),
        compared.map_or(String::new(), |c| interval_label(c.rounds).to_owned()),
        number(use_.p95_us),
        number(use_.p999_us),
        number(use_.kernel_s),
        number(use_.disk_mb_s),
        fine(use_.requests_per_operation),
        number(use_.cycles),
        number(use_.cache_lower),
        number(use_.cache_upper),
        number(use_.memory_limit),
    ]
}

/// `seconds` since 1970 as date and time in UTC.
#[must_use]
pub fn date(seconds: u64) -> String {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .unwrap_or(Timestamp::MAX);
    moment.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A number with three significant digits, and thousands separated.
pub(crate) fn figure(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    let (sign, rest) = text
        .strip_prefix('-')
        .map_or(("", text.as_str()), |r| ("-", r));
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() {
        format!("{sign}{grouped}")
    } else {
        format!("{sign}{grouped}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::OpLatency;
    use crate::measure::disk::Counters;
    use crate::measure::tracepoints::Requests;
    use crate::results::{Caches, Outcome};

    #[test]
    fn dates_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59:59");
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00:00");
    }

    /// A row that is uncertain, with as many rounds as are given.
    fn uncertain(rounds: u32) -> Results {
        let mut results = fixture::results(&["f37"], &["base"]);
        results.settings.rounds = rounds;
        let spread: Vec<f64> = (0..rounds).map(|n| 90.0 + 4.0 * f64::from(n)).collect();
        fixture::run(&mut results, "f37", "native", &[100.0].repeat(spread.len()));
        fixture::run(&mut results, "f37", "base", &spread);
        results
    }

    #[test]
    fn three_rounds_are_nowhere_called_95_percent() {
        let all = |results: &Results| {
            let analysis = Analysis::of(results);
            [
                html::page(results, &analysis).unwrap(),
                csv(&analysis).unwrap(),
                terminal::text(results),
                compare::text(results, results),
                explain::full(&analysis.rows[0].cells[1].explanation),
            ]
        };
        // Of the page only what is about intervals: its paper and styles have numbers of their own.
        for (index, text) in all(&uncertain(3)).iter().enumerate() {
            for wrong in ["95% of", "95% bootstrap", ",95%", "95% interval"] {
                assert!(!text.contains(wrong), "{index}: {wrong}: {text}");
            }
            let names = ["range of the", ",range", "range of B/A"];
            assert!(names.iter().any(|n| text.contains(n)), "{index}: {text}");
        }
        for (index, text) in all(&uncertain(7)).iter().enumerate() {
            assert!(text.contains("95%"), "{index}: {text}");
        }
    }

    /// Everything that can be measured, in one run.
    fn full() -> Results {
        let mut results = fixture::results(&["f37"], &["base"]);
        fixture::run(&mut results, "f37", "native", &[100.0; 3]);
        let mut run = fixture::measured(90.0);
        run.cycles = Some(7_000_000);
        run.system.system_s = 0.625;
        run.memory_limit = Some(64_000_000);
        run.caches = Some(Caches {
            lower: 5_000_000,
            upper: 6_000_000,
        });
        run.disk = Some(Counters {
            read_bytes: 3_000_000,
            written_bytes: 9_000_000,
            operations: 1,
            busy_ms: 500,
        });
        let mut traced = run.clone();
        traced.requests = Some(Requests {
            by_opcode: vec![OpLatency {
                count: 2340,
                ..run.work.latencies[0].clone()
            }],
            errors: 0,
            unanswered: 0,
            lost: 0,
        });
        for (round, run) in (0..).zip([traced, run.clone(), run.clone(), run]) {
            let outcome = Outcome::Measured(Box::new(run));
            fixture::add(&mut results, "f37", "base", round, outcome);
        }
        results
    }

    #[test]
    fn what_is_measured_is_in_the_table() {
        let results = full();
        let text = csv(&Analysis::of(&results)).expect("a table");
        let mut table = csv::Reader::from_reader(text.as_bytes());
        let head = table.headers().expect("a head").clone();
        let base = table.records().nth(1).expect("a line").expect("whole");
        let of = |name: &str| {
            let index = head.iter().position(|n| n == name).expect(name);
            base.get(index).expect(name).to_owned()
        };
        for (name, value) in [
            ("p95_us", "95.000"),
            ("p999_us", "99.900"),
            ("kernel_cpu_s", "0.625"),
            ("disk_mb_s", "12.000"),
            ("requests_per_operation", "2.340000"),
            ("cycles_per_operation", "7000.000"),
            ("cache_lower_bytes", "5000000.000"),
            ("cache_upper_bytes", "6000000.000"),
            ("memory_limit_bytes", "64000000.000"),
        ] {
            assert_eq!(of(name), value, "{name}");
        }
    }

    /// As a damaged record has them.
    #[test]
    fn figures_at_the_end_of_their_range_are_reported() {
        let mut results = full();
        for sample in &mut results.samples {
            let Outcome::Measured(run) = &mut sample.outcome else {
                continue;
            };
            let most = run.work.latencies.first().cloned();
            run.work.latencies.extend(most);
            let requests = run.requests.iter_mut().flat_map(|r| &mut r.by_opcode);
            for latency in run.work.latencies.iter_mut().chain(requests) {
                latency.count = u64::MAX;
            }
            if let Some(requests) = &mut run.requests {
                requests.by_opcode.extend_from_within(..);
            }
            if let Some(disk) = &mut run.disk {
                disk.read_bytes = u64::MAX;
            }
        }
        let directory = tempfile::tempdir().expect("a directory");
        write(&results, directory.path()).expect("a report");
        assert!(!compare::text(&results, &results).is_empty());
    }

    #[test]
    fn what_is_measured_is_on_the_page() {
        let results = full();
        let page = html::page(&results, &Analysis::of(&results)).expect("a page");
        for cell in [
            "95.0", "99.9", "0.625", "12.0", "2.34", "7,000", "50%", "64.0",
        ] {
            let cell = format!("<td class=\"number\">{cell}</td>");
            assert!(page.contains(&cell), "{cell}");
        }
    }

    /// A line of `samples.jsonl` and a `run.json` as the first versions wrote them.
    #[test]
    fn the_oldest_records_are_read_and_shown() {
        let mut settings = serde_json::to_value(&full().settings).expect("settings");
        let settings_now = settings.as_object_mut().expect("an object");
        settings_now.remove("programs").expect("it was written");
        let line = r#"{"row":"f37","config":"native","round":1,"outcome":{"measured":{"throughput":10.0,
            "work":{"operations":1,"bytes":2,"files":3,"elapsed_s":1.0,"latencies":[]},"wall_s":1.0,
            "workload_s":0.1,"daemon":null,
            "system":{"user_s":0.1,"system_s":0.1,"iowait_s":0.0,"idle_s":1.0},
            "disk":null,"requests":null,"caches":null,"memory_limit":null}}}"#;
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: String| fs::write(directory.path().join(name), text);
        put("run.json", settings.to_string()).expect("written");
        put("samples.jsonl", line.replace('\n', "") + "\n").expect("written");
        let results = crate::results::load(directory.path()).expect("a record");
        write(&results, directory.path()).expect("a report");
        let page = fs::read_to_string(directory.path().join("report.html")).expect("a page");
        assert!(page.contains("10.0"), "{page}");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(figure(0.0), "0");
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(figure(12.345), "12.3");
        assert_eq!(figure(-0.012_345), "-0.0123");
        assert_eq!(figure(999.9), "1,000");
    }
}
