//! Measures Bickford's pass-through file system against its peers and the native one, in turn, and writes
//! raw data, tables of ratios and plots. See README.md.

mod configurations;
mod mounted;
mod report;
mod results;
mod rows;
mod runner;
mod sys;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bickford_eval::host::device::Choice;
use bickford_eval::host::{self, Machine};
use bickford_program::signals::stop_on_signals;
use clap::Parser;

use configurations::{Configuration, Guest, PEERS, Peer, Side};
use results::{Results, Run};
use rows::{CLIENTS, ROWS, Row, Scale};
use runner::{Plan, Runner};

/// Measure Bickford against other FUSE libraries and the native file system, in turn.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Arguments {
    /// Counted rounds; one that is not counted comes before them
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only configurations whose name begins with one of these (native and those of --with are always
    /// there)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Measure NAME too, which the shell's COMMAND mounts, with {src} and {mnt} in it, staying in the
    /// foreground; may be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    with: Vec<Guest>,
    /// Only these rows
    #[arg(long, value_delimiter = ',', value_name = "ROW")]
    rows: Vec<String>,
    /// Only these numbers of clients: 1, 2, 8, 32
    #[arg(long, value_delimiter = ',', value_name = "N")]
    clients: Vec<usize>,
    /// A tenth of the work, to see whether everything works
    #[arg(long)]
    quick: bool,
    /// Where the lower ext4 lives: a loop device in memory (ram) or on the disk of TMPDIR (disk), or a
    /// directory as it is
    #[arg(long, default_value = "ram")]
    device: Choice,
    /// Seconds that one row of one configuration may take for one number of clients
    #[arg(long, default_value_t = 60)]
    deadline: u64,
    /// Seconds of mixed load on each mount before it is measured, for file systems that are slow until
    /// they have run for a while, such as those in a Java virtual machine
    #[arg(long, default_value_t = 0.0, value_parser = seconds, value_name = "SECONDS")]
    warm_up: f64,
    /// Where the results go; `benchsuite/runs/DATE-NAME` for those that are to be kept
    #[arg(long, default_value = "target/compare-results", value_name = "DIR")]
    out: PathBuf,
    /// Take the peers as they were built before
    #[arg(long)]
    no_build: bool,
    /// Show rows and configurations
    #[arg(long)]
    list: bool,
    /// Make the tables and plots of an earlier run again
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// With --report: print how many times as long as NAME the others take, instead; --rows, --clients
    /// and --only choose
    #[arg(long, value_name = "NAME", requires = "report")]
    against: Option<String>,
}

fn list(guests: &[Configuration]) {
    println!("rows:");
    for row in ROWS {
        println!("  {:<16} {}", row.id, row.title);
    }
    println!("configurations:");
    let peers: Vec<_> = PEERS.iter().collect();
    let all = configurations::all(Path::new("bickford"), &peers);
    for configuration in all.iter().chain(guests) {
        println!(
            "  {:<24} {}",
            configuration.name,
            configuration.command.join(" ")
        );
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|e| format!("{e}"))?;
    match (0.0..=600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("is not between 0 and 600".to_owned()),
    }
}

/// The ratios to one configuration, from what a run left in `directory`.
fn against(arguments: &Arguments, directory: &Path, name: &str) -> Result<String, String> {
    let rows = chosen_rows(arguments)?;
    let results = Results::read(directory)?;
    let chosen = report::Chosen {
        rows: rows.iter().map(|row| row.id).collect(),
        clients: &arguments.clients,
        only: &arguments.only,
    };
    report::against(&results, name, &chosen)
}

/// Whether `--only` lets this name, or one that begins with it, take part.
fn wanted(arguments: &Arguments, name: &str) -> bool {
    let begins = |only: &String| name.starts_with(only.as_str()) || only.starts_with(name);
    arguments.only.is_empty() || arguments.only.iter().any(begins)
}

fn build(arguments: &Arguments, left_out: &mut BTreeMap<String, String>) -> Vec<&'static Peer> {
    let mut built = Vec::new();
    for peer in PEERS.iter().filter(|peer| wanted(arguments, peer.name)) {
        let done = if arguments.no_build {
            Ok(())
        } else {
            eprintln!("building {}", peer.name);
            peer.build()
        };
        match done {
            Ok(()) if peer.program().exists() => built.push(peer),
            Ok(()) => {
                left_out.insert(peer.name.to_owned(), "is not built".to_owned());
            }
            Err(why) => {
                eprintln!(
                    "compare: {} does not build and is left out: {why}",
                    peer.name
                );
                left_out.insert(peer.name.to_owned(), format!("does not build: {why}"));
            }
        }
    }
    built
}

fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// What was compared with what, from the lock files and the tools that know.
fn versions(bickford: Option<&Path>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let home = configurations::home();
    let lock = fs::read_to_string(home.join("peers/Cargo.lock")).unwrap_or_default();
    for name in ["fuser", "fuse3", "fuse-backend-rs"] {
        let mut lines = lock
            .lines()
            .skip_while(|line| *line != format!("name = \"{name}\""));
        let version = lines
            .nth(1)
            .and_then(|line| line.strip_prefix("version = "));
        found.extend(version.map(|v| (name.to_owned(), v.trim_matches('"').to_owned())));
    }
    let module = fs::read_to_string(home.join("peers/go/go.mod")).unwrap_or_default();
    let words: Vec<&str> = module.split_whitespace().collect();
    let at = words.iter().position(|word| word.ends_with("go-fuse/v2"));
    let version = at.and_then(|at| words.get(at + 1));
    found.extend(version.map(|v| ("go-fuse".to_owned(), (*v).to_owned())));
    found.extend(tool("pkg-config", &["--modversion", "fuse3"]).map(|v| ("libfuse".to_owned(), v)));
    let version = bickford.and_then(|program| tool(&program.to_string_lossy(), &["--version"]));
    found.extend(version.map(|v| ("command".to_owned(), v)));
    let top = home.join("../..");
    let commit = [
        "-C",
        &top.to_string_lossy(),
        "describe",
        "--always",
        "--dirty",
    ];
    found.extend(tool("git", &commit).map(|v| ("commit".to_owned(), v)));
    found
}

fn chosen_rows(arguments: &Arguments) -> Result<Vec<&'static Row>, String> {
    if let Some(odd) = arguments.clients.iter().find(|n| !CLIENTS.contains(n)) {
        return Err(format!(
            "--clients {odd}: there are files for each of {CLIENTS:?}"
        ));
    }
    if arguments.rows.is_empty() {
        return Ok(ROWS.iter().collect());
    }
    arguments.rows.iter().map(|id| rows::find(id)).collect()
}

/// Who takes part, and the command of this tree. Where none of ours does, the command may be missing.
fn chosen(
    arguments: &Arguments,
    guests: Vec<Configuration>,
    left_out: &mut BTreeMap<String, String>,
) -> Result<(Vec<Configuration>, Option<PathBuf>), String> {
    let bickford = configurations::bickford();
    let program = bickford.as_deref().unwrap_or(Path::new("bickford"));
    let begins = |c: &Configuration| {
        let only = &arguments.only;
        only.is_empty() || only.iter().any(|only| c.name.starts_with(only.as_str()))
    };
    let ours_wanted = configurations::all(program, &[])
        .iter()
        .any(|c| c.side == Side::Ours && begins(c));
    if let (true, Err(why)) = (ours_wanted, &bickford) {
        return Err(why.clone());
    }
    let peers = build(arguments, left_out);
    let mut found = configurations::all(program, &peers);
    found.retain(|c| c.side == Side::Native || begins(c));
    let mirror = configurations::mirror(program);
    if !mirror.exists() {
        for configuration in found.extract_if(.., |c| c.name == configurations::OVER_PATHS) {
            let why = format!("there is no {}; `make compare` builds it", mirror.display());
            eprintln!("compare: {} is left out: {why}", configuration.name);
            left_out.insert(configuration.name, why);
        }
    }
    found.extend(guests);
    Ok((found, bickford.ok()))
}

fn measure(arguments: &Arguments) -> Result<String, String> {
    if !host::is_root() {
        return Err("mounting and CPU clocks of daemons need root: run as root".to_owned());
    }
    if host::enable_uring().as_deref() != Some("Y") {
        eprintln!(
            "compare: FUSE over io_uring is off: all use /dev/fuse; as root: \
             echo Y > /sys/module/fuse/parameters/enable_uring"
        );
    }
    let rows = chosen_rows(arguments)?;
    let guests = configurations::guests(&arguments.with)?;
    let mut left_out = BTreeMap::new();
    let (configurations, bickford) = chosen(arguments, guests, &mut left_out)?;
    let stop = stop_on_signals().map_err(|e| e.to_string())?;
    let out = &arguments.out;
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let plan = Plan {
        rows,
        configurations: &configurations,
        clients: arguments.clients.clone(),
        rounds: arguments.rounds,
        scale: if arguments.quick {
            Scale::QUICK
        } else {
            Scale::FULL
        },
        device: arguments.device.clone(),
        deadline: Duration::from_secs(arguments.deadline),
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        out,
        stop: &stop,
    };
    let mut runner = Runner::new(&plan)?;
    let ended = runner.run();
    left_out.append(&mut runner.left_out);
    drop(runner);
    describe(&plan, left_out, versions(bickford.as_deref()))?;
    ended?;
    let verdicts = report::write(&Results::read(out)?, out)?;
    if stop.load(Ordering::Relaxed) {
        return Err(format!(
            "interrupted; what was measured is in {}",
            out.display()
        ));
    }
    let table = out.join("table.md");
    Ok(format!("{verdicts}\n{}", table.display())
        .trim_start()
        .to_owned())
}

/// Writes run.json.
fn describe(
    plan: &Plan<'_>,
    left_out: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
) -> Result<(), String> {
    let run = Run {
        command: std::env::args().collect(),
        machine: Machine::probe(),
        device: plan.device.to_string(),
        enable_uring: host::enable_uring(),
        rounds: plan.rounds,
        scale: plan.scale,
        versions,
        left_out,
        configurations: plan.configurations.to_vec(),
    };
    let text = serde_json::to_string_pretty(&run).map_err(|e| e.to_string())?;
    fs::write(plan.out.join("run.json"), text).map_err(|e| format!("run.json: {e}"))
}

fn main() -> ExitCode {
    // A cell runs in a process of its own: this program again.
    let words: Vec<String> = std::env::args().collect();
    if let [_, first, rest @ ..] = words.as_slice()
        && first == "client"
    {
        return finish(runner::client(rest).map(|()| String::new()));
    }
    let arguments = Arguments::parse();
    if arguments.list {
        return finish(configurations::guests(&arguments.with).map(|guests| {
            list(&guests);
            String::new()
        }));
    }
    let done = match (&arguments.report, &arguments.against) {
        (Some(directory), Some(name)) => against(&arguments, directory, name),
        (Some(directory), None) => {
            Results::read(directory).and_then(|results| report::write(&results, directory))
        }
        (None, _) => measure(&arguments),
    };
    finish(done)
}

fn finish(done: Result<String, String>) -> ExitCode {
    match done {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("compare: {message}");
            ExitCode::FAILURE
        }
    }
}
