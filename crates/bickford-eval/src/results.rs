//! The directory of a run: settings, one line per run of a row, and the reports made of them.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::host::Machine;
use crate::host::device::Choice;
use crate::measure::Work;
use crate::measure::cpu::{ProcessTime, SystemTime};
use crate::measure::disk::Counters;
use crate::measure::tracepoints::Requests;
use crate::rows::Row;
use crate::target::Config;

/// What a run was asked to do, and where. Kept so that it can be resumed and repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the tool.
    pub version: String,
    /// Name of the suite.
    pub suite: String,
    /// 1 is the papers' size.
    pub scale: f64,
    /// Where the lower file system lives.
    pub device: Choice,
    /// Directory for the loop device's file and the mount points.
    pub directory: PathBuf,
    /// Counted rounds.
    pub rounds: u32,
    /// Longest time of one run of a row, in seconds.
    pub deadline_s: u64,
    /// What is compared, native first.
    pub configs: Vec<Config>,
    /// What is run.
    pub rows: Vec<Row>,
    /// The machine.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// The command line that repeats it.
    pub command: String,
}

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
}

const SETTINGS: &str = "run.json";
const SAMPLES: &str = "samples.jsonl";
const NOTES: &str = "notes.txt";

fn read(path: &Path) -> Result<String, EvalError> {
    fs::read_to_string(path).map_err(EvalError::io(path))
}

/// Reads a directory of results (or a `report.json`). A last line that was cut off is left out.
///
/// # Errors
/// A file is missing or is not ours.
pub fn load(path: &Path) -> Result<Results, EvalError> {
    if path.is_file() {
        return serde_json::from_str(&read(path)?).map_err(EvalError::json(path));
    }
    let settings = path.join(SETTINGS);
    let settings = serde_json::from_str(&read(&settings)?).map_err(EvalError::json(settings))?;
    let file = path.join(SAMPLES);
    let text = if file.exists() {
        read(&file)?
    } else {
        String::new()
    };
    let whole = text
        .rfind('\n')
        .map_or("", |end| text.get(..end).unwrap_or_default());
    let samples: Result<Vec<Sample>, _> = whole.lines().map(serde_json::from_str).collect();
    let notes = fs::read_to_string(path.join(NOTES)).unwrap_or_default();
    Ok(Results {
        settings,
        samples: samples.map_err(EvalError::json(file))?,
        notes: notes.lines().map(str::to_owned).collect(),
    })
}

impl Store {
    /// Begins a new directory of results.
    ///
    /// # Errors
    /// It exists with results already, or cannot be written.
    pub fn create(directory: &Path, settings: Settings) -> Result<Self, EvalError> {
        fs::create_dir_all(directory).map_err(EvalError::io(directory))?;
        let file = directory.join(SETTINGS);
        if file.exists() {
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
            log: open_log(directory)?,
            directory: directory.to_owned(),
            results,
        })
    }

    /// Goes on with a directory of results. A line that was cut off is run again.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn resume(directory: &Path) -> Result<Self, EvalError> {
        let results = load(directory)?;
        let path = directory.join(SAMPLES);
        if path.exists() {
            let text = read(&path)?;
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            let file = OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(EvalError::io(&path))?;
            file.set_len(whole as u64).map_err(EvalError::io(&path))?;
        }
        Ok(Self {
            log: open_log(directory)?,
            directory: directory.to_owned(),
            results,
        })
    }

    /// Where the results are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Keeps a sample, on the disk before this returns.
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
        self.results.samples.push(sample);
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
    /// ended with an error.
    #[must_use]
    pub fn is_done(&self, row: &str, config: &str, round: u32) -> bool {
        self.results
            .of(row, config)
            .any(|s| s.round == round || matches!(s.outcome, Outcome::Failed(_)))
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

fn open_log(directory: &Path) -> Result<File, EvalError> {
    let path = directory.join(SAMPLES);
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(EvalError::io(&path))
}
