//! The directory of a run: settings, one line per run of a row, and the reports made of them.

mod programs;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::host::Machine;
use crate::measure::Work;
use crate::measure::cpu::{ProcessTime, SystemTime};
use crate::measure::disk::Counters;
use crate::measure::tracepoints::Requests;
use crate::rows::Row;

pub use programs::{fingerprint, missing, programs};
pub use settings::Settings;
pub(crate) use settings::differences;

/// Page caches at the end of a row, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caches {
    /// Of the lower file system.
    pub lower: u64,
    /// Of the mounted one; what the unmount freed.
    pub upper: u64,
}

/// One run of a row that came to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// In the row's unit.
    pub throughput: f64,
    /// What the workload did.
    pub work: Work,
    /// From start to end of the workload's process, in seconds.
    pub wall_s: f64,
    /// CPU time of the workload, in seconds.
    pub workload_s: f64,
    /// CPU time of the daemon.
    pub daemon: Option<ProcessTime>,
    /// CPU time of the machine.
    pub system: SystemTime,
    /// CPU cycles of the machine, where it has counters.
    #[serde(default)]
    pub cycles: Option<u64>,
    /// I/O of the device.
    pub disk: Option<Counters>,
    /// Requests of the FUSE connection; only in the round that is not counted.
    pub requests: Option<Requests>,
    /// Page caches at the end.
    pub caches: Option<Caches>,
    /// Memory limit of workload and daemon together.
    pub memory_limit: Option<u64>,
}

/// How a run of a row ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// With a result.
    Measured(Box<Measured>),
    /// With an error.
    Failed(String),
}

/// One run of a row in a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The row's identifier.
    pub row: String,
    /// The configuration's name.
    pub config: String,
    /// 0 is the round that is not counted.
    pub round: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// Everything a report is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What was asked.
    pub settings: Settings,
    /// What came out.
    pub samples: Vec<Sample>,
    /// What was not as it should be, and what that does to the result.
    pub notes: Vec<String>,
}

impl Results {
    /// The counted runs of a row in a configuration.
    pub fn counted<'a, 'b>(
        &'a self,
        row: &'b str,
        config: &'b str,
    ) -> impl Iterator<Item = &'a Measured> + use<'a, 'b> {
        self.of(row, config)
            .filter(|s| s.round > 0)
            .filter_map(|s| match &s.outcome {
                Outcome::Measured(measured) => Some(measured.as_ref()),
                Outcome::Failed(_) => None,
            })
    }

    /// Throughputs of [`Results::counted`].
    #[must_use]
    pub fn throughputs(&self, row: &str, config: &str) -> Vec<f64> {
        self.counted(row, config).map(|m| m.throughput).collect()
    }

    /// The error that ended the row in this configuration.
    #[must_use]
    pub fn error(&self, row: &str, config: &str) -> Option<&str> {
        self.of(row, config).find_map(|s| match &s.outcome {
            Outcome::Failed(error) => Some(error.as_str()),
            Outcome::Measured(_) => None,
        })
    }

    /// The requests of the row in this configuration with the run they belong to.
    #[must_use]
    pub fn requests(&self, row: &str, config: &str) -> Option<(&Measured, &Requests)> {
        self.of(row, config).find_map(|s| match &s.outcome {
            Outcome::Measured(measured) => Some((measured.as_ref(), measured.requests.as_ref()?)),
            Outcome::Failed(_) => None,
        })
    }

    fn of<'a, 'b>(
        &'a self,
        row: &'b str,
        config: &'b str,
    ) -> impl Iterator<Item = &'a Sample> + use<'a, 'b> {
        self.samples
            .iter()
            .filter(move |s| s.row == row && s.config == config)
    }
}

/// A directory of results that is being written.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    log: File,
    /// What is in it.
    pub results: Results,
    /// Rows and configurations whose error is not final.
    again: HashSet<(String, String)>,
}

const SETTINGS: &str = "run.json";
const SAMPLES: &str = "samples.jsonl";
const NOTES: &str = "notes.txt";
const LOGS: &str = "logs";
/// The page of a report.
pub(crate) const HTML: &str = "report.html";
/// Everything that a report is made of.
pub(crate) const JSON: &str = "report.json";
/// The table of a report.
pub(crate) const CSV: &str = "report.csv";
/// What a run writes beside its settings.
const WRITTEN: [&str; 6] = [SAMPLES, NOTES, LOGS, HTML, JSON, CSV];

fn read(path: &Path) -> Result<String, EvalError> {
    fs::read_to_string(path).map_err(EvalError::io(path))
}

/// Reads a directory of results (or a `report.json`). A last line that was cut off is left out; of a round
/// that was run again the later line counts.
///
/// # Errors
/// A file is missing or is not ours.
pub fn load(path: &Path) -> Result<Results, EvalError> {
    if path.is_file() {
        return serde_json::from_str(&read(path)?).map_err(EvalError::json(path));
    }
    let settings = settings(path)?;
    let file = path.join(SAMPLES);
    let samples = if file.exists() {
        samples(&file)?
    } else {
        Vec::new()
    };
    let notes = fs::read_to_string(path.join(NOTES)).unwrap_or_default();
    Ok(Results {
        settings,
        samples: without_replaced(samples),
        notes: notes.lines().map(str::to_owned).collect(),
    })
}

fn settings(directory: &Path) -> Result<Settings, EvalError> {
    let file = directory.join(SETTINGS);
    serde_json::from_str(&read(&file)?).map_err(EvalError::json(file))
}

/// The whole lines of a file of samples. It is read as bytes: a line may be cut off within a character.
fn samples(file: &Path) -> Result<Vec<Sample>, EvalError> {
    let text = fs::read(file).map_err(EvalError::io(file))?;
    let whole = text.get(..whole(&text)).unwrap_or_default();
    let lines = whole.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty());
    let one = |(line, number)| {
        serde_json::from_slice(line).map_err(|source| EvalError::Sample {
            path: file.to_owned(),
            line: number,
            // It has seen one line only.
            what: source
                .to_string()
                .replace(" at line 1 column", " at column"),
        })
    };
    lines.map(one).collect()
}

/// How many bytes of a file of samples are whole lines.
fn whole(text: &[u8]) -> usize {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    end.map_or(0, |end| end + 1)
}

/// What a new run would write over that is of no run: the directory may be one of the user's.
fn foreign(directory: &Path) -> Option<&'static str> {
    let file = directory.join(SETTINGS);
    let is_there = |name: &str| directory.join(name).symlink_metadata().is_ok();
    if !is_there(SETTINGS) {
        return WRITTEN.into_iter().find(|name| is_there(name));
    }
    let ours = read(&file).is_ok_and(|text| serde_json::from_str::<Settings>(&text).is_ok());
    (!ours).then_some(SETTINGS)
}

fn without_replaced(samples: Vec<Sample>) -> Vec<Sample> {
    let mut places = HashMap::new();
    let mut kept: Vec<Sample> = Vec::with_capacity(samples.len());
    for sample in samples {
        let key = (sample.row.clone(), sample.config.clone(), sample.round);
        let place = *places.entry(key).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(old) => *old = sample,
            None => kept.push(sample),
        }
    }
    kept
}

impl Store {
    /// Begins a new directory of results.
    ///
    /// # Errors
    /// It exists with results already, or with files of the same names that are not of a run, or cannot be
    /// written, or another run writes there.
    pub fn create(directory: &Path, settings: Settings) -> Result<Self, EvalError> {
        fs::create_dir_all(directory).map_err(EvalError::io(directory))?;
        if let Some(name) = foreign(directory) {
            return Err(EvalError::Usage(format!(
                "{} holds {name}, which is not of a run and would be written over; choose another --out",
                directory.display()
            )));
        }
        let log = open_log(directory)?;
        let file = directory.join(SETTINGS);
        // What could not be set up has left nothing but its settings.
        let samples = fs::metadata(directory.join(SAMPLES)).map_or(0, |m| m.len());
        if file.exists() && samples > 0 {
            return Err(EvalError::Usage(format!(
                "{} holds results already; go on with --resume {}, or choose another --out",
                directory.display(),
                directory.display()
            )));
        }
        let text = serde_json::to_string_pretty(&settings).map_err(EvalError::json(&file))?;
        fs::write(&file, text).map_err(EvalError::io(&file))?;
        let results = Results {
            settings,
            samples: Vec::new(),
            notes: Vec::new(),
        };
        Ok(Self {
            log,
            directory: directory.to_owned(),
            results,
            again: HashSet::new(),
        })
    }

    /// Goes on with a directory of results. A line that was cut off is run again.
    ///
    /// # Errors
    /// It cannot be read or written, or belongs to another machine, another number of CPUs that may be used, another
    /// switch of io_uring, other rights, another file system below or to programs that have changed, or another run
    /// writes there.
    pub fn resume(directory: &Path) -> Result<Self, EvalError> {
        // Before a file is made where there is no run.
        settings(directory)?;
        let log = open_log(directory)?;
        let results = load(directory)?;
        let changes = results.settings.changes(&Machine::probe());
        if !changes.is_empty() {
            let place = directory.display();
            return Err(EvalError::Usage(format!(
                "--resume {place}: {}; samples of both would stand as one run: begin anew with another --out (--report {place} shows what is there)",
                changes.join("; ")
            )));
        }
        let path = directory.join(SAMPLES);
        let whole = whole(&fs::read(&path).map_err(EvalError::io(&path))?);
        log.set_len(whole as u64).map_err(EvalError::io(&path))?;
        Ok(Self {
            log,
            directory: directory.to_owned(),
            results,
            again: HashSet::new(),
        })
    }

    /// Where the results are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where what mounted commands say is kept.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.directory.join(LOGS)
    }

    /// Has every row and configuration that ended with an error run again, once, from the round that ended so.
    /// The error stays until there is another result of that round.
    pub fn retry_failed(&mut self) {
        let failed = self.results.samples.iter();
        self.again = failed
            .filter(|s| matches!(s.outcome, Outcome::Failed(_)))
            .map(|s| (s.row.clone(), s.config.clone()))
            .collect();
    }

    /// Keeps a sample, on the disk before this returns; in the place of one of the same round.
    ///
    /// # Errors
    /// It could not be written.
    pub fn add(&mut self, sample: Sample) -> Result<(), EvalError> {
        let path = self.directory.join(SAMPLES);
        let mut line = serde_json::to_string(&sample).map_err(EvalError::json(&path))?;
        line.push('\n');
        self.log
            .write_all(line.as_bytes())
            .map_err(EvalError::io(&path))?;
        self.log.sync_data().map_err(EvalError::io(&path))?;
        let Sample {
            row, config, round, ..
        } = sample.clone();
        self.results.samples.push(sample);
        if self.again.remove(&(row.clone(), config.clone())) {
            let samples = std::mem::take(&mut self.results.samples);
            self.results.samples = without_replaced(samples);
            self.note(&format!(
                "{row} · {config}: run again after an error, from round {round} on, apart from the rounds of the other configurations."
            ))?;
        }
        Ok(())
    }

    /// Keeps a note, once.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note(&mut self, note: &str) -> Result<(), EvalError> {
        let note = note.replace('\n', " ");
        if self.results.notes.contains(&note) {
            return Ok(());
        }
        self.results.notes.push(note);
        let path = self.directory.join(NOTES);
        fs::write(&path, self.results.notes.join("\n") + "\n").map_err(EvalError::io(path))
    }

    /// What need not be run: (row, configuration, round) that are there, and (row, configuration) that
    /// ended with an error, unless [`Store::retry_failed`] has it run again.
    #[must_use]
    pub fn is_done(&self, row: &str, config: &str, round: u32) -> bool {
        let again = self.again.contains(&(row.to_owned(), config.to_owned()));
        self.results.of(row, config).any(|s| match s.outcome {
            Outcome::Measured(_) => s.round == round,
            Outcome::Failed(_) => !again,
        })
    }

    /// Rows of which something is still to be run.
    pub fn rows_left(&self) -> impl Iterator<Item = &Row> {
        let settings = &self.results.settings;
        let is_left = |row: &&Row| {
            let mut configs = settings.configs.iter();
            configs.any(|c| (0..=settings.rounds).any(|n| !self.is_done(&row.id, &c.name, n)))
        };
        settings.rows.iter().filter(is_left)
    }

    /// Rows with at least one sample.
    #[must_use]
    pub fn rows_begun(&self) -> usize {
        self.results
            .samples
            .iter()
            .map(|s| &s.row)
            .collect::<HashSet<_>>()
            .len()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A child that does not yet run its program has the descriptor, too, and would keep the lock a little longer.
        let _ = flock(&self.log, FlockOperation::Unlock);
    }
}

/// The samples to append to, locked for this run alone where their file system has locks.
fn open_log(directory: &Path) -> Result<File, EvalError> {
    let path = directory.join(SAMPLES);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(EvalError::io(&path))?;
    match flock(&log, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(EvalError::Usage(format!(
            "{}: another run writes there; wait for its end, or choose another directory",
            directory.display()
        ))),
        _ => Ok(log),
    }
}
