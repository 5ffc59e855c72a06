//! Which programs ran, so that a run is not gone on with by others, and which are missing.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::rows::{Kind, Row};
use crate::target::Config;

/// This program and those that the commands of `configs` begin with, by their files. A command that begins
/// with anything else than a program, as a variable or a parenthesis, has none.
#[must_use]
pub fn programs(configs: &[Config]) -> BTreeMap<PathBuf, String> {
    let commands = configs.iter().filter_map(|c| c.command.as_deref());
    let own = std::env::current_exe().ok();
    let files: HashSet<PathBuf> = commands.filter_map(program).chain(own).collect();
    let marked = files
        .into_iter()
        .filter_map(|path| fingerprint(&path).ok().map(|sum| (path, sum)));
    marked.collect()
}

/// A file without links, if there is one.
fn file(path: PathBuf) -> Option<PathBuf> {
    fs::canonicalize(path).ok().filter(|path| path.is_file())
}

/// The file of the program that a command of the shell begins with.
fn program(command: &str) -> Option<PathBuf> {
    let command = command.trim_start();
    let command = command
        .strip_prefix("exec ")
        .unwrap_or(command)
        .trim_start();
    let word = match command.strip_prefix('\'') {
        Some(rest) => rest.split('\'').next()?,
        None => command.split_whitespace().next()?,
    };
    if word.contains('/') {
        return file(PathBuf::from(word));
    }
    in_path(word)
}

/// A file of that name in a directory of PATH.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|directory| file(directory.join(name)))
}

/// A sentence for each program that rows run and that is not there, with what it costs.
#[must_use]
pub fn missing<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    without(rows, |program| in_path(program).is_some())
}

fn without<'a>(
    rows: impl Iterator<Item = &'a Row>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut wanting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows {
        let program = match row.kind {
            Kind::Fio(_) => "fio",
            Kind::Postmark { .. } => "postmark",
            _ => continue,
        };
        wanting.entry(program).or_default().push(&row.id);
    }
    wanting.retain(|program, _| !is_there(program));
    let told = wanting.into_iter().map(|(program, ids)| {
        let rows = match ids.as_slice() {
            [first, _, .., last] => format!("{} rows ({first} to {last})", ids.len()),
            ids => ids.join(" and "),
        };
        format!("{program} is not installed: {rows} will have no result; install the package `{program}`")
    });
    told.collect()
}

/// Size and FNV-1a sum of a file: enough to know a program that was built again, not one that was forged.
///
/// # Errors
/// It cannot be read.
pub fn fingerprint(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    let (mut size, mut sum) = (0_u64, 0xcbf2_9ce4_8422_2325_u64);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(format!("{size} bytes, fnv1a {sum:016x}"));
        }
        size += read as u64;
        for byte in buffer.iter().take(read) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_missing_are_told_with_their_rows() {
        let rows = crate::rows::sac10(1.0);
        assert_eq!(
            without(rows.iter(), |_| false),
            ["postmark is not installed: s4 will have no result; install the package `postmark`"]
        );
        let told = without(crate::rows::fast17(1.0).iter(), |program| program != "fio");
        assert_eq!(
            told,
            [
                "fio is not installed: 36 rows (f01 to f36) will have no result; install the package `fio`"
            ]
        );
        assert!(without(rows.iter(), |program| program == "postmark").is_empty());
        assert!(in_path("sh").is_some() && in_path("no such program").is_none());
    }

    #[test]
    fn a_program_that_was_built_again_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a program");
        fs::write(&path, "one").expect("written");
        let config = |command: String| Config {
            name: "x".into(),
            command: Some(command),
            directory: None,
        };
        let commands = [
            config(format!("exec '{}' mount {{src}} {{mnt}}", path.display())),
            config("cat {src} {mnt}".into()),
            config("(sleep 1; x) {mnt}".into()),
        ];
        let found = programs(&commands);
        let path = fs::canonicalize(&path).expect("there");
        assert_eq!(found.len(), 3, "the program, cat and this one: {found:?}");
        let then = found.get(&path).expect("by its own path");
        assert_eq!(*then, fingerprint(&path).expect("read"));
        fs::write(&path, "two").expect("written");
        assert_ne!(*then, fingerprint(&path).expect("read"));
        assert_eq!(
            fingerprint(&path).expect("read"),
            "3 bytes, fnv1a 5714d319447c9709"
        );
    }
}
