//! A page of documentation from results: every row beside the papers', and why it is not green.

use std::fmt::Write as _;

use super::analysis::{Analysis, Cell, RowAnalysis};
use super::sections::{FIGURES, here};
use super::{date, figure, html};
use crate::reference::{self, PaperRow, sac10_finding};
use crate::results::Results;
use crate::rows::WorkloadClass;
use crate::stats::Class;

/// One page for several runs, each with the place of its raw data.
#[must_use]
pub fn page(runs: &[(String, Results)]) -> String {
    let mut out = String::from(
        "# The papers' experiments repeated\n\n\
         Made by `bickford eval --markdown` from the raw data of each run. Differences are throughput against\n\
         the native file system in percent, beside the papers' own; green is under 5% slower or faster, yellow\n\
         5 to 25%, orange 25 to 50%, red over 50%. `?` marks a class that is uncertain: the range of the\n\
         resampled medians (from six rounds on the 95% bootstrap interval) reaches another one, native has\n\
         fewer rounds, or fewer than three were counted. How it is measured: [evaluation.md](evaluation.md).\n",
    );
    for (place, results) in runs {
        run(&mut out, place, results);
    }
    out
}

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($argument:tt)*) => { let _ = writeln!($out, $($argument)*); };
}

fn run(out: &mut String, place: &str, results: &Results) {
    let (settings, analysis) = (&results.settings, Analysis::of(results));
    let machine = &settings.machine;
    line!(out, "\n## {} on {}\n", settings.suite, settings.device);
    line!(
        out,
        "{}, {} CPUs, {} MB of memory, {}. {} {} counted rounds, begun {} UTC. Raw data: `{place}`.\n",
        machine.cpu,
        machine.cpus,
        machine.memory_bytes >> 20,
        machine.kernel,
        html::size(results),
        settings.rounds,
        date(settings.started)
    );
    line!(out, "```sh\n{}\n```", settings.command);
    counts(out, &analysis);
    verdicts(out, &analysis);
    figures(out, &analysis);
    table(out, &analysis);
    reasons(out, &analysis);
    if !results.notes.is_empty() {
        line!(out, "\n### Notes of the run\n");
        for note in &results.notes {
            line!(out, "- {}", escape(note));
        }
    }
}

/// What would be markup in a table or a paragraph.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn counts(out: &mut String, analysis: &Analysis<'_>) {
    line!(
        out,
        "\n| rows | green | yellow | orange | red | no result |\n|---|---|---|---|---|---|"
    );
    for config in analysis.compared() {
        let ([green, yellow, orange, red], without) = analysis.counts(config);
        line!(
            out,
            "| {config} | {green} | {yellow} | {orange} | {red} | {without} |"
        );
    }
    let papers: Vec<&PaperRow> = analysis
        .rows
        .iter()
        .filter_map(|r| r.paper.as_ref())
        .collect();
    if papers.is_empty() {
        return;
    }
    for (name, column) in reference::COLUMNS {
        let [green, yellow, orange, red] =
            reference::count_classes(papers.iter().map(|p| column(p)));
        line!(
            out,
            "| FAST'17 {name} | {green} | {yellow} | {orange} | {red} | 0 |"
        );
    }
}

fn verdicts(out: &mut String, analysis: &Analysis<'_>) {
    let configs: Vec<&str> = analysis.compared().collect();
    line!(
        out,
        "\n### Verdict\n\n| workload | {} |",
        configs.join(" | ")
    );
    line!(out, "|---|{}", "---|".repeat(configs.len()));
    for class in WorkloadClass::ALL {
        let verdicts: Vec<String> = configs
            .iter()
            .map(|c| analysis.verdict(c, class).map_or(String::new(), |v| v.text))
            .collect();
        if verdicts.iter().any(|v| !v.is_empty()) {
            line!(out, "| {} | {} |", class.title(), verdicts.join(" | "));
        }
    }
}

fn figures(out: &mut String, analysis: &Analysis<'_>) {
    let of = |figure: &str| -> Vec<&RowAnalysis<'_>> {
        let rows = analysis.rows.iter();
        rows.filter(|r| r.row.figure.as_deref() == Some(figure))
            .collect()
    };
    if FIGURES.iter().all(|(figure, ..)| of(figure).is_empty()) {
        return;
    }
    line!(out, "\n### The figures\n");
    line!(
        out,
        "| figure | experiment | the paper | here |\n|---|---|---|---|"
    );
    for (figure, title, _) in FIGURES {
        let rows = of(figure);
        if !rows.is_empty() {
            line!(
                out,
                "| {figure} | {title} | {} | {} |",
                sac10_finding(figure),
                here(analysis, &rows)
            );
        }
    }
}

fn table(out: &mut String, analysis: &Analysis<'_>) {
    let paper = analysis.rows.iter().any(|r| r.paper.is_some());
    let configs: Vec<&str> = analysis.compared().collect();
    let papers = if paper {
        " HDD base | HDD opt | SSD base | SSD opt |"
    } else {
        ""
    };
    line!(
        out,
        "\n### Every row\n\n| row | workload | native | {} |{papers}",
        configs.join(" | ")
    );
    line!(
        out,
        "|---|---|--:|{}{}",
        "---|".repeat(configs.len()),
        if paper { "--:|--:|--:|--:|" } else { "" }
    );
    for row in &analysis.rows {
        let native = row.cells.first().and_then(|c| c.summary);
        let native = native.map_or("none".into(), |s| {
            format!("{} {}", figure(s.median), row.row.kind.unit())
        });
        let cells: Vec<String> = row.cells.iter().skip(1).map(difference).collect();
        let paper = row.paper.as_ref().map_or(String::new(), |p| {
            reference::COLUMNS
                .map(|(_, column)| format!(" {:+.1} |", column(p)))
                .concat()
        });
        line!(
            out,
            "| {} | {} | {native} | {} |{paper}",
            row.row.id,
            row.row.name,
            cells.join(" | ")
        );
    }
}

fn difference(cell: &Cell<'_>) -> String {
    match (cell.comparison, cell.error) {
        (Some(c), _) => format!(
            "{:+.1} {}{}",
            c.difference_pct,
            c.class,
            if cell.uncertain() { "?" } else { "" }
        ),
        (None, Some(_)) => "error".into(),
        (None, None) => "none".into(),
    }
}

/// Every row and configuration that is not green, with its explanation.
fn reasons(out: &mut String, analysis: &Analysis<'_>) {
    let green = |c: &&Cell<'_>| c.comparison.is_none_or(|d| d.class != Class::Green);
    let mut begun = false;
    for row in &analysis.rows {
        let cells: Vec<&Cell<'_>> = row.cells.iter().skip(1).filter(green).collect();
        if cells.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut begun, true) {
            line!(out, "\n### Why a row is not green");
        }
        line!(out, "\n#### {} {}\n", row.row.id, row.row.name);
        for cell in cells {
            let why = if cell.explanation.is_empty() {
                "there is no result to explain.".to_owned()
            } else {
                escape(&cell.explanation.join(" "))
            };
            line!(out, "- **{}, {}.** {why}", cell.config, difference(cell));
        }
    }
}
