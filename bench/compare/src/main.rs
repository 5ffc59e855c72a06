//! Measures Bickford's pass-through file system against its peers and the native one, in turn, and writes
//! raw data, tables of ratios and plots. See README.md.

mod configurations;
mod mounted;
mod report;
mod results;
mod rows;
mod runner;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bickford_eval::host::device::Choice;
use bickford_eval::host::{self, Machine};
use clap::Parser;

use configurations::{Configuration, PEERS, Peer};
use results::{Results, Run};
use rows::{ROWS, Row, Scale};
use runner::{Plan, Runner};

/// Measure Bickford against other FUSE libraries and the native file system, in turn.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Arguments {
    /// Counted rounds; one that is not counted comes before them
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only configurations whose name begins with one of these (native is always there)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
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
}

fn list() {
    println!("rows:");
    for row in ROWS {
        println!("  {:<16} {}", row.id, row.title);
    }
    println!("configurations:");
    let peers: Vec<_> = PEERS.iter().collect();
    for configuration in configurations::all(Path::new("bickford"), &peers) {
        println!(
            "  {:<24} {}",
            configuration.name,
            configuration.command.join(" ")
        );
    }
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
fn versions(bickford: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let home = configurations::home();
    let lock = fs::read_to_string(home.join("Cargo.lock")).unwrap_or_default();
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
    let program = bickford.to_string_lossy();
    found.extend(tool(&program, &["--version"]).map(|v| ("command".to_owned(), v)));
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
    if let Some(odd) = arguments
        .clients
        .iter()
        .find(|n| ![1, 2, 8, 32].contains(*n))
    {
        return Err(format!(
            "--clients {odd}: there are files for 1, 2, 8 and 32"
        ));
    }
    if arguments.rows.is_empty() {
        return Ok(ROWS.iter().collect());
    }
    arguments.rows.iter().map(|id| rows::find(id)).collect()
}

/// A flag that Ctrl-C sets.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| format!("signals: {e}"))?;
    }
    Ok(stop)
}

fn measure(arguments: &Arguments) -> Result<String, String> {
    if !host::is_root() {
        return Err("mounting and CPU clocks of daemons need root: run as root".to_owned());
    }
    let rows = chosen_rows(arguments)?;
    let bickford = configurations::bickford()?;
    let mut left_out = BTreeMap::new();
    let peers = build(arguments, &mut left_out);
    let begins = |c: &Configuration| {
        arguments
            .only
            .iter()
            .any(|only| c.name.starts_with(only.as_str()))
    };
    let configurations: Vec<Configuration> = configurations::all(&bickford, &peers)
        .into_iter()
        .filter(|c| arguments.only.is_empty() || c.command.is_empty() || begins(c))
        .collect();
    let stop = stop_flag()?;
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
        out,
        stop: &stop,
    };
    let mut runner = Runner::new(&plan)?;
    let ended = runner.run();
    left_out.append(&mut runner.left_out);
    drop(runner);
    describe(&plan, left_out, versions(&bickford))?;
    ended?;
    let verdicts = report::write(&Results::read(out)?, out)?;
    if stop.load(Ordering::Relaxed) {
        return Err(format!(
            "interrupted; what was measured is in {}",
            out.display()
        ));
    }
    Ok(format!("{verdicts}\n{}", out.join("table.md").display()))
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
        list();
        return ExitCode::SUCCESS;
    }
    let done = match &arguments.report {
        Some(directory) => {
            Results::read(directory).and_then(|results| report::write(&results, directory))
        }
        None => measure(&arguments),
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
