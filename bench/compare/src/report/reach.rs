//! What was to be reached, and whether it was.

use std::fmt::Write;

use super::{figure, ratio};
use crate::configurations::Side;
use crate::results::{Cell, Results, Spread};
use crate::rows::{ROWS, Row};

/// With what ours is compared.
#[derive(Clone, Copy)]
enum Against {
    /// Ours over native is at most the bound.
    Native,
    /// This configuration over ours is at least the bound.
    Named(&'static str),
    /// Every peer over ours is at least the bound.
    Peers,
    /// The same of peers that do not pass through in the kernel.
    PeersThroughDaemon,
}

struct Reach {
    row: &'static str,
    clients: &'static [usize],
    against: Against,
    bound: f64,
}

const ONE: &[usize] = &[1];

const fn reach(
    row: &'static str,
    clients: &'static [usize],
    against: Against,
    bound: f64,
) -> Reach {
    Reach {
        row,
        clients,
        against,
        bound,
    }
}

const REACHES: &[Reach] = &[
    reach("lookup", ONE, Against::Named("libfuse-default"), 3.5),
    reach("lookup", ONE, Against::Peers, 1.5),
    reach("lookup", &[32], Against::Peers, 1.5),
    reach("stat", ONE, Against::Native, 1.1),
    reach("stat-missing", ONE, Against::Native, 1.1),
    reach("list-stat", ONE, Against::Native, 1.1),
    reach("open", ONE, Against::Native, 1.3),
    reach("create", ONE, Against::Native, 2.7),
    reach("create", ONE, Against::Peers, 2.5),
    reach("read-128k", ONE, Against::Native, 1.05),
    reach("read-1m", ONE, Against::Native, 1.05),
    reach("write-128k", ONE, Against::Native, 1.05),
    reach("write-1m", ONE, Against::Native, 1.05),
    reach("read-random", ONE, Against::Native, 1.12),
    reach("write-4k", ONE, Against::Native, 1.25),
    reach("direct-read-1m", ONE, Against::PeersThroughDaemon, 1.5),
    reach("direct-write-1m", ONE, Against::PeersThroughDaemon, 1.5),
];

/// Below this, a daemon's CPU is that of the measurement: it is asked for what its clock says.
const CPU_FLOOR_NS: f64 = 50.0;

/// Ours over native, or the smallest advantage over those it is compared with, and with whom.
fn measured(
    results: &Results,
    reach: &Reach,
    row: &Row,
    clients: usize,
) -> Option<(Spread, String)> {
    let ours = results.cell(row, clients, &results.ours(row)?.name)?;
    let against = |name: &str| results.cell(row, clients, name);
    match reach.against {
        Against::Native => Some((ours.over(against("native")?)?, "native".to_owned())),
        Against::Named(name) => Some((against(name)?.over(ours)?, name.to_owned())),
        Against::Peers | Against::PeersThroughDaemon => {
            // Peers that pass through have no part in the rows of the daemon.
            let (found, advantage) = results.nearest_peer(row, clients, ours)?;
            Some((advantage, found.name.clone()))
        }
    }
}

fn line(results: &Results, reach: &Reach, clients: usize) -> Option<String> {
    let row = ROWS.iter().find(|row| row.id == reach.row)?;
    let plural = if clients == 1 { "client" } else { "clients" };
    let at_most = matches!(reach.against, Against::Native);
    let what = match reach.against {
        Against::Native => format!("at most {} x native", reach.bound),
        Against::Named(name) => format!("at least {} x as fast as {name}", reach.bound),
        Against::Peers => format!("at least {} x as fast as every peer", reach.bound),
        Against::PeersThroughDaemon => {
            format!(
                "at least {} x as fast as every peer through its daemon",
                reach.bound
            )
        }
    };
    let (verdict, figures) = match measured(results, reach, row, clients) {
        None => ("not measured", String::new()),
        Some((spread, other)) => {
            let met = if at_most {
                spread.median <= reach.bound
            } else {
                spread.median >= reach.bound
            };
            let within = spread.least <= reach.bound && reach.bound <= spread.most;
            let verdict = match (met, within) {
                (true, false) => "met",
                (true, true) => "met; some rounds missed it",
                (false, true) => "missed; some rounds met it",
                (false, false) => "missed",
            };
            let missing = match reach.against {
                Against::Peers | Against::PeersThroughDaemon => without(results, row, clients),
                Against::Native | Against::Named(_) => String::new(),
            };
            let figures = format!("{}, {other}{missing}", ratio(Some(spread)));
            (verdict, figures)
        }
    };
    Some(format!(
        "| {}, {clients} {plural} | {what} | {figures} | {verdict} |\n",
        row.title
    ))
}

/// The peers' configurations that take part in a row and have no result.
fn without(results: &Results, row: &Row, clients: usize) -> String {
    let peers = results.peers(row);
    let missing = peers.filter(|peer| {
        let cell = results.cell(row, clients, &peer.name);
        cell.is_some_and(|cell| cell.error.is_some())
    });
    let names: Vec<_> = missing.map(|peer| peer.name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; without {}, which failed", names.join(", ")),
    }
}

/// Rows in which a peer is better than ours, by some measure, or ours failed.
fn behind(
    results: &Results,
    measure: impl Fn(&Cell) -> Option<Spread>,
    floor: f64,
) -> (usize, String) {
    let mut text = String::new();
    let mut count = 0;
    for (row, clients) in results.places() {
        let Some(ours) = results.ours(row) else {
            continue;
        };
        let cell = results.cell(row, clients, &ours.name);
        if let Some(error) = cell.and_then(|cell| cell.error.as_ref()) {
            count += 1;
            let _ = writeln!(
                text,
                "- {}, {clients}: {} failed: {}",
                row.title,
                ours.name,
                error.replace('\n', " ")
            );
        }
        let own = cell.and_then(&measure);
        let best = results.best_peer(row, clients, &measure);
        let peer = best.and_then(|(found, cell)| Some((found, measure(cell)?)));
        let (Some(own), Some((found, peer))) = (own, peer) else {
            continue;
        };
        count += 1;
        if own.median > peer.median && own.median > floor {
            let near = if own.least <= peer.most {
                " (their rounds overlap)"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "- {}, {clients}: {} is at {} us, {} at {} us{near}",
                row.title,
                found.name,
                figure(peer.median / 1000.0),
                ours.name,
                figure(own.median / 1000.0),
            );
        }
    }
    (count, text)
}

pub(super) fn markdown(results: &Results) -> String {
    if !results.has(Side::Ours) {
        return String::new();
    }
    let mut text = String::from("| row | reach | measured | verdict |\n|---|---|---|---|\n");
    for reach in REACHES {
        for clients in reach.clients {
            text.extend(line(results, reach, *clients));
        }
    }
    if !results.has(Side::Peer) {
        return text;
    }
    type Measure = fn(&Cell) -> Option<Spread>;
    let measures: [(&str, Measure, f64); 2] = [
        ("No row slower than the best peer", Cell::time, 0.0),
        (
            "Daemon CPU per operation no more than the best peer's",
            Cell::cpu,
            CPU_FLOOR_NS,
        ),
    ];
    for (what, measure, floor) in measures {
        let (count, list) = behind(results, measure, floor);
        let missed = list.lines().count();
        let verdict = match (count, missed) {
            (0, _) => "not measured",
            (_, 0) => "met",
            _ => "missed",
        };
        let _ = write!(
            text,
            "\n{what}: {verdict}, {missed} of {count} behind.\n\n{list}"
        );
    }
    text
}
