//! Pages of documentation from results: every row beside the papers', and why it is not green.

mod reasons;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::analysis::{Analysis, Cell, RowAnalysis};
use super::sections::{FIGURES, here};
use super::{date, html};
use crate::reference::{self, PaperRow, sac10_finding};
use crate::results::Results;
use crate::rows::WorkloadClass;

/// The page that sums up, by its name in the directory.
pub const SUMMARY: &str = "papers.md";
/// The directory of the others, beside it.
pub const REASONS: &str = "papers";
/// The page about the method, linked where it lies beside the summary.
pub const METHOD: &str = "evaluation.md";

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($argument:tt)*) => { let _ = writeln!($out, $($argument)*); };
}
use line;

/// A run, and where its raw data are.
#[derive(Debug)]
pub struct Run {
    /// As the user named it.
    pub place: String,
    /// From the directory of the summary, for a link.
    pub link: Option<String>,
    /// What was measured.
    pub results: Results,
}

/// What a page is about, worked out once.
struct Part<'a> {
    run: &'a Run,
    analysis: Analysis<'a>,
    /// Of this run alone among all.
    title: String,
    /// Of the page with its reasons, without directory and ending.
    name: String,
}

/// One page for several runs.
#[must_use]
pub fn page(runs: &[Run]) -> String {
    let parts = parts(runs);
    let mut out = begin("bickford eval --markdown", false);
    for part in &parts {
        summary(&mut out, part, false);
        line!(out, "\n### Why a row is not green\n\n{}", reasons::key(4));
        reasons::rows(&mut out, &part.analysis, 4);
        reasons::notes(&mut out, part, 3);
    }
    out
}

/// A page that sums up, and one for each run with its reasons, as paths below the directory they are for
/// and texts. `command` is what makes them; with `method` they link to the page about it.
#[must_use]
pub fn pages(runs: &[Run], command: &str, method: bool) -> Vec<(String, String)> {
    let parts = parts(runs);
    let mut out = begin(command, method);
    line!(out, "");
    for part in &parts {
        line!(
            out,
            "- [{}](#{}); why rows are not green: [{REASONS}/{name}.md]({REASONS}/{name}.md)",
            part.title,
            slug(&part.title),
            name = part.name
        );
    }
    let mut pages = Vec::new();
    for part in &parts {
        summary(&mut out, part, true);
        let path = format!("{REASONS}/{}.md", part.name);
        pages.push((path, reasons::page(part)));
    }
    pages.insert(0, (SUMMARY.to_owned(), out));
    pages
}

fn parts(runs: &[Run]) -> Vec<Part<'_>> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut parts = Vec::new();
    for run in runs {
        let settings = &run.results.settings;
        let mut title = format!("{} on {}", settings.suite, settings.device);
        let mut name = slug(&format!("{}-{}", settings.suite, settings.device));
        let count = seen.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count > 1 {
            title = format!("{title}, {count}");
            name = format!("{name}-{count}");
        }
        parts.push(Part {
            run,
            analysis: Analysis::of(&run.results),
            title,
            name,
        });
    }
    parts
}

/// A heading's anchor, as code hosts make it.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let kept = heading.chars().filter(kept).collect::<String>();
    kept.to_lowercase().replace(' ', "-")
}

fn begin(command: &str, method: bool) -> String {
    let method = if method {
        format!(" How it is measured: [{METHOD}]({METHOD}).")
    } else {
        String::new()
    };
    format!(
        "# The papers' experiments repeated\n\n\
         Made from the raw data of each run by\n\n\
         ```sh\n{command}\n```\n\n\
         Differences are throughput against the native file system in percent, beside the papers' own; green is under\n\
         5% slower or faster, yellow 5 to 25%, orange 25 to 50%, red over 50%. `?` marks a class that is uncertain: the\n\
         range of the resampled medians (from six rounds on the 95% bootstrap interval) reaches another one, native has\n\
         fewer rounds, or fewer than three were counted.{method}\n"
    )
}

/// A run without its reasons; `linked` to the page that has them.
fn summary(out: &mut String, part: &Part<'_>, linked: bool) {
    let (settings, analysis) = (&part.run.results.settings, &part.analysis);
    line!(out, "\n## {}\n", escape(&part.title));
    line!(out, "{}\n", machine(part, ""));
    line!(out, "```sh\n{}\n```", settings.command);
    counts(out, analysis);
    verdicts(out, analysis);
    figures(out, analysis);
    table(out, analysis, linked.then_some(part.name.as_str()));
}

/// On what a run was made, and how; `up` leads from the page to the summary's directory.
fn machine(part: &Part<'_>, up: &str) -> String {
    let Run {
        place,
        link,
        results,
    } = part.run;
    let (settings, machine) = (&results.settings, &results.settings.machine);
    let data = match link {
        Some(link) => format!("[{place}]({up}{link})"),
        None => format!("`{place}`"),
    };
    format!(
        "{}, {} CPUs, {} MB of memory, {}. {} {} counted {}, begun {} UTC. Raw data: {data}.",
        machine.cpu,
        machine.cpus,
        machine.memory_bytes >> 20,
        machine.kernel,
        html::size(results),
        settings.rounds,
        if settings.rounds == 1 {
            "round"
        } else {
            "rounds"
        },
        date(settings.started)
    )
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

/// Every row; with the name of their page, those that are explained there are links to it.
fn table(out: &mut String, analysis: &Analysis<'_>, page: Option<&str>) {
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
        let native = row.native().unwrap_or_else(|| "none".into());
        let cells: Vec<String> = row.cells.iter().skip(1).map(difference).collect();
        let paper = row.paper.as_ref().map_or(String::new(), |p| {
            reference::COLUMNS
                .map(|(_, column)| format!(" {:+.1} |", column(p)))
                .concat()
        });
        line!(
            out,
            "| {} | {} | {native} | {} |{paper}",
            match page {
                Some(page) if !reasons::of(row).is_empty() =>
                    format!("[{id}]({REASONS}/{page}.md#{id})", id = row.row.id),
                _ => row.row.id.clone(),
            },
            escape(&row.row.name),
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
