//! The run: rounds, in each all rows, in each all configurations in turn.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bickford_eval::host::device::{Choice, Device};
use bickford_eval::host::{mounts, process};
use bickford_eval::room::Room;

use crate::configurations::{Configuration, Side};
use crate::mounted::{Mounted, Refusal};
use crate::results::Sample;
use crate::rows::{Row, Scale, Set, Work};
use crate::work::{self, Outcome, prepare};

/// The client's first argument where it is to warm a mount up.
const WARM_UP: &str = "warm-up";

/// What is to be measured, and with what.
pub(crate) struct Plan<'a> {
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) configurations: &'a [Configuration],
    /// Only these numbers of clients, if any are named.
    pub(crate) clients: Vec<usize>,
    /// Counted rounds; one more comes before them.
    pub(crate) rounds: u32,
    pub(crate) scale: Scale,
    pub(crate) device: Choice,
    /// How long one cell may take.
    pub(crate) deadline: Duration,
    /// Mixed load on each mount before it is measured.
    pub(crate) warm_up: Duration,
    /// Where the results go.
    pub(crate) out: &'a Path,
    /// Set when the run is to end.
    pub(crate) stop: &'a AtomicBool,
}

/// The state of a run.
pub(crate) struct Runner<'a> {
    plan: &'a Plan<'a>,
    device: Device,
    point: PathBuf,
    samples: File,
    /// Configurations that do not exist here, and why.
    pub(crate) left_out: BTreeMap<String, String>,
    _work: tempfile::TempDir,
}

/// Why a cell has no result.
enum Trouble {
    Stopped,
    Error(String),
}

fn said(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

impl<'a> Runner<'a> {
    pub(crate) fn new(plan: &'a Plan<'a>) -> Result<Self, String> {
        let work = tempfile::Builder::new()
            .prefix("bickford-compare-")
            .tempdir()
            .map_err(|e| format!("make a directory for the run: {e}"))?;
        let root = fs::canonicalize(work.path()).map_err(said(work.path()))?;
        let point = root.join("mnt");
        fs::create_dir(&point).map_err(said(&point))?;
        fs::create_dir_all(plan.out.join("logs")).map_err(said(plan.out))?;
        let path = plan.out.join("samples.jsonl");
        Ok(Self {
            // Large files for four numbers of clients, small files, and room for what rows make.
            device: Device::set_up(
                &plan.device,
                &root,
                Room {
                    bytes: 4 * plan.scale.large + (1 << 30),
                    // What mkfs.ext4 makes for such a device is more than the rows have names.
                    inodes: 0,
                },
                plan.stop,
            )?,
            plan,
            point,
            samples: File::create(&path).map_err(said(&path))?,
            left_out: BTreeMap::new(),
            _work: work,
        })
    }

    fn stopped(&self) -> bool {
        self.plan.stop.load(Ordering::Relaxed)
    }

    /// All rounds. Ctrl-C ends it early; what is measured stays.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let plan = self.plan;
        for round in 0..=plan.rounds {
            let begun = Instant::now();
            self.device.remake()?;
            let data = self.device.data().to_owned();
            prepare::shared(&data, &plan.scale).map_err(said(&data))?;
            self.settle()?;
            for row in &plan.rows {
                self.row(round, row)?;
                if self.stopped() {
                    eprintln!("\ncompare: interrupted in round {round}");
                    return Ok(());
                }
            }
            let took = begun.elapsed().as_secs();
            eprintln!("\rround {round} of {}: {took} s{:30}", plan.rounds, "");
        }
        Ok(())
    }

    /// Writes everything back, so that nothing of one configuration is done during the next.
    fn settle(&self) -> Result<(), String> {
        let data = self.device.data();
        let file = File::open(data).map_err(said(data))?;
        rustix::fs::syncfs(&file).map_err(|e| format!("sync {}: {e}", data.display()))
    }

    fn row(&mut self, round: u32, row: &'static Row) -> Result<(), String> {
        let data = self.device.data().to_owned();
        let base = prepare::base(row, &data, "");
        let shared = match row.set {
            Set::Names | Set::Large => Some(base),
            Set::List => Some(base.join("list")),
            Set::Fresh | Set::FreshFiles => None,
        };
        if let Some(shared) = shared.filter(|_| !row.cold) {
            let mut buffer = vec![0; 1 << 20];
            prepare::read_below(&shared, &mut buffer).map_err(said(&shared))?;
        }
        if row.work == Work::LookupMissing {
            let base = prepare::base(row, &data, "");
            prepare::ask_for_missing(row, &self.clients(row), &self.plan.scale, &base)
                .map_err(said(&base))?;
        }
        let all = self.plan.configurations.iter();
        let mut all: Vec<_> = all
            .filter(|one| one.takes_part(row) && !self.left_out.contains_key(&one.name))
            .collect();
        // Of these, or those that have no part would let the same ones go first again.
        let first = round as usize % all.len().max(1);
        all.rotate_left(first);
        for configuration in all {
            if self.stopped() {
                return Ok(());
            }
            eprint!("\rround {round}: {:<16} {:<26}", row.id, configuration.name);
            self.configuration(round, row, configuration)?;
        }
        Ok(())
    }

    fn configuration(
        &mut self,
        round: u32,
        row: &'static Row,
        configuration: &Configuration,
    ) -> Result<(), String> {
        let data = self.device.data().to_owned();
        let own = prepare::base(row, &data, &configuration.name);
        prepare::own(row, &self.clients(row), &self.plan.scale, &own).map_err(said(&own))?;
        let log = self
            .plan
            .out
            .join("logs")
            .join(format!("{}.log", configuration.name));
        let clients = self.clients(row);
        let at_once = match row.mounts_anew() {
            true => 1,
            false => clients.len().max(1),
        };
        for clients in clients.chunks(at_once) {
            if row.cold {
                self.device.remount()?;
                if let Some(why) = self.device.drop_caches()? {
                    eprintln!("\ncompare: {} is warm: {why}", row.id);
                }
            }
            let what = format!("round {round}, {}, clients {clients:?}", row.id);
            match Mounted::new(configuration, &data, &self.point, &log, &what) {
                Ok(mut mounted) => {
                    let results = self.cells(row, clients, configuration, &mut mounted);
                    // What was not written back, or not by then, was not measured.
                    let ended = mounted.unmount();
                    for (clients, result) in results {
                        let result = result.and_then(|outcome| ended.clone().map(|()| outcome));
                        self.keep(round, row, configuration, clients, result)?;
                    }
                }
                Err(Refusal::NotOffered(why)) => {
                    self.left_out.insert(configuration.name.clone(), why);
                    break;
                }
                Err(Refusal::Failed(why)) => {
                    for clients in clients {
                        self.keep(round, row, configuration, *clients, Err(why.clone()))?;
                    }
                }
            }
        }
        if matches!(row.set, Set::Fresh | Set::FreshFiles) {
            // Only now, natively: deleting is no part of any row but one.
            fs::remove_dir_all(&own).map_err(said(&own))?;
        }
        self.settle()
    }

    fn clients(&self, row: &Row) -> Vec<usize> {
        let wanted =
            |number: &usize| self.plan.clients.is_empty() || self.plan.clients.contains(number);
        row.clients.iter().copied().filter(wanted).collect()
    }

    fn cells(
        &self,
        row: &'static Row,
        clients: &[usize],
        configuration: &Configuration,
        mounted: &mut Mounted,
    ) -> Vec<(usize, Result<Outcome, String>)> {
        let mut results = Vec::new();
        let root = match configuration.command.is_empty() {
            true => self.device.data().to_owned(),
            false => self.point.clone(),
        };
        let base = prepare::base(row, &root, &configuration.name);
        let mut warm = match configuration.side {
            Side::Native => Ok(()),
            _ => self.warm_up(&root, mounted),
        };
        for clients in clients.iter().copied() {
            let warm = std::mem::replace(&mut warm, Ok(()));
            let result = match warm.and_then(|()| self.cell(row, clients, &base, mounted)) {
                Ok(outcome) => mounted.served().map(|()| outcome),
                Err(Trouble::Stopped) => break,
                Err(Trouble::Error(why)) => Err(why),
            };
            let failed = result.is_err();
            results.push((clients, result));
            if failed {
                // The mount is not to be trusted any more.
                break;
            }
        }
        results
    }

    fn warm_up(&self, root: &Path, mounted: &Mounted) -> Result<(), Trouble> {
        if self.plan.warm_up.is_zero() {
            return Ok(());
        }
        let length = self.plan.warm_up.as_secs_f64().to_string();
        let arguments = [WARM_UP.into(), length.into(), root.into()];
        self.run_client(&arguments, mounted).map(drop)
    }

    fn cell(
        &self,
        row: &Row,
        clients: usize,
        base: &Path,
        mounted: &Mounted,
    ) -> Result<Outcome, Trouble> {
        let trouble = |why: String| Trouble::Error(why);
        let scale = serde_json::to_string(&self.plan.scale).map_err(|e| trouble(e.to_string()))?;
        let mut arguments: Vec<OsString> = vec![
            row.id.into(),
            clients.to_string().into(),
            scale.into(),
            base.into(),
        ];
        arguments.extend(mounted.daemons().iter().map(|pid| pid.to_string().into()));
        let answer = self.run_client(&arguments, mounted)?;
        serde_json::from_str(&answer).map_err(|e| trouble(format!("the client's answer: {e}")))
    }

    /// Works on the mount in a process of its own, which a hanging file system cannot make ours; what
    /// it printed.
    fn run_client(&self, arguments: &[OsString], mounted: &Mounted) -> Result<String, Trouble> {
        let trouble = |why: String| Trouble::Error(why);
        let program = std::env::current_exe().map_err(|e| trouble(e.to_string()))?;
        let mut command = Command::new(program);
        command.arg("client").args(arguments);
        let release = || {
            if let Some(number) = mounted.connection {
                let _ = mounts::abort(number);
            }
        };
        let limits = process::Limits {
            deadline: Instant::now() + self.plan.deadline,
            stop: self.plan.stop,
            release: &release,
        };
        match process::run(command, &limits).map_err(trouble)? {
            Ok(finished) => {
                let finished = finished.success("the client").map_err(trouble)?;
                Ok(finished.stdout)
            }
            Err(process::Cut::Interrupted) => Err(Trouble::Stopped),
            Err(process::Cut::Deadline) => {
                let limit = self.plan.deadline.as_secs();
                Err(trouble(format!(
                    "not done after {limit} s; connection aborted"
                )))
            }
        }
    }

    fn keep(
        &mut self,
        round: u32,
        row: &Row,
        configuration: &Configuration,
        clients: usize,
        result: Result<Outcome, String>,
    ) -> Result<(), String> {
        if let Err(why) = &result {
            eprintln!(
                "\ncompare: {} {} with {clients} clients: {why}",
                row.id, configuration.name
            );
        }
        let outcome = result.as_ref().ok();
        let sample = Sample {
            round,
            row: row.id.to_owned(),
            configuration: configuration.name.clone(),
            clients,
            ops: outcome.map_or(0, |o| o.ops),
            ns: outcome.map_or(0, |o| o.ns),
            daemon_ns: outcome.map_or(0, |o| o.daemon_ns),
            error: result.err(),
        };
        let mut line = serde_json::to_string(&sample).map_err(|e| e.to_string())?;
        line.push('\n');
        self.samples
            .write_all(line.as_bytes())
            .map_err(|e| format!("samples.jsonl: {e}"))
    }
}

/// The whole of `compare client`: runs one cell and prints what came out.
pub(crate) fn client(arguments: &[String]) -> Result<(), String> {
    if let [first, length, root] = arguments
        && first == WARM_UP
    {
        let length: f64 = length
            .parse()
            .map_err(|e| format!("client: {length}: {e}"))?;
        let root = Path::new(root);
        return work::warm_up::run(root, Duration::from_secs_f64(length))
            .map_err(|e| format!("warm-up below {}: {e}", root.display()));
    }
    let [row, clients, scale, base, daemons @ ..] = arguments else {
        return Err("client: too few arguments; `compare` starts it by itself".to_owned());
    };
    let row = crate::rows::find(row)?;
    let clients = clients
        .parse()
        .map_err(|e| format!("client: {clients}: {e}"))?;
    let scale = serde_json::from_str(scale).map_err(|e| format!("client: {scale}: {e}"))?;
    let daemons: Vec<u32> = daemons.iter().filter_map(|pid| pid.parse().ok()).collect();
    let outcome =
        work::run(row, &scale, Path::new(base), clients, &daemons).map_err(|e| e.to_string())?;
    println!(
        "{}",
        serde_json::to_string(&outcome).map_err(|e| e.to_string())?
    );
    Ok(())
}
