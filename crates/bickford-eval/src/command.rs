//! `bickford eval` from its arguments to its exit status.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::args::{EvalArgs, Suite, Ui};
use crate::error::EvalError;
use crate::host::cgroup::MemoryLimit;
use crate::host::device::Choice;
use crate::host::{self, Machine};
use crate::java::{self, Binding};
use crate::report::{self, markdown::Run};
use crate::results::{self, Settings, Store};
use crate::rows::{self, Kind, Row, WorkloadClass};
use crate::runner::Runner;
use crate::target::{Config, ConfigArgument, PRESETS};
use crate::terminal::{say, warn};
use crate::{self_check, signals, wml, worker};

/// The status of a run that was interrupted, by whatever signal: what shells give for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// FAST'17 at its own size takes days.
const FAST17_SCALE: f64 = 1.0 / 60.0;
/// Bytes of the longest workload.
const WORKLOAD_MAX: u64 = 4 << 20;

/// Does what `args` ask for.
///
/// # Errors
/// There is no result. Rows that ended with an error are part of a result, not an error.
pub fn run(args: &EvalArgs, ui: &Ui) -> Result<ExitCode, EvalError> {
    if args.worker {
        let job = io::read_to_string(io::stdin()).map_err(EvalError::io("standard input"))?;
        say(&format!("{}\n", worker::answer(&job)))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some([a, b]) = args.compare.as_deref() {
        let (before, after) = (results::load(a)?, results::load(b)?);
        say(&report::compare::text(&before, &after))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &args.report {
        let results = with_samples(directory)?;
        return finish(&results, directory);
    }
    if !args.markdown.is_empty() {
        return markdown(&args.markdown, args.out.as_deref());
    }
    if args.self_check {
        return self_check::run(args, ui);
    }
    if args.list {
        for row in select_rows(args)? {
            let title = row.class.title();
            say(&format!("{:10} {:30} {title}\n", row.id, row.name))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut store = match &args.resume {
        Some(directory) => go_on(directory, args.retry_failed)?,
        None => begin(args, ui)?,
    };
    // A run takes long, and says so of its rows only at the end where nobody watches it.
    for told in results::missing(store.rows_left()) {
        warn(&told);
    }
    let stop = signals::catch()?;
    let directory = store.directory().to_owned();
    let whole = {
        let mut runner = match Runner::new(&mut store, ui, Arc::clone(&stop)) {
            Err(_) if stop.load(Ordering::Relaxed) => {
                warn(&format!(
                    "interrupted while the device was set up; go on with --resume {}",
                    directory.display()
                ));
                return Ok(ExitCode::from(INTERRUPTED));
            }
            runner => runner?,
        };
        let costs = runner.engine_cost();
        let whole = runner.run()?;
        keep_costs(&mut store, costs)?;
        whole
    };
    let code = finish(&store.results, &directory)?;
    if whole {
        return Ok(code);
    }
    warn(&format!(
        "interrupted: {} of {} rows begun are kept; go on with --resume {}",
        store.rows_begun(),
        store.results.settings.rows.len(),
        directory.display()
    ));
    Ok(ExitCode::from(INTERRUPTED))
}

/// Results to report on: what was made of samples that are gone is not replaced by nothing.
fn with_samples(directory: &Path) -> Result<results::Results, EvalError> {
    let results = results::load(directory)?;
    if results.samples.is_empty() {
        return Err(EvalError::Usage(format!(
            "{}: there is no whole line in samples.jsonl, so that there is nothing to report on; run it with --resume",
            directory.display()
        )));
    }
    Ok(results)
}

/// One page on standard output, or pages in a directory.
fn markdown(places: &[PathBuf], out: Option<&Path>) -> Result<ExitCode, EvalError> {
    let mut runs = Vec::new();
    for place in places {
        runs.push(Run {
            place: place.display().to_string(),
            link: None,
            results: with_samples(place)?,
        });
    }
    let Some(out) = out else {
        say(&report::markdown::page(&runs))?;
        return Ok(ExitCode::SUCCESS);
    };
    let pages = out.join(report::markdown::REASONS);
    fs::create_dir_all(&pages).map_err(EvalError::io(&pages))?;
    let whole = |path: &Path| fs::canonicalize(path).map_err(EvalError::io(path));
    for (run, place) in runs.iter_mut().zip(places) {
        let link = relative(&whole(out)?, &whole(place)?);
        run.link = Some(link.display().to_string());
    }
    let method = out.join(report::markdown::METHOD).exists();
    let words = places.iter().map(|p| p.display().to_string());
    let command = format!(
        "bickford eval --markdown {} --out {}",
        words.map(|w| quoted(&w)).collect::<Vec<_>>().join(" "),
        quoted(&out.display().to_string())
    );
    for (name, text) in report::markdown::pages(&runs, &command, method) {
        let path = out.join(name);
        fs::write(&path, text).map_err(EvalError::io(&path))?;
        say(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The way from a directory to a place, both whole and without links.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let same = from.components().zip(to.components());
    let same = same.take_while(|(a, b)| a == b).count();
    let up = from.components().skip(same).map(|_| Component::ParentDir);
    up.chain(to.components().skip(same)).collect()
}

fn go_on(directory: &Path, retry_failed: bool) -> Result<Store, EvalError> {
    let mut store = Store::resume(directory)?;
    if retry_failed {
        store.retry_failed();
    }
    Ok(store)
}

fn keep_costs(store: &mut Store, costs: BTreeMap<String, f64>) -> Result<(), EvalError> {
    for (id, nanoseconds) in costs {
        let row = store.results.settings.rows.iter().find(|r| r.id == id);
        let name = row.map_or(id.as_str(), |r| r.name.as_str());
        let told = format!("{name}: the engine");
        let mut notes = store.results.notes.iter();
        if !notes.any(|note| note.starts_with(&told)) {
            store.note(&format!(
                "{told} itself takes {nanoseconds:.0} ns per operation (measured with no file system)."
            ))?;
        }
    }
    Ok(())
}

fn finish(results: &results::Results, directory: &Path) -> Result<ExitCode, EvalError> {
    report::write(results, directory)?;
    // The report is there, even if nobody reads this any more, as after a hangup.
    let page = directory.join(results::HTML);
    let summary = report::terminal::text(results);
    let _ = say(&format!("{summary}\nreport: {}\n", page.display()));
    let failed = results.settings.rows.iter().any(|row| {
        results
            .settings
            .configs
            .iter()
            .any(|config| results.error(&row.id, &config.name).is_some())
    });
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn begin(args: &EvalArgs, ui: &Ui) -> Result<Store, EvalError> {
    if args.rounds == 0 {
        return Err(EvalError::Usage(
            "--rounds: at least one round must be counted".into(),
        ));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let (configs, notes) = configs(args, ui)?;
    let machine = Machine::probe();
    let device = match &args.device {
        Choice::Directory(path) => Choice::Directory(absolute(path)?),
        device => device.clone(),
    };
    let directory = absolute(&args.dir)?;
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        suite: suite_name(args),
        scale: scale(args),
        root: Some(host::is_root()),
        limited: Some(MemoryLimit::probe().is_ok()),
        file_system: device.file_system(&directory),
        device,
        directory,
        rounds: args.rounds,
        deadline_s: args.deadline,
        programs: results::programs(&configs),
        enable_uring: host::enable_uring(),
        configs,
        rows: select_rows(args)?,
        usable_cpus: Some(host::usable_cpus()).filter(|usable| *usable < machine.cpus),
        machine,
        started: now,
        command: repeat(),
    };
    let out = args.out.clone().unwrap_or_else(|| {
        PathBuf::from(format!(
            "bickford-eval-{}-{}",
            settings.suite,
            report::date(now).replace([':', ' '], "-")
        ))
    });
    let mut store = Store::create(&out, settings)?;
    for note in notes {
        store.note(&note)?;
    }
    Ok(store)
}

/// What is asked for is the same for --resume from another directory.
fn absolute(path: &Path) -> Result<PathBuf, EvalError> {
    std::path::absolute(path).map_err(EvalError::io(path))
}

fn suite_name(args: &EvalArgs) -> String {
    if args.workload.is_empty() {
        args.suite.name().to_owned()
    } else {
        "own".to_owned()
    }
}

fn scale(args: &EvalArgs) -> f64 {
    args.scale
        .unwrap_or(if args.suite == Suite::Fast17 && args.workload.is_empty() {
            FAST17_SCALE
        } else {
            1.0
        })
}

/// The command line as the user gave it, quoted for a shell.
fn repeat() -> String {
    let words = std::env::args_os().map(|word| quoted(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

/// For a shell, as it is where it needs no quotes.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        crate::host::process::quoted(word)
    }
}

/// The absolute path of a program that can be run.
fn program(path: &Path) -> Result<PathBuf, EvalError> {
    let path = absolute(path)?;
    let unfit = |reason: String| {
        EvalError::Usage(format!(
            "--bickford {}: {reason}; name the program of bickford",
            path.display()
        ))
    };
    match std::fs::metadata(&path) {
        Err(error) => Err(unfit(error.to_string())),
        Ok(found) if !found.is_file() => Err(unfit("it is no file".into())),
        Ok(found) if found.mode() & 0o111 == 0 => Err(unfit("it is not executable".into())),
        Ok(_) => Ok(path),
    }
}

/// What is compared, and what should be and cannot.
fn configs(args: &EvalArgs, ui: &Ui) -> Result<(Vec<Config>, Vec<String>), EvalError> {
    let mut configs = vec![Config::native()];
    let mut notes = Vec::new();
    let bickford = match &args.bickford {
        // A bare name is looked for in PATH.
        Some(path) if path.components().count() > 1 => &program(path)?,
        Some(name) => name,
        None => &ui.bickford,
    };
    let known = |name: &str| ConfigArgument {
        name: name.to_owned(),
        command: None,
    };
    let mut wanted: Vec<ConfigArgument> = args.config.iter().flat_map(|c| c.0.clone()).collect();
    if wanted.is_empty() {
        wanted.extend(PRESETS.map(known));
        if args.suite == Suite::Sac10 && args.workload.is_empty() {
            match Binding::find(bickford) {
                Ok(_) => wanted.extend(java::CONFIGS.map(|(name, _)| known(name))),
                Err(reason) => notes.push(format!("JavaFuse is not compared: {reason}.")),
            }
        }
    }
    for argument in wanted {
        if argument.name == "native" {
            continue;
        }
        if configs.iter().any(|c| c.name == argument.name) {
            return Err(EvalError::Usage(format!(
                "--config {}: given twice",
                argument.name
            )));
        }
        configs.push(match argument.command {
            Some(command) => Config {
                name: argument.name,
                command: Some(command),
                directory: Some(std::env::current_dir().map_err(EvalError::io("."))?),
            },
            None => known_config(&argument.name, bickford)
                .map_err(|e| EvalError::Usage(format!("--config {}: {e}", argument.name)))?,
        });
    }
    Ok((configs, notes))
}

/// A configuration that needs no command.
fn known_config(name: &str, bickford: &Path) -> Result<Config, String> {
    if java::is_one(name)
        && let Some(config) = Binding::find(bickford)?.config(name)?
    {
        return Ok(config);
    }
    Config::preset(name, bickford)
}

fn select_rows(args: &EvalArgs) -> Result<Vec<Row>, EvalError> {
    let scale = scale(args);
    if !(scale.is_finite() && scale > 0.0) {
        return Err(EvalError::Usage(format!(
            "--scale {scale}: expected a number above 0"
        )));
    }
    let mut rows = if args.workload.is_empty() {
        match args.suite {
            Suite::Quick => rows::quick(scale),
            Suite::Sac10 => rows::sac10(scale),
            Suite::Fast17 => rows::fast17(scale),
        }
    } else {
        own_rows(&args.workload, scale)?
    };
    for id in &args.rows {
        if !rows.iter().any(|r| r.id == *id) {
            return Err(EvalError::Usage(format!(
                "--rows {id}: no such row in this suite; --list shows them"
            )));
        }
    }
    rows.retain(|r| args.rows.is_empty() || args.rows.contains(&r.id));
    Ok(rows)
}

fn workload_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(WORKLOAD_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > WORKLOAD_MAX {
        let message = format!("a workload has at most {WORKLOAD_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Rows of the user's own workloads.
fn own_rows(files: &[PathBuf], scale: f64) -> Result<Vec<Row>, EvalError> {
    let mut rows: Vec<Row> = Vec::new();
    for path in files {
        let text = workload_text(path).map_err(EvalError::io(path))?;
        let workload = wml::scaled(&text, scale).map_err(|source| EvalError::Wml {
            path: path.clone(),
            source,
        })?;
        for note in &workload.notes {
            warn(&format!("{}: {note}", path.display()));
        }
        let name = path
            .file_stem()
            .map_or("workload".into(), |s| s.to_string_lossy().into_owned());
        rows.push(Row {
            id: format!("own{:02}", rows.len() + 1),
            fast17: None,
            figure: None,
            x: None,
            name,
            class: WorkloadClass::Own,
            kind: Kind::Wml { text, scale },
            // The papers' ratio of data to memory.
            memory: workload.bytes() / 15,
        });
    }
    Ok(rows)
}
