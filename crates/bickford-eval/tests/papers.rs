//! The repository's pages on the papers are what is made of the raw data that they name.

// Helpers of tests fail by panicking, as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::path::Path;

use bickford_eval::report::markdown::{REASONS, Run, SUMMARY, pages};
use bickford_eval::results::load;

/// Code hosts show no larger ones as what they are.
const SHOWN: usize = 300_000;

#[test]
fn the_pages_on_the_papers_are_what_their_command_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = root.join("docs");
    let Ok(kept) = fs::read_to_string(docs.join(SUMMARY)) else {
        // Where the output of tests that pass is captured, too.
        let _ = writeln!(std::io::stderr(), "skipped: not in the repository");
        return;
    };
    let mut lines = kept.lines();
    let command = lines.find(|l| l.starts_with("bickford eval --markdown "));
    let command = command.expect("the page names its command");
    let places = command.strip_prefix("bickford eval --markdown ").unwrap();
    let places = places.strip_suffix(" --out docs").expect("for docs");
    let runs: Vec<Run> = places
        .split(' ')
        .map(|place| Run {
            place: place.to_owned(),
            link: Some(format!("../{place}")),
            results: load(&root.join(place)).unwrap(),
        })
        .collect();
    let made = pages(&runs, command, true);
    for (name, text) in &made {
        let kept = fs::read_to_string(docs.join(name)).unwrap();
        assert!(
            kept == *text,
            "docs/{name} is not what this makes: {command}"
        );
        assert!(text.len() < SHOWN, "docs/{name}: {} bytes", text.len());
    }
    let beside = fs::read_dir(docs.join(REASONS)).unwrap().count();
    assert_eq!(beside, made.len() - 1, "pages in docs/{REASONS}");
}
