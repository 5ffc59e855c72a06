//! Every kept measurement is in the table of `benchsuite/runs`, and every one that is quoted is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Files, Finding, has_extension};

const RUNS: &str = "benchsuite/runs";

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    let index = Path::new(RUNS).join("README.md");
    let table = files.get(&index).map_or("", String::as_str);
    let kept: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.strip_prefix(RUNS).ok())
        .filter(|path| path.components().count() > 1)
        .filter_map(|path| path.iter().next()?.to_str())
        .collect();
    for name in &kept {
        if !table.contains(&format!("`{name}`")) {
            let message = format!("{name} is missing in the table; add it, or remove the folder");
            findings.push(Finding::new(&index, 0, message));
        }
    }
    for (path, contents) in files {
        if !has_extension(path, "md") || path.starts_with(RUNS) {
            continue;
        }
        for (name, line) in quoted(contents) {
            if !kept.contains(name) {
                let message = format!("{RUNS}/{name} is not kept");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
}

/// The dated folders that a text names, and the line where it does so first.
fn quoted(contents: &str) -> BTreeMap<&str, usize> {
    let mut names = BTreeMap::new();
    for (index, line) in contents.lines().enumerate() {
        for rest in line.split("benchsuite/runs/").skip(1) {
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "-._".contains(c)))
                .unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches('.');
            if name.starts_with(|c: char| c.is_ascii_digit()) {
                names.entry(name).or_insert(index + 1);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter()
            .map(|(path, contents)| (path.into(), (*contents).to_owned()))
            .collect()
    }

    fn messages(all: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Vec::new();
        check(&files(all), &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn what_is_kept_and_quoted_and_listed_is_in_order() {
        let found = messages(&[
            ("benchsuite/runs/README.md", "| `2026-01-02-vm-a` | what |"),
            ("benchsuite/runs/2026-01-02-vm-a/run.json", "{}"),
            (
                "docs/a.md",
                "see benchsuite/runs/2026-01-02-vm-a. And benchsuite/runs/DATE-NAME",
            ),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_record_outside_the_table_and_one_that_is_gone_are_found() {
        let found = messages(&[
            ("benchsuite/runs/README.md", "| `2026-01-02-vm-ab` | what |"),
            ("benchsuite/runs/2026-01-02-vm-a/run.json", "{}"),
            ("docs/a.md", "\n`benchsuite/runs/2026-01-03-vm-b`"),
        ]);
        assert_eq!(
            found,
            [
                "benchsuite/runs/README.md: 2026-01-02-vm-a is missing in the table; add it, or remove the folder",
                "docs/a.md:2: benchsuite/runs/2026-01-03-vm-b is not kept",
            ]
        );
    }
}
