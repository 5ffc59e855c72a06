//! The tables.

use std::fmt::Write;

use super::{figure, ratio};
use crate::configurations::Side;
use crate::results::{Cell, Results, Spread};
use crate::rows::Row;

fn micro(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |s| figure(s.median / 1000.0))
}

fn time(cell: &Cell) -> String {
    match &cell.error {
        Some(_) => "error".to_owned(),
        None => micro(cell.time()),
    }
}

fn head(results: &Results) -> String {
    let run = &results.run;
    let mut text = format!(
        "# Bickford and its peers\n\n{}, {}, {} CPUs; ext4 on {}; {} rounds after a discarded one.\n",
        run.machine.kernel, run.machine.cpu, run.machine.cpus, run.device, run.rounds
    );
    if run.scale != crate::rows::Scale::FULL {
        text.push_str(
            "\n**A quick run: it shows that everything works; its figures are worth nothing.**\n",
        );
    }
    if run.enable_uring.as_deref() == Some("N") {
        text.push_str("\nFUSE over io_uring was off: all used /dev/fuse.\n");
    }
    text.push('\n');
    for (name, version) in &run.versions {
        let _ = writeln!(text, "- {name} {version}");
    }
    for (name, why) in &run.left_out {
        let _ = writeln!(text, "- left out: {name}: {why}");
    }
    text
}

/// One line for each row and number of clients: ours beside the best peer.
fn overview(results: &Results) -> String {
    let mut text = String::from(
        "\n## Ours and the best peer\n\n\
         Ratios of times are medians of ratios within a round, with the least and the most. \
         Best peer: the configuration with the least median.\n\n\
         | row | clients | native, us | ours | ours / native | best peer | peer / ours | daemon CPU, us: ours | least peer |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (row, clients) in results.places() {
        let Some(configuration) = results.ours(row) else {
            continue;
        };
        let none = Cell::default();
        let ours = results
            .cell(row, clients, &configuration.name)
            .unwrap_or(&none);
        let native = results.cell(row, clients, "native").unwrap_or(&none);
        let best = results.best_peer(row, clients, Cell::time);
        let cpu = results.best_peer(row, clients, Cell::cpu);
        let _ = writeln!(
            text,
            "| {} | {clients} | {} | {} | {} | {} | {} | {} | {} |",
            row.title,
            micro(native.time()),
            configuration.name,
            ratio(ours.over(native)),
            best.map_or("", |(found, _)| &found.name),
            ratio(best.and_then(|(_, peer)| peer.over(ours))),
            micro(ours.cpu()),
            micro(cpu.and_then(|(_, peer)| peer.cpu())),
        );
    }
    text
}

/// One line for each row and number of clients: the native file system and all of `--with`.
fn guests(results: &Results) -> String {
    let shown = |side: Side| {
        results
            .run
            .configurations
            .iter()
            .filter(move |c| c.side == side)
    };
    if !results.has(Side::Guest) {
        return String::new();
    }
    let columns: Vec<_> = shown(Side::Native).chain(shown(Side::Guest)).collect();
    let mut text = String::from(
        "\n## Given with `--with`\n\nMicroseconds per operation, medians.\n\n| row | clients |",
    );
    for configuration in &columns {
        let _ = write!(text, " {} |", configuration.name);
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(columns.len()));
    text.push('\n');
    for (row, clients) in results.places() {
        if !columns
            .iter()
            .any(|c| c.side == Side::Guest && c.takes_part(row))
        {
            continue;
        }
        let _ = write!(text, "| {} | {clients} |", row.title);
        for configuration in &columns {
            let cell = results.cell(row, clients, &configuration.name);
            let _ = write!(text, " {} |", cell.map_or_else(String::new, time));
        }
        text.push('\n');
    }
    text
}

fn details(results: &Results, row: &Row, counts: &[usize]) -> String {
    let mut text = format!("\n### {} (`{}`)\n\n| configuration |", row.title, row.id);
    for clients in counts {
        let _ = write!(text, " {clients}: us | / native | CPU |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|---|---|".repeat(counts.len()));
    text.push('\n');
    for side in [Side::Native, Side::Ours, Side::Peer, Side::Guest] {
        for configuration in results.configurations(row, side) {
            if results.run.left_out.contains_key(&configuration.name) {
                continue;
            }
            let _ = write!(text, "| {} |", configuration.name);
            for clients in counts {
                let Some(cell) = results.cell(row, *clients, &configuration.name) else {
                    text.push_str(" | | |");
                    continue;
                };
                let native = results.cell(row, *clients, "native");
                let time = time(cell);
                let over = ratio(native.and_then(|native| cell.over(native)));
                let _ = write!(text, " {time} | {over} | {} |", micro(cell.cpu()));
            }
            text.push('\n');
        }
    }
    text
}

fn errors(results: &Results) -> String {
    let mut text = String::new();
    for (row, clients) in results.places() {
        for configuration in &results.run.configurations {
            let cell = results.cell(row, clients, &configuration.name);
            if let Some(error) = cell.and_then(|cell| cell.error.as_ref()) {
                let _ = writeln!(
                    text,
                    "- {} {} {clients}: {error}",
                    row.id, configuration.name
                );
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\n## Errors\n\n{text}")
}

pub(super) fn markdown(results: &Results, verdicts: &str) -> String {
    let mut text = head(results);
    if results.has(Side::Ours) {
        text.push_str("\n## Reach\n\n");
        text.push_str(verdicts);
        text.push_str(&overview(results));
    }
    text.push_str(&guests(results));
    text.push_str(
        "\n## All\n\nMicroseconds per operation (time of all clients together over their operations); \
         ratio to native; microseconds of the daemon's CPU per operation.\n",
    );
    let places = results.places();
    let mut rows: Vec<&Row> = places.iter().map(|(row, _)| *row).collect();
    rows.dedup_by_key(|row| row.id);
    for row in rows {
        let of_row = places.iter().filter(|(other, _)| other.id == row.id);
        let counts: Vec<usize> = of_row.map(|(_, clients)| *clients).collect();
        text.push_str(&details(results, row, &counts));
    }
    text.push_str(&errors(results));
    text
}

pub(super) fn csv(results: &Results) -> String {
    let mut text = String::from(
        "row,clients,configuration,ns,ns_least,ns_most,over_native,over_native_least,over_native_most,\
         daemon_cpu_ns,error\n",
    );
    let three = |spread: Option<Spread>| {
        spread.map_or_else(
            || ",,".to_owned(),
            |s| format!("{:.4},{:.4},{:.4}", s.median, s.least, s.most),
        )
    };
    for (row, clients) in results.places() {
        for configuration in &results.run.configurations {
            let Some(cell) = results.cell(row, clients, &configuration.name) else {
                continue;
            };
            let native = results.cell(row, clients, "native");
            let error = cell.error.as_deref().unwrap_or_default().replace('"', "'");
            let _ = writeln!(
                text,
                "{},{clients},{},{},{},{},\"{error}\"",
                row.id,
                configuration.name,
                three(cell.time()),
                three(native.and_then(|native| cell.over(native))),
                cell.cpu()
                    .map_or_else(String::new, |s| format!("{:.1}", s.median)),
            );
        }
    }
    text
}
