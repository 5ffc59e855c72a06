//! The guide: each of its Rust snippets is a part of an example, which is compiled, and each of its
//! links and pages is there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Links to files of this repository that are no pages of the guide.
const REPOSITORY: &str = "https://github.com/bickford-fs/bickford/blob/main/";

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src")
}

fn pages() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(source())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let pages: Vec<_> = entries
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    assert!(pages.len() > 4, "{pages:?}");
    pages
}

/// What stands between `open` and `close`, wherever that is.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split(close).next())
}

#[test]
fn snippets_are_parts_of_examples() {
    let mut snippets = 0;
    for (page, text) in pages() {
        for block in text.split("```rust\n").skip(1) {
            let block = block.split("```").next().unwrap().trim();
            let include = block
                .strip_prefix("{{#include ")
                .and_then(|rest| rest.strip_suffix("}}"));
            let (file, anchor) = include
                .and_then(|include| include.split_once(':'))
                .unwrap_or_else(|| {
                    panic!(
                        "{}: a snippet that nothing compiles: {block}",
                        page.display()
                    )
                });
            let example = fs::read_to_string(source().join(file)).unwrap();
            for mark in ["ANCHOR: ", "ANCHOR_END: "] {
                let line = format!("// {mark}{anchor}\n");
                assert_eq!(example.matches(&line).count(), 1, "{file}: {line}");
            }
            snippets += 1;
        }
    }
    assert!(snippets >= 5, "{snippets}");
}

/// What a link to a heading ends with.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.replace(' ', "-");
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    for (page, text) in pages() {
        for link in between(&text, "](", ')') {
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let file = match file.strip_prefix(REPOSITORY) {
                Some(file) => source().join("../../..").join(file),
                None if file.starts_with("https://") => continue,
                None => source().join(file),
            };
            let target = fs::read_to_string(file);
            let target =
                target.unwrap_or_else(|error| panic!("{}: {link}: {error}", page.display()));
            let mut headings = target.lines().filter(|line| line.starts_with('#'));
            let heading = headings.any(|line| anchor(line) == part);
            assert!(
                part.is_empty() || heading,
                "{}: {link}: no such heading",
                page.display()
            );
        }
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(source().join("SUMMARY.md")).unwrap();
    for (page, _) in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name}"
        );
    }
}
