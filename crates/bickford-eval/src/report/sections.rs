//! The sections of the page.

use maud::{Markup, PreEscaped, html};

use super::analysis::{Analysis, Cell, RowAnalysis, Usage};
use super::figure;
use super::plots::{self, Line};
use crate::reference::{COLUMNS, PaperRow, count_classes, sac10_finding};
use crate::rows::WorkloadClass;
use crate::stats::{Class, interval_name, median};

/// What to make of each configuration for each class of workloads.
pub(super) fn verdicts(analysis: &Analysis<'_>) -> Markup {
    html! {
        section {
            h2 { "Verdict by class of workload" }
            table.verdicts {
                thead { tr { th { "Workload" } @for config in analysis.compared() { th { (config) } } } }
                tbody {
                    @for class in WorkloadClass::ALL {
                        @if analysis.rows.iter().any(|r| r.row.class == class) {
                            tr {
                                th { (class.title()) }
                                @for config in analysis.compared() {
                                    @match analysis.verdict(config, class) {
                                        Some(verdict) => {
                                            td { span class=(format!("dot {}", class_name(verdict.class))) {} (verdict.text) }
                                        }
                                        None => td {},
                                    }
                                }
                            }
                        }
                    }
                }
            }
            p.small { "The dot is the class of the worst row; it is grey where a row failed." }
        }
    }
}

fn class_name(class: Option<Class>) -> &'static str {
    class.map_or("none", Class::name)
}

/// Every row in every configuration, beside the paper's.
pub(super) fn table(analysis: &Analysis<'_>) -> Markup {
    let paper = analysis.rows.iter().any(|r| r.paper.is_some());
    html! {
        section.every {
            h2 { "Every row" }
            table.rows {
                thead {
                    tr {
                        th rowspan="2" { "Row" }
                        th.name rowspan="2" { "Workload" }
                        th rowspan="2" { "Native" }
                        th colspan=(analysis.configs.len().saturating_sub(1)) { "Difference to native, %" }
                        @if paper { th.paper colspan="4" { "FAST'17, %" } }
                    }
                    tr {
                        @for config in analysis.compared() { th { (config) } }
                        @if paper {
                            th.paper { "HDD base" } th { "HDD opt" } th { "SSD base" } th { "SSD opt" }
                        }
                    }
                }
                tbody {
                    @for row in &analysis.rows {
                        tr {
                            td.id { a href=(format!("#{}", row.row.id)) { (row.row.id) } }
                            td.name { (row.row.name) }
                            (native(row))
                            @for cell in row.cells.iter().skip(1) { (difference(cell)) }
                            @if paper { (paper_cells(row.paper.as_ref())) }
                        }
                    }
                }
                tfoot { (counts(analysis, paper)) }
            }
        }
    }
}

/// How many rows of each column are in each class, and the paper's own count.
fn counts(analysis: &Analysis<'_>, paper: bool) -> Markup {
    let papers = || analysis.rows.iter().filter_map(|r| r.paper.as_ref());
    let ours: Vec<[usize; 4]> = analysis.compared().map(|c| analysis.counts(c).0).collect();
    let theirs = COLUMNS.map(|(_, column)| count_classes(papers().map(column)));
    html! {
        @for (index, class) in Class::ALL.iter().enumerate() {
            tr {
                th colspan="3" { "Rows in " (class) }
                @for count in &ours { td class=(format!("cell {class}")) { (count.get(index).copied().unwrap_or(0)) } }
                @if paper {
                    @for (column, count) in theirs.iter().enumerate() {
                        td class=(format!("cell faint {class}{}", if column == 0 { " paper" } else { "" })) {
                            (count.get(index).copied().unwrap_or(0))
                        }
                    }
                }
            }
        }
    }
}

fn native(row: &RowAnalysis<'_>) -> Markup {
    let Some(cell) = row.cells.first() else {
        return html! { td {} };
    };
    html! {
        td.number {
            @match cell.summary {
                Some(summary) => {
                    (figure(summary.median)) " " span.unit { (row.row.kind.unit()) }
                    @if summary.rounds > 1 { " " span.spread title="median absolute deviation" { "±" (format!("{:.0}%", summary.spread_pct())) } }
                }
                None => span.none { "none" },
            }
        }
    }
}

fn difference(cell: &Cell<'_>) -> Markup {
    match (cell.comparison, cell.error) {
        (Some(compared), _) => {
            let range = format!(
                "{}: {:+.1} to {:+.1}{}",
                interval_name(compared.rounds),
                compared.interval_pct.low,
                compared.interval_pct.high,
                cell.doubt
                    .as_ref()
                    .map_or(String::new(), |d| format!("; {d}"))
            );
            html! {
                td class=(format!("cell {}", compared.class)) title=(range) {
                    (format!("{:+.1}", compared.difference_pct))
                    @if cell.uncertain() { b { "?" } }
                }
            }
        }
        (None, Some(error)) => html! { td.cell.none title=(error) { "error" } },
        (None, None) => html! { td.cell.none { "–" } },
    }
}

fn paper_cells(paper: Option<&PaperRow>) -> Markup {
    let Some(paper) = paper else {
        return html! { td.paper colspan="4" {} };
    };
    let all = COLUMNS.map(|(_, column)| column(paper));
    html! {
        @for (index, value) in all.iter().enumerate() {
            td class=(format!("cell faint {}{}", Class::of_difference(*value), if index == 0 { " paper" } else { "" })) {
                (format!("{value:+.1}"))
            }
        }
    }
}

pub(super) const FIGURES: [(&str, &str, &str); 9] = [
    (
        "2",
        "Writing a 16 MB file by size of the buffer",
        "buffer, KB",
    ),
    (
        "3a",
        "Per-character output (putc)",
        "file size in the paper, MB",
    ),
    ("3b", "Block output, 16 KiB", "file size in the paper, MB"),
    (
        "3c",
        "Per-character input (getc), warm cache",
        "file size in the paper, MB",
    ),
    (
        "3d",
        "Block input, warm cache",
        "file size in the paper, MB",
    ),
    (
        "3e",
        "Per-character input, cold cache",
        "file size in the paper, MB",
    ),
    (
        "3f",
        "Block input, cold cache",
        "file size in the paper, MB",
    ),
    ("4", "PostMark", ""),
    ("5", "cp of a 1.1 GB file", ""),
];

/// SAC'10's figures, each with what the paper found.
pub(super) fn figures(analysis: &Analysis<'_>) -> Result<Markup, String> {
    let mut drawn = Vec::new();
    for (figure, title, axis) in FIGURES {
        let rows: Vec<&RowAnalysis<'_>> = analysis
            .rows
            .iter()
            .filter(|r| r.row.figure.as_deref() == Some(figure))
            .collect();
        let measured = rows
            .iter()
            .any(|r| r.cells.iter().any(|c| c.summary.is_some()));
        if !measured {
            continue;
        }
        let picture = match rows.as_slice() {
            [_, _, ..] => plot(analysis, &rows, axis)?,
            [row] => bars(row),
            [] => continue,
        };
        drawn.push(html! {
            figure {
                figcaption { b { "Figure " (figure) ". " } (title) }
                (picture)
                p.finding { b { "The paper: " } (sac10_finding(figure)) }
                p.finding { b { "Here: " } (here(analysis, &rows)) }
            }
        });
    }
    Ok(html! {
        @if !drawn.is_empty() {
            section {
                h2 { "The figures of SAC'10" }
                (key(&analysis.configs))
                div.figures { @for figure in &drawn { (figure) } }
                p.small {
                    "Points are medians, the vertical strokes reach from the slowest to the fastest round. "
                    "The paper's big_writes is the difference between base (requests of 4 KiB) and the others."
                }
            }
        }
    })
}

/// The key of plots and bars.
fn key(configs: &[&str]) -> Markup {
    html! {
        p.key {
            @for (index, config) in configs.iter().enumerate() {
                span { i style=(format!("background:{}", plots::css_colour(index))) {} (config) " " }
            }
        }
    }
}

/// What was measured for a figure, in a sentence: the difference to native over its points.
pub(super) fn here(analysis: &Analysis<'_>, rows: &[&RowAnalysis<'_>]) -> String {
    let of = |config: &str| {
        let cells = rows
            .iter()
            .flat_map(|r| &r.cells)
            .filter(|c| c.config == config);
        let mut found: Vec<f64> = cells
            .filter_map(|c| Some(c.comparison?.difference_pct))
            .collect();
        found.sort_by(f64::total_cmp);
        match found.as_slice() {
            [] => format!("{config} has no result"),
            [only] => format!("{config} {only:+.0}%"),
            [least, .., most] => format!(
                "{config} {:+.0}% ({least:+.0} to {most:+.0})",
                median(&found).unwrap_or(0.0)
            ),
        }
    };
    let all: Vec<String> = analysis.compared().map(of).collect();
    let what = if rows.len() > 1 {
        "throughput against native, median over the points (and range): "
    } else {
        "throughput against native: "
    };
    format!("{what}{}.", all.join(", "))
}

fn plot(analysis: &Analysis<'_>, rows: &[&RowAnalysis<'_>], axis: &str) -> Result<Markup, String> {
    let lines: Vec<Line<'_>> = analysis
        .configs
        .iter()
        .map(|config| {
            let points = rows.iter().filter_map(|row| {
                let cell = row.cells.iter().find(|c| c.config == *config)?;
                let summary = cell.summary?;
                Some((row.row.x?, summary.median, summary.min, summary.max))
            });
            Line {
                name: config,
                points: points.collect(),
            }
        })
        .collect();
    let unit = rows.first().map_or("", |r| r.row.kind.unit());
    let names: Vec<&str> = lines.iter().map(|l| l.name).collect();
    let svg = plots::lines(&lines, axis, unit)?;
    Ok(html! { div.plot aria-label=(names.join(", ")) { (PreEscaped(svg)) } })
}

/// A row of its own: one bar of seconds per configuration.
fn bars(row: &RowAnalysis<'_>) -> Markup {
    let most = row
        .cells
        .iter()
        .filter_map(|c| c.usage.elapsed_s)
        .fold(0.0, f64::max)
        .max(1e-9);
    html! {
        div.bars {
            @for (index, cell) in row.cells.iter().enumerate() {
                div.line {
                    span.label { (cell.config) }
                    @if let Some(seconds) = cell.usage.elapsed_s {
                        span.track {
                            i style=(format!("width:{:.1}%;background:{}", 100.0 * seconds / most, plots::css_colour(index))) {}
                        }
                        span.value { (figure(seconds)) " s" }
                    } @else { span.track {} span.value { "none" } }
                }
            }
        }
    }
}

/// What every row took, in two tables: one is too wide to be read, or printed.
pub(super) fn resources(analysis: &Analysis<'_>) -> Markup {
    let mut cells = analysis.rows.iter().flat_map(|r| &r.cells);
    let cycles = cells.any(|c| c.usage.cycles.is_some());
    html! {
        section {
            h2 { "Requests, latency and CPU" }
            p.small {
                "Medians of the counted rounds; requests are those of the round that is not counted, by operation, or by MiB "
                "where the throughput is in MB. CPU in seconds for the whole row (machine: all processes and the kernel, of it "
                "kernel: with interrupts). Percentiles are those of the operation that natively takes most of the row's time."
            }
            (by_row(
                analysis,
                &html! {
                    th { "Requests" } th { "p50 us" } th { "p95 us" } th { "p99 us" } th { "p99.9 us" }
                    th { "Workload CPU" } th { "Daemon CPU" } th { "Machine CPU" } th { "of it kernel" }
                    @if cycles { th { "Cycles/op" } }
                },
                |u| {
                    let mut shown = vec![
                        u.requests_per_operation, u.p50_us, u.p95_us, u.p99_us, u.p999_us,
                        u.workload_s, u.daemon_s, u.machine_s, u.kernel_s,
                    ];
                    shown.extend(cycles.then_some(u.cycles));
                    shown.into_iter().map(known).collect()
                },
            ))
            h2 { "Time, device and memory" }
            p.small {
                "Medians of the counted rounds: the time from start to end, what the device moved, its rate and how much of the time it was busy over the "
                "whole of a run, the page caches at its end, and the limit that workload and daemon share."
            }
            (by_row(
                analysis,
                &html! {
                    th { "Time s" } th { "Files/s" } th { "Read MB" } th { "Written MB" } th { "MB/s" } th { "Busy" }
                    th { "Cache below MB" } th { "Cache above MB" } th { "Limit MB" }
                },
                |u| {
                    let mega = |v: Option<f64>| known(v.map(|v| v / 1e6));
                    let busy = u.disk_busy_pct.map_or(String::new(), |busy| format!("{busy:.0}%"));
                    vec![
                        known(u.wall_s), known(u.files_per_s), mega(u.disk_read), mega(u.disk_written), known(u.disk_mb_s), busy,
                        mega(u.cache_lower), mega(u.cache_upper), mega(u.memory_limit),
                    ]
                },
            ))
        }
    }
}

fn known(value: Option<f64>) -> String {
    value.map_or(String::new(), figure)
}

/// A table with a line for each row and configuration.
fn by_row(
    analysis: &Analysis<'_>,
    head: &Markup,
    values: impl Fn(&Usage) -> Vec<String>,
) -> Markup {
    html! {
        table.resources {
            thead { tr { th.name { "Workload" } th { "Configuration" } (head) } }
            @for row in &analysis.rows {
                tbody {
                    @for (index, cell) in row.cells.iter().enumerate() {
                        tr {
                            @if index == 0 { th.name rowspan=(row.cells.len()) { (row.row.name) } }
                            td { (cell.config) }
                            @for value in values(&cell.usage) { td.number { (value) } }
                        }
                    }
                }
            }
        }
    }
}

/// Why each row is as it is.
pub(super) fn explanations(analysis: &Analysis<'_>) -> Markup {
    html! {
        section.why {
            h2 { "Why" }
            @for row in &analysis.rows {
                article id=(row.row.id) {
                    h3 { span.id { (row.row.id) } " " (row.row.name) }
                    dl {
                        @for cell in row.cells.iter().skip(1) {
                            dt {
                                (cell.config)
                                @if let Some(compared) = cell.comparison {
                                    " " span class=(format!("tag {}", compared.class)) { (format!("{:+.1}%", compared.difference_pct)) }
                                }
                            }
                            dd { @for sentence in &cell.explanation { p { (sentence.full) " " } } }
                        }
                        @if let Some(error) = row.cells.first().and_then(|c| c.error) {
                            dt { "native" } dd { "The row ended with an error: " (error) "." }
                        }
                    }
                }
            }
        }
    }
}
