//! From results to something a person reads: HTML, CSV, JSON, and text for the terminal.

pub mod analysis;
pub mod compare;
mod explain;
#[cfg(test)]
mod fixture;
mod html;
pub mod markdown;
mod plots;
mod sections;
pub mod terminal;

use std::fs;
use std::path::Path;

use analysis::Analysis;

use crate::error::EvalError;
use crate::results::Results;
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
        "report.html",
        html::page(results, &analysis).map_err(EvalError::Report)?,
    )?;
    let json =
        serde_json::to_string(results).map_err(EvalError::json(directory.join("report.json")))?;
    put("report.json", json)?;
    put("report.csv", csv(&analysis).map_err(EvalError::Report)?)
}

/// One line per row and configuration.
fn csv(analysis: &Analysis<'_>) -> Result<String, String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let head = [
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
        // New columns come last: scripts count the others from the left.
        "interval",
    ];
    out.write_record(head).map_err(|e| e.to_string())?;
    for row in &analysis.rows {
        for cell in &row.cells {
            let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.3}"));
            let summary = cell.summary;
            let use_ = &cell.usage;
            let compared = cell.comparison;
            let record = [
                row.row.id.clone(),
                row.row.name.clone(),
                row.row.class.title().to_owned(),
                cell.config.to_owned(),
                row.row.kind.unit().to_owned(),
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
            ];
            out.write_record(&record).map_err(|e| e.to_string())?;
        }
    }
    let bytes = out.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

/// `seconds` since 1970 as date and time in UTC.
#[must_use]
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0, in eras of 400 years (the civil calendar's own period).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
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
                analysis.rows[0].cells[1].explanation.join(" "),
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

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(figure(0.0), "0");
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(figure(12.345), "12.3");
        assert_eq!(figure(-0.012_345), "-0.0123");
        assert_eq!(figure(999.9), "1,000");
    }
}
