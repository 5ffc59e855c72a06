//! Runs every row in every configuration, interleaved, and keeps each result as it comes.

mod moment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Ui;
use crate::error::EvalError;
use crate::host::cgroup::{MemoryLimit, Writeback};
use crate::host::device::Device;
use crate::host::process::{self, Cut, Finished, Limits};
use crate::host::work::WorkDirectory;
use crate::measure::Work;
use crate::measure::cycles::Cycles;
use crate::measure::tracepoints::{Requests, Tracing};
use crate::results::{Caches, Measured, Outcome, Sample, Store};
use crate::room::Room;
use crate::rows::{Kind, Row};
use crate::target::{Config, Target};
use crate::terminal::harmless;
use crate::worker::{self, Answer, Job};
use crate::{fio, limits, postmark};
use moment::Moment;

/// How long making the files of a row may take.
const PREPARE_TIME: Duration = Duration::from_secs(3600);
/// Longest deadline, a year; far longer ones are no time of the clock.
const DEADLINE_MAX_S: u64 = 365 * 24 * 3600;

/// How long a child may take, and what helps where that is too short.
#[derive(Clone, Copy)]
struct Bound {
    end: Instant,
    seconds: u64,
    advice: &'static str,
}

impl Bound {
    fn new(time: Duration, advice: &'static str) -> Self {
        Self {
            end: Instant::now() + time,
            seconds: time.as_secs(),
            advice,
        }
    }

    /// Of making the files of a row.
    fn of_preparing() -> Self {
        Self::new(PREPARE_TIME, "a smaller --scale may help")
    }
}

/// Why a run of a row has no result.
#[derive(Debug)]
enum Ended {
    Interrupted,
    Failed(String),
}

impl From<String> for Ended {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

/// Runs what is missing in a store.
pub struct Runner<'a> {
    store: &'a mut Store,
    ui: &'a Ui,
    stop: Arc<AtomicBool>,
    // Taken down in this order: the device lies in the work directory.
    device: Device,
    work: WorkDirectory,
    /// What lies on the device, if it may serve again.
    files: Option<Kind>,
    notes: Vec<String>,
}

impl<'a> Runner<'a> {
    /// Sets up the device.
    ///
    /// # Errors
    /// The device cannot be set up.
    pub fn new(store: &'a mut Store, ui: &'a Ui, stop: Arc<AtomicBool>) -> Result<Self, EvalError> {
        let settings = &store.results.settings;
        let parent =
            fs::canonicalize(&settings.directory).map_err(EvalError::io(&settings.directory))?;
        let work = WorkDirectory::new(&parent)?;
        let room = Room::of(settings.rows.iter().map(|row| &row.kind));
        let device =
            Device::set_up(&settings.device, work.path(), room, &stop).map_err(EvalError::SetUp)?;
        let logs = store.logs();
        fs::create_dir_all(&logs).map_err(EvalError::io(logs))?;
        Ok(Self {
            store,
            ui,
            stop,
            work,
            device,
            files: None,
            notes: Vec::new(),
        })
    }

    /// Runs everything that is missing. Returns false when it was interrupted.
    ///
    /// # Errors
    /// Results cannot be kept. An error of a row is kept with the row instead.
    pub fn run(&mut self) -> Result<bool, EvalError> {
        let settings = self.store.results.settings.clone();
        self.notes.extend(limits::of_this_machine(&settings));
        let bar = self.progress_bar();
        for row in &settings.rows {
            for round in 0..=settings.rounds {
                for turn in 0..settings.configs.len() {
                    // Each round begins with another configuration, so that none always follows the same.
                    let index = (turn + round as usize) % settings.configs.len();
                    let Some(config) = settings.configs.get(index) else {
                        continue;
                    };
                    bar.set_message(format!("{} · {}", row.name, config.name));
                    if !self.store.is_done(&row.id, &config.name, round)
                        && !self.sample(row, config, round, &bar)?
                    {
                        bar.abandon_with_message("interrupted");
                        return Ok(false);
                    }
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(true)
    }

    fn progress_bar(&self) -> ProgressBar {
        let settings = &self.store.results.settings;
        let total = settings.rows.len() * settings.configs.len() * (settings.rounds as usize + 1);
        if !self.ui.progress {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(total as u64);
        let template = "{bar:30} {pos}/{len}  {elapsed} gone, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        bar
    }

    /// Runs a row in a configuration once and keeps the result; false when interrupted.
    fn sample(
        &mut self,
        row: &Row,
        config: &Config,
        round: u32,
        bar: &ProgressBar,
    ) -> Result<bool, EvalError> {
        let outcome = match self.measure(row, config, round) {
            Ok(measured) => Outcome::Measured(Box::new(measured)),
            Err(Ended::Interrupted) => return Ok(false),
            Err(Ended::Failed(error)) => {
                let full = error.contains("No space left on device");
                let room = full.then(|| self.device.room()).flatten();
                let error = room.map_or(error.clone(), |room| format!("{error}; {room}"));
                if self.ui.progress {
                    let told = format!("{} · {}: {error}", row.name, config.name);
                    bar.println(harmless(&told));
                }
                // The device may be full or half prepared.
                self.files = None;
                Outcome::Failed(error)
            }
        };
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        for note in std::mem::take(&mut self.notes) {
            self.store.note(&note)?;
        }
        let sample = Sample {
            row: row.id.clone(),
            config: config.name.clone(),
            round,
            outcome,
        };
        self.store.add(sample)?;
        Ok(true)
    }

    /// Makes the files of the row, unless the last row left just these.
    fn provide(&mut self, kind: &Kind) -> Result<(), Ended> {
        if kind.reads_only()
            && self
                .files
                .as_ref()
                .is_some_and(|there| same_files(there, kind))
        {
            return Ok(());
        }
        self.files = None;
        self.device.remake()?;
        let job = Job::Prepare {
            kind: kind.clone(),
            directory: self.device.data().to_owned(),
        };
        self.worker(&job, None, Bound::of_preparing(), &|| {})?;
        if kind.reads_only() {
            self.files = Some(kind.clone());
        }
        Ok(())
    }

    fn measure(&mut self, row: &Row, config: &Config, round: u32) -> Result<Measured, Ended> {
        self.provide(&row.kind)?;
        self.device.remount()?;
        self.notes.extend(self.device.drop_caches()?);
        let limit = self.limit(row)?;
        let _writeback = limit.as_ref().and_then(Writeback::early);
        let entrance = limit.as_ref().map(MemoryLimit::entrance);
        let point = self.work.path().join("mnt");
        let log = self.log(row, config);
        let target = Target::mount(
            config,
            self.device.data(),
            &point,
            &log.latest,
            entrance.as_deref(),
            &self.stop,
        )
        .inspect_err(|_| log.keep())?;
        let ready = self.make_ready(&row.kind, &target, entrance.as_deref());
        let tracing = if round == 0 {
            self.trace(&target)
        } else {
            None
        };
        let before = Moment::before(&self.device, &target);
        let mut cycles = Cycles::start().ok();
        let ran = ready.and_then(|()| self.execute(&row.kind, &target, entrance.as_deref()));
        let cycles = cycles.as_mut().and_then(Cycles::count);
        let after = Moment::after(&self.device, &target);
        let requests = tracing.and_then(|tracing| self.requests(tracing, row, config));
        let trouble = target.trouble();
        if trouble.is_some() || matches!(ran, Err(Ended::Failed(_))) {
            log.keep();
        }
        let cached = limit.as_ref().map(MemoryLimit::page_cache);
        let kills = limit.as_ref().map_or(0, MemoryLimit::kills);
        let unmounted = target.unmount();
        let caches = limit.as_ref().zip(cached).map(|(limit, both)| {
            let lower = limit.page_cache().min(both);
            Caches {
                lower,
                upper: both - lower,
            }
        });
        let (work, finished) = ran.map_err(|ended| explain(ended, trouble.as_deref(), kills))?;
        if let Some(trouble) = trouble {
            return Err(Ended::Failed(trouble));
        }
        self.tell(row, config, &work, unmounted?);
        Ok(Measured {
            throughput: row.kind.throughput(&work),
            work,
            wall_s: finished.wall_s,
            workload_s: finished.cpu_s,
            daemon: after.daemon_since(&before),
            system: after.system.since(&before.system),
            cycles,
            disk: after.disk.zip(before.disk).map(|(a, b)| a.since(&b)),
            requests,
            caches,
            memory_limit: limit.as_ref().map(|l| l.bytes),
        })
    }

    /// Notes what makes a result less than it seems.
    fn tell(&mut self, row: &Row, config: &Config, work: &Work, of_unmount: Option<String>) {
        let idle = (work.idle_threads > 0).then(|| {
            format!(
                "{} threads found no file to begin with and did nothing",
                work.idle_threads
            )
        });
        let coarse = (row.kind.coarseness(work) > 0.0).then(|| {
            "fio tells times in whole milliseconds, which is more than 1% of what this takes; a larger --scale makes it surer".to_owned()
        });
        let told = [of_unmount, idle, coarse].into_iter().flatten();
        let told = told.map(|told| format!("{} · {}: {told}", row.name, config.name));
        self.notes.extend(told);
    }

    /// The limit of workload and daemon, unless there was none when the run began.
    fn limit(&self, row: &Row) -> Result<Option<MemoryLimit>, String> {
        match MemoryLimit::new(row.memory, row.buffers()) {
            Err(error) if self.store.results.settings.limited == Some(true) => Err(format!(
                "no memory limit, as other rows of this run have: {error}"
            )),
            limit => Ok(limit.ok()),
        }
    }

    fn log(&self, row: &Row, config: &Config) -> Log {
        let logs = self.store.logs();
        Log {
            latest: logs.join(format!("{}.log", config.name)),
            kept: logs.join(format!("{}-{}.log", config.name, row.id)),
        }
    }

    fn requests(&mut self, tracing: Tracing, row: &Row, config: &Config) -> Option<Requests> {
        let (row, config) = (&row.name, &config.name);
        match tracing.finish() {
            Ok(requests) => {
                if requests.lost > 0 {
                    self.notes.push(format!(
                        "{row} · {config}: {} trace events were lost, its request counts are too small.",
                        requests.lost
                    ));
                }
                Some(requests)
            }
            Err(error) => {
                self.notes.push(format!(
                    "{row} · {config}: requests are not counted: {error}."
                ));
                None
            }
        }
    }

    fn trace(&mut self, target: &Target) -> Option<Tracing> {
        match Tracing::start(target.connection()?) {
            Ok(tracing) => Some(tracing),
            Err(error) => {
                self.notes
                    .push(format!("Requests are not counted: {error}."));
                None
            }
        }
    }

    /// Of a run of a row.
    fn deadline(&self) -> Bound {
        let seconds = self.store.results.settings.deadline_s.min(DEADLINE_MAX_S);
        let advice = "a longer --deadline or a smaller --scale may help";
        Bound::new(Duration::from_secs(seconds), advice)
    }

    /// Waits until a mount serves, and has a row that runs with warm caches find them so. Nothing of it is measured.
    fn make_ready(
        &self,
        kind: &Kind,
        target: &Target,
        entrance: Option<&Path>,
    ) -> Result<(), Ended> {
        let directory = target.directory().to_owned();
        let job = match kind {
            Kind::Bonnie { phase, .. } if phase.warm() => Job::Warm { directory },
            // It is in the mount table before the file system has begun.
            _ if target.connection().is_some() => Job::Reach { directory },
            _ => return Ok(()),
        };
        let release = || target.release();
        self.worker(&job, entrance, self.deadline(), &release)
            .map(drop)
    }

    /// Runs the row's program in the target and reads its answer.
    fn execute(
        &self,
        kind: &Kind,
        target: &Target,
        entrance: Option<&Path>,
    ) -> Result<(Work, Finished), Ended> {
        let deadline = self.deadline();
        let directory = target.directory();
        let release = || target.release();
        let program = |name: &str, arguments: &[OsString]| {
            let command = process::limited(OsStr::new(name), arguments, entrance);
            self.child(command, name, deadline, &release)
        };
        match kind {
            Kind::Wml { .. } | Kind::Bonnie { .. } | Kind::BufferWrite { .. } => {
                let job = Job::Run {
                    kind: kind.clone(),
                    directory: directory.to_owned(),
                };
                self.worker(&job, entrance, deadline, &release)
            }
            Kind::Fio(spec) => {
                let finished = program("fio", &spec.arguments(directory))?;
                let answer = fio::answer(spec, &finished.stdout);
                // What fio says on standard error tells more than its answer does.
                let finished = finished.success("fio")?;
                Ok((answer?, finished))
            }
            Kind::Copy { bytes } => {
                let from = worker::single_file(directory).into_os_string();
                let finished = program("cp", &[from, directory.join("copy").into_os_string()])?
                    .success("cp")?;
                Ok((by_the_clock(1, 1, *bytes, &finished), finished))
            }
            Kind::Postmark {
                files,
                transactions,
            } => {
                let script = self.work.path().join("postmark");
                postmark::write_script(&script, directory, *files, *transactions, "")?;
                let finished =
                    program("postmark", &[script.into_os_string()])?.success("postmark")?;
                if let Some(complaint) = postmark::complaint(&finished) {
                    return Err(Ended::Failed(format!("postmark: {complaint}")));
                }
                // How many files it makes, opens and removes in that time is not counted.
                Ok((by_the_clock(*transactions, 0, 0, &finished), finished))
            }
        }
    }

    fn child(
        &self,
        mut command: Command,
        name: &str,
        bound: Bound,
        release: &dyn Fn(),
    ) -> Result<Finished, Ended> {
        // fio and others leave files where they are started.
        command.current_dir(self.work.path());
        let limits = Limits {
            deadline: bound.end,
            stop: &self.stop,
            release,
        };
        match process::run(command, &limits)? {
            Ok(finished)
                if finished.status.code() == Some(127) && finished.stderr.contains(name) =>
            {
                Err(Ended::Failed(format!(
                    "{name} is not installed; install the package `{name}`"
                )))
            }
            Ok(finished) => Ok(finished),
            Err(Cut::Interrupted) => Err(Ended::Interrupted),
            Err(Cut::Deadline) => Err(Ended::Failed(format!(
                "{name} was not done within {} s and was killed; {}",
                bound.seconds, bound.advice
            ))),
        }
    }

    fn worker(
        &self,
        job: &Job,
        entrance: Option<&Path>,
        bound: Bound,
        release: &dyn Fn(),
    ) -> Result<(Work, Finished), Ended> {
        let Some((program, leading)) = self.ui.again.split_first() else {
            return Err(Ended::Failed(
                "the program does not know how to start itself".into(),
            ));
        };
        let mut arguments = leading.to_vec();
        arguments.push("--worker".into());
        // A file: an argument has 128 KiB at most, and the text of a workload may be longer.
        let file = self.work.path().join("job");
        let failed = |e: std::io::Error| format!("{}: {e}", file.display());
        fs::write(
            &file,
            serde_json::to_string(job).map_err(|e| e.to_string())?,
        )
        .map_err(failed)?;
        let mut command = process::limited(program, &arguments, entrance);
        command.stdin(fs::File::open(&file).map_err(failed)?);
        let name = match job {
            Job::Prepare { .. } => "making the files of the row",
            Job::Reach { .. } => "asking the mount for its root",
            Job::Warm { .. } => "reading the file of the row beforehand",
            Job::Run { .. } | Job::Null { .. } => "the workload",
        };
        let finished = self.child(command, name, bound, release)?.success(name)?;
        match serde_json::from_str(&finished.stdout) {
            Ok(Answer::Done(work)) => Ok((work, finished)),
            Ok(Answer::Failed(error)) => Err(Ended::Failed(error)),
            Err(_) => Err(Ended::Failed(format!(
                "{name}: {}",
                process::tail(&finished.stdout)
            ))),
        }
    }

    /// The engine's own time per operation in nanoseconds with no file system below it, for each workload in WML of the suite.
    #[must_use]
    pub fn engine_cost(&self) -> BTreeMap<String, f64> {
        let mut costs = BTreeMap::new();
        for row in self
            .store
            .results
            .settings
            .rows
            .iter()
            .filter(|r| matches!(r.kind, Kind::Wml { .. }))
        {
            let bound = Bound::new(Duration::from_secs(5), "");
            let job = Job::Null {
                kind: row.kind.clone(),
            };
            if let Ok((work, _)) = self.worker(&job, None, bound, &|| {})
                && let Some(cost) = work.operation_ns()
            {
                costs.insert(row.id.clone(), cost);
            }
        }
        costs
    }
}

/// What a mounted command says; the next mount writes over it.
struct Log {
    latest: PathBuf,
    kept: PathBuf,
}

impl Log {
    /// Keeps it for its row. Natively there is none.
    fn keep(&self) {
        let _ = fs::copy(&self.latest, &self.kept);
    }
}

/// True where `there` left the files that `wanted` reads.
fn same_files(there: &Kind, wanted: &Kind) -> bool {
    match (there, wanted) {
        (Kind::Fio(a), Kind::Fio(b)) => a.reads() && (a.files, a.bytes) == (b.files, b.bytes),
        (Kind::Bonnie { phase: a, bytes: x }, Kind::Bonnie { bytes: y, .. }) => a.reads() && x == y,
        (Kind::Wml { .. }, Kind::Wml { .. }) => there == wanted,
        _ => false,
    }
}

/// The work of a program that does not time itself: all of its run.
fn by_the_clock(operations: u64, files: u64, bytes: u64, finished: &Finished) -> Work {
    Work {
        operations,
        files,
        bytes,
        elapsed_s: finished.wall_s,
        ..Work::default()
    }
}

/// Puts what happened to the mount before what the workload said of it.
fn explain(ended: Ended, trouble: Option<&str>, kills: u64) -> Ended {
    let Ended::Failed(error) = ended else {
        return ended;
    };
    let mut parts: Vec<String> = trouble.map(str::to_owned).into_iter().collect();
    if kills > 0 {
        parts.push(
            "the kernel killed a process for want of memory; a larger --scale gives it more".into(),
        );
    }
    parts.push(error);
    Ended::Failed(parts.join(": "))
}
