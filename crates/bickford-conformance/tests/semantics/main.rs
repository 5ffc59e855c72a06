//! What pjdfstest does not ask: each check does something to a directory and says what it saw, and
//! the mount must say what the native directory says.

mod files;
mod locks;
mod names;
mod owners;
mod powers;
mod sharing;

use std::fs;
use std::path::Path;

use bickford_conformance::{
    BODY_DEADLINE, Combination, Mount, Scratch, Watchdog, maps_shared, require_root, say,
    tells_birth, tells_holes,
};

/// What a check saw: a line for each thing.
type Seen = Vec<String>;

/// A name and what to do in a fresh directory.
type Check = (&'static str, fn(&Path) -> Seen);

/// A line that shows an expression and its value.
macro_rules! saw {
    ($seen:expr, $($value:expr),+ $(,)?) => {
        $($seen.push(format!("{} = {:?}", stringify!($value), $value));)+
    };
}
pub(crate) use saw;

fn run_checks(top: &Path, checks: &[Check]) -> Vec<Seen> {
    let run = |(name, check): &Check| {
        let directory = top.join(name);
        fs::create_dir(&directory).expect("directory");
        check(&directory)
    };
    checks.iter().map(run).collect()
}

fn compare(test: &str, checks: &[Check]) {
    require_root();
    let scratch = Scratch::new(test);
    let watchdog = Watchdog::start(&format!("{test} on the native directory"), BODY_DEADLINE);
    let native = run_checks(&scratch.directory("native"), checks);
    drop(watchdog);
    for combination in Combination::selected() {
        eprintln!("== {test} on {combination}");
        let lower = scratch.directory(&combination.to_string());
        let mount = Mount::over(&lower, &combination).must_start();
        let maps = maps_shared(mount.path());
        let holes = tells_holes();
        let births = tells_birth();
        let can = |name: &str| {
            (maps || !sharing::MAPPING.contains(&name))
                && (holes || !files::HOLES.contains(&name))
                && (births || name != owners::BIRTH)
        };
        if !holes {
            say(format_args!(
                "left out: where files have holes; Linux 6.16 is needed"
            ));
        }
        if !births {
            say(format_args!(
                "left out: when files were born; Linux 6.6 is needed"
            ));
        }
        let (checks, native): (Vec<Check>, Vec<&Seen>) = checks
            .iter()
            .zip(&native)
            .filter(|((name, _), _)| can(name))
            .unzip();
        let mounted = run_checks(mount.path(), &checks);
        let mut different = Vec::new();
        for (((name, _), native), mounted) in checks.iter().zip(native).zip(&mounted) {
            for (line, other) in native.iter().zip(mounted) {
                if line != other {
                    different.push(format!("{name}: native {line}, mount {other}"));
                }
            }
            if native.len() != mounted.len() {
                different.push(format!(
                    "{name}: {} lines, not {}",
                    mounted.len(),
                    native.len()
                ));
            }
        }
        assert!(different.is_empty(), "{combination}: {different:#?}");
        mount.finish();
    }
}

#[test]
fn files_are_written_cut_and_searched_alike() {
    compare("files", files::CHECKS);
}

#[test]
fn names_are_made_changed_and_listed_alike() {
    compare("names", names::CHECKS);
}

#[test]
fn owners_modes_and_attributes_are_kept_alike() {
    compare("owners", owners::CHECKS);
}

#[test]
fn capabilities_count_alike() {
    compare("powers", powers::CHECKS);
}

#[test]
fn what_several_processes_do_with_a_file_is_alike() {
    compare("sharing", sharing::CHECKS);
}

#[test]
fn locks_of_several_processes_are_alike() {
    compare("locks", locks::CHECKS);
}
