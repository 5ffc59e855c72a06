//! The rules of `CONTRIBUTING.md` that a machine can hold.

mod manifest;
mod reach;
mod readme;
mod runs;
mod source;
mod text;
mod toolchain;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// One thing to mend, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the top of the work tree.
    pub(crate) path: PathBuf,
    /// First line is 1; 0 speaks of the whole file.
    pub(crate) line: usize,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl Finding {
    fn new(path: impl Into<PathBuf>, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.line {
            0 => write!(formatter, "{path}: {}", self.message),
            line => write!(formatter, "{path}:{line}: {}", self.message),
        }
    }
}

/// Checks every file of the work tree that git tracks or would track.
pub(crate) fn check(top: &Path) -> Result<Vec<Finding>, String> {
    let files = read_files(top)?;
    let mut findings = check_files(&files);
    toolchain::check(top, &files, &mut findings)?;
    Ok(findings)
}

/// Path from the top of the work tree, to contents. Files that are not UTF-8 are not in it.
type Files = BTreeMap<PathBuf, String>;

fn check_files(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, contents) in files {
        text::check(path, contents, &mut findings);
        if has_extension(path, "rs") {
            source::check(path, contents, &mut findings);
        }
    }
    manifest::check(files, &mut findings);
    reach::check(files, &mut findings);
    readme::check(files, &mut findings);
    runs::check(files, &mut findings);
    findings.sort();
    findings
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// A path below the top of the tree without `.` and `..`: paths are compared by their text.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if normal.pop() => {}
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// What a program prints when it is run in `directory`.
pub(crate) fn output_of(
    program: impl AsRef<OsStr>,
    directory: &Path,
    arguments: &[&str],
) -> Result<Vec<u8>, String> {
    let called = format!("{} {}", program.as_ref().display(), arguments.join(" "));
    let output = Command::new(&program)
        .current_dir(directory)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run `{called}`: {error}; install it"))?;
    if !output.status.success() {
        return Err(format!(
            "`{called}` in {}: {}",
            directory.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(output.stdout)
}

fn read_files(top: &Path) -> Result<Files, String> {
    let arguments = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = output_of("git", top, &arguments)?;
    let mut files = Files::new();
    for name in output.split(|byte| *byte == 0) {
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        // A file deleted but not yet staged is still listed: it is no file of the tree any more.
        if let Ok(contents) = fs::read_to_string(top.join(name)) {
            files.insert(PathBuf::from(name), contents);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_one_mistake_of_each_kind_names_each() {
        let top = tempfile::tempdir().expect("temporary directory");
        let write = |name: &str, contents: &str| {
            let path = top.path().join(name);
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            fs::write(path, contents).expect("file");
        };
        write("Cargo.toml", "[workspace]\n");
        write("c/Cargo.toml", "[package]\nname = \"c\"\npublish = false\n");
        write("c/src/lib.rs", "fn f() { unsafe { g() } }\n");
        write("c/src/dead.rs", "fn f() {} \n");
        write("README.md", "```\nmake nothing\n```\n");
        let git = Command::new("git")
            .args(["init", "--quiet"])
            .current_dir(top.path())
            .status()
            .expect("git");
        assert!(git.success());
        let findings = check_files(&read_files(top.path()).expect("files"));
        let seen: Vec<String> = findings.iter().map(Finding::to_string).collect();
        for part in [
            "README.md:2: `make nothing`",
            "c/Cargo.toml: no `[lints] workspace = true`",
            "c/src/dead.rs: no target and no `mod` leads here",
            "c/src/dead.rs:1: blanks at the end of the line",
            "c/src/lib.rs:1: `unsafe` outside",
        ] {
            assert!(
                seen.iter().any(|line| line.starts_with(part)),
                "{part} is not in {seen:#?}"
            );
        }
        assert_eq!(seen.len(), 5, "{seen:#?}");
    }
}
