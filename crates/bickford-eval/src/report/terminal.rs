//! The summary for a terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;

use super::analysis::{Analysis, Cell};
use crate::results::Results;
use crate::rows::WorkloadClass;
use crate::stats::{Class, interval_name};
use crate::terminal::harmless;

fn paint(class: Option<Class>, text: &str, colours: bool) -> String {
    let code = match class {
        Some(Class::Green) => "32",
        Some(Class::Yellow) => "33",
        Some(Class::Orange) => "38;5;208",
        Some(Class::Red) => "31",
        None => "2",
    };
    if colours {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// The table, the verdicts and the errors, with colours if standard output is a terminal.
#[must_use]
pub fn text(results: &Results) -> String {
    render(results, std::io::stdout().is_terminal())
}

fn render(results: &Results, colours: bool) -> String {
    let analysis = Analysis::of(results);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let name = analysis
        .rows
        .iter()
        .map(|r| harmless(&r.row.name).len())
        .max()
        .unwrap_or(0)
        .max(8);
    let _ = write!(out, "\n{:<8} {:<name$} {:>22}", "row", "workload", "native");
    for config in analysis.compared() {
        let _ = write!(out, " {:>16}", harmless(config));
    }
    out.push('\n');
    for row in &analysis.rows {
        let _ = write!(
            out,
            "{:<8} {:<name$} {:>22}",
            harmless(&row.row.id),
            harmless(&row.row.name),
            row.native().unwrap_or_else(|| "-".into())
        );
        for cell in row.cells.iter().skip(1) {
            let _ = write!(out, " {}", difference(cell, colours));
        }
        out.push('\n');
    }
    for config in analysis.compared() {
        let ([green, yellow, orange, red], without) = analysis.counts(config);
        let _ = write!(
            out,
            "\n{}: {green} green, {yellow} yellow, {orange} orange, {red} red",
            harmless(config)
        );
        if without > 0 {
            let _ = write!(out, ", {without} without a result");
        }
        out.push('\n');
        for class in WorkloadClass::ALL {
            if let Some(verdict) = analysis.verdict(config, class) {
                let title = format!("{:<24}", class.title());
                let _ = writeln!(
                    out,
                    "  {} {}",
                    paint(verdict.class, &title, colours),
                    verdict.text
                );
            }
        }
    }
    legend(results, &analysis, &mut out);
    errors(&analysis, &mut out);
    for note in &results.notes {
        let _ = writeln!(out, "note: {}", harmless(note));
    }
    out
}

fn difference(cell: &Cell<'_>, colours: bool) -> String {
    let (class, text) = match (cell.comparison, cell.error) {
        (Some(compared), _) => {
            let mark = if cell.uncertain() { "?" } else { " " };
            (
                Some(compared.class),
                format!("{:+.1}% {}{mark}", compared.difference_pct, compared.class),
            )
        }
        (None, Some(_)) => (None, "error ".to_owned()),
        (None, None) => (None, "- ".to_owned()),
    };
    paint(class, &format!("{text:>16}"), colours)
}

/// What `?` means, where there is one.
fn legend(results: &Results, analysis: &Analysis<'_>, out: &mut String) {
    let mut cells = analysis.rows.iter().flat_map(|r| &r.cells);
    if cells.any(Cell::uncertain) {
        let _ = writeln!(
            out,
            "\n?: uncertain; the {} reaches another class, native has fewer rounds, or fewer than three were counted",
            interval_name(results.settings.rounds as usize)
        );
    }
}

fn errors(analysis: &Analysis<'_>, out: &mut String) {
    for row in &analysis.rows {
        for cell in &row.cells {
            if let Some(error) = cell.error {
                let told = format!("error: {} · {}: {error}", row.row.name, cell.config);
                let _ = writeln!(out, "{}", harmless(&told));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{compare, fixture};
    use crate::results::Outcome;

    #[test]
    fn a_terminal_finds_nothing_to_obey_in_a_record() {
        let odd = "\u{1b}]0;x\u{7}\r\u{9b}2J";
        let mut results = fixture::results(&["f37"], &[odd]);
        results.notes.push(odd.to_owned());
        for row in &mut results.settings.rows {
            row.name.push_str(odd);
        }
        fixture::run(&mut results, "f37", "native", &[1.0]);
        fixture::add(&mut results, "f37", odd, 1, Outcome::Failed(odd.to_owned()));
        for text in [render(&results, false), compare::text(&results, &results)] {
            let obeyed = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(obeyed), "{text:?}");
            assert!(text.contains("\\u{1b}]0;x"), "{text}");
        }
    }
}
