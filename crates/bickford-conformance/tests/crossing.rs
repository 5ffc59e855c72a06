//! What processes know of their own files is what they are told, whatever others ask about these at the same time.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use bickford_conformance::{BODY_DEADLINE, full_length, maps_shared, on_every_combination};

const OWNERS: u32 = 4;
const ASKERS: u32 = 2;

fn start(words: &[&str], directory: &Path) -> Child {
    let (first, rest) = words.split_first().expect("what it is to do");
    Command::new(env!("CARGO_BIN_EXE_conformance-owner"))
        .arg(first)
        .arg(directory)
        .args(rest)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("conformance-owner")
}

#[test]
fn what_processes_own_is_as_they_left_it_whoever_asks() {
    let steps = if full_length() { "60000" } else { "6000" };
    let seed = std::process::id().to_string();
    on_every_combination("owners", BODY_DEADLINE, |directory| {
        let askers: Vec<_> = (0..ASKERS).map(|_| start(&["ask"], directory)).collect();
        let maps = maps_shared(directory);
        let own = |index: u32| {
            let index = index.to_string();
            let mut words = vec!["own", &index, steps, &seed];
            if !maps {
                words.push("mmap");
            }
            start(&words, directory)
        };
        let owners: Vec<_> = (0..OWNERS).map(own).collect();
        let mut wrong = Vec::new();
        for owner in owners {
            let output = owner.wait_with_output().expect("wait");
            if !output.status.success() {
                wrong.push(String::from_utf8_lossy(&output.stdout).into_owned());
            }
        }
        // With its standard input.
        for asker in askers {
            asker.wait_with_output().expect("wait");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
