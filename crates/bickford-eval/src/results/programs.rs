//! Which programs ran, so that a run is not gone on with by others.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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
    let file = |path: PathBuf| fs::canonicalize(path).ok().filter(|path| path.is_file());
    if word.contains('/') {
        return file(PathBuf::from(word));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|directory| file(directory.join(word)))
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
