//! Samples, and what is computed from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::configurations::{Configuration, Side};
use crate::rows::{Mode, ROWS, Row, Scale};

/// One cell of one round: one line of samples.jsonl.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// 0 is not counted.
    pub(crate) round: u32,
    pub(crate) row: String,
    pub(crate) configuration: String,
    pub(crate) clients: usize,
    pub(crate) ops: u64,
    pub(crate) ns: u64,
    pub(crate) daemon_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// What a run was: run.json.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) command: Vec<String>,
    pub(crate) machine: bickford_eval::host::Machine,
    pub(crate) device: String,
    /// The kernel's switch for FUSE over io_uring: `Y` or `N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) enable_uring: Option<String>,
    pub(crate) rounds: u32,
    pub(crate) scale: Scale,
    /// Versions of what was compared.
    pub(crate) versions: BTreeMap<String, String>,
    /// Who is not in it, and why.
    pub(crate) left_out: BTreeMap<String, String>,
    pub(crate) configurations: Vec<Configuration>,
}

/// Median, least and most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            least,
            most,
        })
    }
}

/// All counted rounds of one configuration in one row with one number of clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    /// Nanoseconds per operation, by round.
    ns: BTreeMap<u32, f64>,
    cpu: BTreeMap<u32, f64>,
    pub(crate) error: Option<String>,
}

impl Cell {
    /// Nanoseconds per operation.
    pub(crate) fn time(&self) -> Option<Spread> {
        Spread::of(self.ns.values().copied())
    }

    /// Nanoseconds of the daemon's CPU per operation.
    pub(crate) fn cpu(&self) -> Option<Spread> {
        Spread::of(self.cpu.values().copied())
    }

    /// How many times as long as `other`, round by round.
    pub(crate) fn over(&self, other: &Self) -> Option<Spread> {
        Self::ratios(&self.ns, &other.ns)
    }

    /// How many times the daemon's CPU of `other`, round by round.
    pub(crate) fn cpu_over(&self, other: &Self) -> Option<Spread> {
        Self::ratios(&self.cpu, &other.cpu)
    }

    fn ratios(own: &BTreeMap<u32, f64>, other: &BTreeMap<u32, f64>) -> Option<Spread> {
        let pairs = own.iter().filter_map(|(round, own)| {
            let other = other.get(round)?;
            (*other > 0.0).then(|| own / other)
        });
        Spread::of(pairs)
    }
}

/// Everything measured.
pub(crate) struct Results {
    pub(crate) run: Run,
    cells: BTreeMap<(String, usize, String), Cell>,
}

impl Results {
    pub(crate) fn new(run: Run, samples: &[Sample]) -> Self {
        let mut cells: BTreeMap<_, Cell> = BTreeMap::new();
        // A run of one round counts it, for want of another.
        let first = u32::from(run.rounds > 0);
        for sample in samples {
            let key = (
                sample.row.clone(),
                sample.clients,
                sample.configuration.clone(),
            );
            let cell = cells.entry(key).or_default();
            if let Some(error) = &sample.error {
                cell.error = Some(error.clone());
            } else if sample.round >= first && sample.ops > 0 {
                let ops = sample.ops as f64;
                cell.ns.insert(sample.round, sample.ns as f64 / ops);
                cell.cpu.insert(sample.round, sample.daemon_ns as f64 / ops);
            }
        }
        // What failed in some rounds is not judged by the others.
        for cell in cells.values_mut().filter(|cell| cell.error.is_some()) {
            cell.ns.clear();
            cell.cpu.clear();
        }
        Self { run, cells }
    }

    /// Reads what a run left in `directory`.
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let text = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let run = serde_json::from_str(&text("run.json")?).map_err(|e| format!("run.json: {e}"))?;
        let samples: Result<Vec<Sample>, _> = text("samples.jsonl")?
            .lines()
            .map(serde_json::from_str)
            .collect();
        Ok(Self::new(
            run,
            &samples.map_err(|e| format!("samples.jsonl: {e}"))?,
        ))
    }

    pub(crate) fn cell(&self, row: &Row, clients: usize, configuration: &str) -> Option<&Cell> {
        let key = (row.id.to_owned(), clients, configuration.to_owned());
        self.cells.get(&key)
    }

    /// Rows and numbers of clients that were measured.
    pub(crate) fn places(&self) -> Vec<(&'static Row, usize)> {
        let measured = |row: &Row, clients: usize| {
            self.cells
                .keys()
                .any(|(id, number, _)| id == row.id && *number == clients)
        };
        ROWS.iter()
            .flat_map(|row| row.clients.iter().map(move |clients| (row, *clients)))
            .filter(|(row, clients)| measured(row, *clients))
            .collect()
    }

    pub(crate) fn configurations(
        &self,
        row: &Row,
        side: Side,
    ) -> impl Iterator<Item = &Configuration> {
        let row = *row;
        let all = self.run.configurations.iter();
        all.filter(move |found| found.side == side && found.takes_part(&row))
    }

    /// Whether a configuration of `side` was to take part.
    pub(crate) fn has(&self, side: Side) -> bool {
        let mut all = self.run.configurations.iter();
        all.any(|found| found.side == side)
    }

    /// Our configuration that a row is judged by.
    pub(crate) fn ours(&self, row: &Row) -> Option<&Configuration> {
        self.configurations(row, Side::Ours)
            .find(|found| found.mode == Some(row.ours))
    }

    /// The peers' configurations that ours is judged by: an interface over paths is something else.
    pub(crate) fn peers(&self, row: &Row) -> impl Iterator<Item = &Configuration> {
        self.configurations(row, Side::Peer)
            .filter(|found| found.mode != Some(Mode::Paths))
    }

    /// The peer's configuration that takes least of what ours takes, by the median of ratios within a round. That may be another
    /// one than [`Results::best_peer`], which compares medians of all rounds.
    pub(crate) fn nearest_peer(
        &self,
        row: &Row,
        clients: usize,
        ours: &Cell,
    ) -> Option<(&Configuration, Spread)> {
        self.peers(row)
            .filter_map(|found| Some((found, self.cell(row, clients, &found.name)?.over(ours)?)))
            .min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }

    /// The peer's configuration with the least of `measure`.
    pub(crate) fn best_peer(
        &self,
        row: &Row,
        clients: usize,
        measure: impl Fn(&Cell) -> Option<Spread>,
    ) -> Option<(&Configuration, &Cell)> {
        self.peers(row)
            .filter_map(|found| {
                let cell = self.cell(row, clients, &found.name)?;
                Some((measure(cell)?.median, found, cell))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, found, cell)| (found, cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even() {
        let spread = Spread::of([3.0, 1.0, 2.0]).expect("values");
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of([1.0, 2.0]).expect("values").median, 1.5);
        assert_eq!(Spread::of([]), None);
    }

    fn run() -> Run {
        let configuration = |name: &str, side| Configuration {
            name: name.to_owned(),
            side,
            mode: Some(Mode::Usual),
            command: Vec::new(),
        };
        Run {
            command: Vec::new(),
            machine: bickford_eval::host::Machine::probe(),
            device: "ram".to_owned(),
            enable_uring: None,
            rounds: 3,
            scale: Scale::FULL,
            versions: BTreeMap::new(),
            left_out: BTreeMap::new(),
            configurations: vec![
                configuration("ours", Side::Ours),
                configuration("steady", Side::Peer),
                configuration("other", Side::Peer),
            ],
        }
    }

    fn samples(configuration: &str, ns: &[u64]) -> Vec<Sample> {
        let of = |(round, ns): (u32, &u64)| Sample {
            round,
            row: "lookup".to_owned(),
            configuration: configuration.to_owned(),
            clients: 1,
            ops: 1,
            ns: *ns,
            daemon_ns: 1,
            error: None,
        };
        (1..).zip(ns).map(of).collect()
    }

    #[test]
    fn the_nearest_peer_is_that_of_the_smallest_advantage() {
        let row = crate::rows::find("lookup").expect("a row");
        // 2.7, 1.35 and 0.675 of ours, and 1.3, 1.4 and 1.3.
        let all = [
            samples("ours", &[10, 20, 40]),
            samples("steady", &[27, 27, 27]),
            samples("other", &[13, 28, 52]),
        ];
        let results = Results::new(run(), &all.concat());
        let ours = results.cell(row, 1, "ours").expect("ours");
        let best = results.best_peer(row, 1, Cell::time).expect("a peer");
        let nearest = results.nearest_peer(row, 1, ours).expect("a peer");
        assert_eq!(
            (best.0.name.as_str(), nearest.0.name.as_str()),
            ("steady", "other")
        );
    }

    #[test]
    fn what_failed_in_a_round_has_no_result() {
        let row = crate::rows::find("lookup").expect("a row");
        let mut all = samples("ours", &[10, 10, 10]);
        if let Some(last) = all.last_mut() {
            last.error = Some("no luck".to_owned());
        }
        let results = Results::new(run(), &all);
        let cell = results.cell(row, 1, "ours").expect("a cell");
        assert_eq!(cell.time(), None);
        assert_eq!(cell.error.as_deref(), Some("no luck"));
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let cell = |values: &[f64]| Cell {
            ns: (1..).zip(values.iter().copied()).collect(),
            ..Cell::default()
        };
        let ratio = cell(&[2.0, 40.0]).over(&cell(&[1.0, 10.0])).expect("pairs");
        assert_eq!((ratio.least, ratio.most), (2.0, 4.0));
    }
}
