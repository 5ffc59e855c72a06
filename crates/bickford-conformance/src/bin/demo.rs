//! `make demo`: a real tree mounted through StackFS, used, compared with the native directory, and
//! unmounted.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bickford_conformance::{Combination, Mount, Preset, Scratch, same_tree};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bounds of the tree, so that the demonstration ends in minutes.
const TREE_FILES: usize = 2000;
const TREE_BYTES: u64 = 32 << 20;

/// Files that one round creates and deletes.
const CREATED_FILES: usize = 1000;

/// Counted rounds; one more goes before them and is discarded.
const ROUNDS: usize = 3;

const DEADLINE: Duration = Duration::from_secs(1200);

fn main() -> Result<()> {
    let interrupted = Interrupted::watch()?;
    let scratch = Scratch::new("demo");
    let tree = scratch.directory("tree");
    say("1. A real tree");
    let size = plant(&tree)?;
    println!(
        "   {} files, {:.1} MB, copied from {}",
        size.files,
        size.bytes as f64 / 1e6,
        size.origin.display()
    );
    say("2. Mounted through StackFS");
    let presets = [Preset::Base, Preset::Opt, Preset::Fast];
    let mut places = vec![Place::native(&scratch, &tree)?];
    for preset in presets {
        interrupted.check()?;
        places.push(Place::mounted(&scratch, &tree, preset)?);
    }
    say("3. Used");
    for place in &places {
        interrupted.check()?;
        place.show_use(&tree)?;
    }
    say("4. Compared with the native directory");
    let table = compare(&places, &interrupted)?;
    print_table(&places, &table);
    say("5. Unmounted");
    for place in places {
        if let Some(mount) = place.mount {
            println!("   $ bickford unmount {}", mount.path().display());
            mount.finish();
        }
    }
    println!("   nothing is left mounted; the lower directories hold all that was written");
    Ok(())
}

/// Whether Ctrl-C or its like has come: what is mounted and lies about is then taken away before the end.
struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // A second one ends it at once.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(())
    }
}

fn say(heading: &str) {
    println!("\n{heading}");
}

/// What the tree was made of.
struct Size {
    files: usize,
    bytes: u64,
    origin: PathBuf,
}

/// Copies sources into `tree`: those of Cargo's registry, or else the ones of this project.
fn plant(tree: &Path) -> Result<Size> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let registry = cargo_home.or(home).map(|home| home.join("registry/src"));
    let origin = match registry {
        Some(registry) if registry.is_dir() => registry,
        _ => project,
    };
    let mut size = Size {
        files: 0,
        bytes: 0,
        origin: origin.clone(),
    };
    copy_sources(&origin, tree, &mut size)?;
    Ok(size)
}

/// Copies regular files in the order of their names, until a bound is reached.
fn copy_sources(from: &Path, to: &Path, size: &mut Size) -> Result<()> {
    let mut entries = fs::read_dir(from)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if size.files >= TREE_FILES || size.bytes >= TREE_BYTES {
            return Ok(());
        }
        let name = entry.file_name();
        let kind = entry.file_type()?;
        let target = to.join(&name);
        if kind.is_dir() && name != "target" && name != ".git" {
            fs::create_dir(&target)?;
            copy_sources(&entry.path(), &target, size)?;
        } else if kind.is_file() {
            size.bytes += fs::copy(entry.path(), target)?;
            size.files += 1;
        }
    }
    Ok(())
}

/// A directory to compare: the native one, or a mount.
struct Place {
    name: &'static str,
    directory: PathBuf,
    lower: PathBuf,
    mount: Option<Mount>,
}

impl Place {
    fn native(scratch: &Scratch, tree: &Path) -> Result<Self> {
        let lower = scratch.directory("native");
        run(Command::new("cp").arg("-a").arg(tree).arg(&lower))?;
        Ok(Self {
            name: "native",
            directory: lower.clone(),
            lower,
            mount: None,
        })
    }

    fn mounted(scratch: &Scratch, tree: &Path, preset: Preset) -> Result<Self> {
        let name = preset.name();
        let lower = scratch.directory(name);
        run(Command::new("cp").arg("-a").arg(tree).arg(&lower))?;
        let combination = Combination::preset(preset);
        let mount = Mount::over(&lower, &combination)
            .deadline(DEADLINE)
            .start()?;
        println!(
            "   $ bickford mount --preset={name} {} {}\n   {}",
            lower.display(),
            mount.path().display(),
            mount.start_line().line()
        );
        Ok(Self {
            name,
            directory: mount.path().to_owned(),
            lower,
            mount: Some(mount),
        })
    }

    /// What is seen and written in the mount is what lies below.
    fn show_use(&self, tree: &Path) -> Result<()> {
        same_tree(tree, &self.directory.join("tree"))?;
        let note = self.directory.join("note");
        fs::write(&note, "written through the mount\n")?;
        let below = fs::read_to_string(self.lower.join("note"))?;
        fs::remove_file(&note)?;
        println!(
            "   {}: the whole tree is the same bit by bit; \"{}\" was read below",
            self.name,
            below.trim_end()
        );
        Ok(())
    }
}

/// A piece of work, the same in every place and round. A round takes fresh names: ext4 is slow for
/// minutes where much was deleted.
struct Work {
    name: &'static str,
    run: fn(&Path, usize) -> Result<()>,
}

const WORKS: [Work; 4] = [
    Work {
        name: "copy (cp -a)",
        run: |directory, round| {
            let mut command = Command::new("cp");
            run(command.arg("-a").args([
                directory.join("tree"),
                directory.join(format!("copy-{round}")),
            ]))
        },
    },
    Work {
        name: "walk (find -printf %s)",
        run: |directory, _| {
            run(Command::new("find")
                .arg(directory.join("tree"))
                .args(["-printf", "%s\n"]))
        },
    },
    Work {
        name: "search (grep -r)",
        run: |directory, _| {
            let mut command = Command::new("grep");
            run(command
                .args(["-r", "-c", "fn main"])
                .arg(directory.join("tree")))
        },
    },
    Work {
        name: "create 1000, delete 1000",
        run: |directory, round| {
            let folder = directory.join(format!("created-{round}"));
            fs::create_dir(&folder)?;
            let name = |index: usize| folder.join(index.to_string());
            for index in 0..CREATED_FILES {
                fs::write(name(index), [7; 1024])?;
            }
            for index in 0..CREATED_FILES {
                fs::remove_file(name(index))?;
            }
            Ok(fs::remove_dir(&folder)?)
        },
    },
];

/// Seconds, by work, place and round.
type Table = Vec<Vec<Vec<f64>>>;

/// Runs every work in every place in turn, so that what disturbs the machine disturbs all alike.
fn compare(places: &[Place], interrupted: &Interrupted) -> Result<Table> {
    let mut table: Table = vec![vec![Vec::new(); places.len()]; WORKS.len()];
    for round in 0..=ROUNDS {
        for (work, row) in WORKS.iter().zip(&mut table) {
            for offset in 0..places.len() {
                // Another place comes first in each round.
                interrupted.check()?;
                let turn = (round + offset) % places.len();
                let (Some(place), Some(cell)) = (places.get(turn), row.get_mut(turn)) else {
                    continue;
                };
                // What was written before must not be paid for by who comes next.
                run(Command::new("sync").arg("-f").arg(&place.lower))?;
                let start = Instant::now();
                (work.run)(&place.directory, round)?;
                let seconds = start.elapsed().as_secs_f64();
                if round > 0 {
                    cell.push(seconds);
                }
            }
        }
    }
    Ok(table)
}

fn print_table(places: &[Place], table: &Table) {
    print!("   {:<26}{:>10}", "", "native");
    for place in places.iter().skip(1) {
        print!("{:>22}", place.name);
    }
    println!();
    for (work, row) in WORKS.iter().zip(table) {
        let Some((native, mounted)) = row.split_first() else {
            continue;
        };
        print!("   {:<26}{:>8.3} s", work.name, spread(native).1);
        for seconds in mounted {
            // Each round is its own pair.
            let ratios: Vec<f64> = seconds
                .iter()
                .zip(native)
                .map(|(one, other)| one / other)
                .collect();
            let (low, median, high) = spread(&ratios);
            print!("{:>22}", format!("{median:.1}x ({low:.1}-{high:.1})"));
        }
        println!();
    }
    println!(
        "   times the native directory takes: median (lowest-highest) of {ROUNDS} rounds in turn, \
         after a discarded one"
    );
}

/// Lowest, median and highest of at least one number.
fn spread(numbers: &[f64]) -> (f64, f64, f64) {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    (
        at(0),
        at(sorted.len() / 2),
        at(sorted.len().saturating_sub(1)),
    )
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {status}").into())
}
