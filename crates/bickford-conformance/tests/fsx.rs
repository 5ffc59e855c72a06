//! fsx: random writes, truncations, mapped writes and more on one file find no wrong byte.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bickford_conformance::{full_length, maps_shared, on_every_combination, run};

/// Every operation that fsx knows, and by `mapped` those of mappings: as often as the plain ones, or never.
fn configuration(mapped: f64) -> String {
    let invalidate = 0.2 * mapped;
    format!(
        "{CONFIGURATION}mapread = {mapped:.1}\nmapwrite = {mapped:.1}\ninvalidate = {invalidate:.1}\n"
    )
}

const CONFIGURATION: &str = "
[weights]
close_open = 0.5
read = 1.0
write = 1.0
truncate = 1.0
fsync = 0.05
fdatasync = 0.05
posix_fallocate = 0.3
punch_hole = 0.3
sendfile = 0.3
posix_fadvise = 0.2
copy_file_range = 0.3
";

const DEADLINE: Duration = Duration::from_secs(3600);

#[test]
fn random_operations_read_what_was_written() {
    let (seeds, operations) = if full_length() {
        (5, 100_000)
    } else {
        (2, 10_000)
    };
    on_every_combination("fsx", DEADLINE, |directory| {
        let mapped = if maps_shared(directory) { 1.0 } else { 0.0 };
        // At once: each waits for the disk half of the time.
        std::thread::scope(|all| {
            for seed in 1..=seeds {
                all.spawn(move || exercise(directory, seed, operations, mapped));
            }
        });
    });
}

fn exercise(directory: &Path, seed: u32, operations: u32, mapped: f64) {
    let artifacts = tempfile::tempdir().expect("directory");
    let configuration = artifacts.path().join("fsx.toml");
    fs::write(&configuration, self::configuration(mapped)).expect("configuration");
    let file = directory.join(format!("seed-{seed}"));
    let finished = run(Command::new("fsx")
        .arg("-q")
        .args(["-N", &operations.to_string(), "-S", &seed.to_string()])
        .arg("-f")
        .arg(&configuration)
        .arg("-P")
        .arg(artifacts.path())
        .arg(&file));
    assert!(
        finished.status.success() && finished.output.contains("All operations completed A-OK!"),
        "{}",
        finished.report()
    );
    eprintln!("   seed {seed}: {operations} operations, no difference");
    fs::remove_file(&file).expect("remove");
}
