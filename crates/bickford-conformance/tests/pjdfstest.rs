//! pjdfstest says of the mount exactly what it says of the lower ext4.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bickford_conformance::{
    BODY_DEADLINE, Combination, Mount, Scratch, Watchdog, full_length, require_root, run, say,
};

/// Features of Linux and ext4; the two users are on every Debian. The other file system, for EXDEV,
/// is the one in memory.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
secondary_fs = "/dev/shm"

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Version 0.2.2 has 398; fewer means that the run broke off.
const TESTS: usize = 398;

/// Tests that the mount skips and the lower file system does not, each for a reason that no FUSE file
/// system can change.
///
/// `pathconf(_PC_LINK_MAX)` is answered by the C library from the type of the file system, and it knows
/// no limit for FUSE. `the_link_limit_is_that_of_the_lower_file_system` does what this test would do.
const SKIPPED: &[&str] = &["link::link_count_max"];

/// What pjdfstest says of the lower file system itself, and its configuration.
fn natively(scratch: &Scratch, patterns: &[&str]) -> (PathBuf, BTreeMap<String, String>) {
    let configuration = scratch.path().join("pjdfstest.toml");
    fs::write(&configuration, CONFIGURATION).expect("configuration");
    let _watchdog = Watchdog::start("pjdfstest on the native directory", BODY_DEADLINE);
    let native = results(&configuration, &scratch.directory("native"), patterns);
    eprintln!("native: {}", counts(&native));
    let skipped = native.values().filter(|result| *result == "skipped");
    assert!(
        skipped.count() * 10 <= native.len(),
        "what is skipped natively proves nothing on a mount; see above"
    );
    (configuration, native)
}

#[test]
fn every_result_is_that_of_the_lower_file_system() {
    require_root();
    let scratch = Scratch::new("pjdfstest");
    let (configuration, native) = natively(&scratch, &[]);
    assert_eq!(native.len(), TESTS, "the native run broke off");
    assert!(
        native.values().all(|result| result != "FAILED"),
        "what fails natively proves nothing on a mount; see above"
    );
    for combination in Combination::selected() {
        let lower = scratch.directory(&format!("lower-{combination}"));
        let mount = Mount::over(&lower, &combination).must_start();
        let mounted = results(&configuration, mount.path(), &[]);
        compare(&combination.to_string(), &native, &mounted);
        mount.finish();
    }
}

/// What fails through `crypt`: a file that grows by 2 GiB at once, for files are not sparse and one
/// operation makes them at most 1 GiB longer (`docs/crypt-format.md`). EFBIG, or EIO where the write-back
/// cache delays the write.
const REFUSED_BY_CRYPT: &str = "open::interact_2gb";

/// What is run through `crypt` where there is no time for all: what it does itself, of names,
/// attributes and sizes.
const ENCRYPTED: &[&str] = &[
    "ftruncate::",
    "link::",
    "open::",
    "rename::",
    "symlink::",
    "truncate::",
];

#[test]
fn every_result_through_crypt_is_that_of_the_lower_file_system() {
    require_root();
    let scratch = Scratch::new("pjdfstest-crypt");
    let layer = scratch.crypt_layer();
    let patterns = if full_length() { &[] } else { ENCRYPTED };
    let (configuration, native) = natively(&scratch, patterns);
    assert!(
        native.len() == TESTS || !full_length(),
        "the native run broke off"
    );
    for combination in Combination::few() {
        let lower = scratch.directory(&format!("lower-{combination}"));
        let mount = Mount::over(&lower, &combination)
            .argument("--layer")
            .argument(&layer)
            .must_start();
        let mut mounted = results(&configuration, mount.path(), patterns);
        let refused = mounted.get(REFUSED_BY_CRYPT).map(String::as_str);
        assert_eq!(refused, Some("FAILED"), "it is listed as refused");
        mounted.insert(
            REFUSED_BY_CRYPT.to_owned(),
            native[REFUSED_BY_CRYPT].clone(),
        );
        compare(&format!("crypt over {combination}"), &native, &mounted);
        mount.finish();
    }
}

#[test]
fn every_result_where_mounts_can_be_mapped_is_that_of_the_lower_file_system() {
    require_root();
    let scratch = Scratch::new("pjdfstest-idmap");
    let (configuration, native) = natively(&scratch, &[]);
    assert_eq!(native.len(), TESTS, "the native run broke off");
    for combination in Combination::few() {
        let lower = scratch.directory(&format!("lower-{combination}"));
        let mount = Mount::over(&lower, &combination)
            .argument("--allow-idmap")
            .start();
        let mount = match mount {
            Err(error) if error.log.contains("Linux 6.12 is needed") => {
                return say(format_args!(
                    "left out: this kernel allows no id-mapped mounts of FUSE"
                ));
            }
            mount => mount.expect("the mount"),
        };
        let mounted = results(&configuration, mount.path(), &[]);
        compare(
            &format!("allow-idmap with {combination}"),
            &native,
            &mounted,
        );
        mount.finish();
    }
}

/// Fails where a result on a mount is another one than that of the lower file system.
fn compare(mount: &str, native: &BTreeMap<String, String>, mounted: &BTreeMap<String, String>) {
    eprintln!("{mount}: {}", counts(mounted));
    let different: Vec<String> = native
        .iter()
        .filter(|(name, result)| {
            let found = mounted.get(*name).map(String::as_str);
            let excused = SKIPPED.contains(&name.as_str()) && found == Some("skipped");
            found != Some(result.as_str()) && !excused
        })
        .map(|(name, result)| format!("{name}: {result} natively, {:?}", mounted.get(name)))
        .collect();
    assert!(different.is_empty(), "{mount}: {different:#?}");
    assert_eq!(mounted.len(), native.len(), "{mount}");
}

/// Name of each test, of those that contain one of the patterns, and how it ended: `ok`, `FAILED` or
/// `skipped`.
fn results(configuration: &Path, directory: &Path, patterns: &[&str]) -> BTreeMap<String, String> {
    let finished = run(Command::new("pjdfstest")
        .arg("--configuration-file")
        .arg(configuration)
        .arg("--path")
        .arg(directory)
        .args(patterns)
        // What fails then shows the line of the test it failed in.
        .env("RUST_BACKTRACE", "0")
        .env("NO_COLOR", "1"));
    let results = parse(&finished.output);
    if results.values().any(|result| result == "FAILED") {
        eprintln!("{}", failures(&finished.output));
    }
    assert!(!results.is_empty(), "{}", finished.report());
    results
}

fn parse(output: &str) -> BTreeMap<String, String> {
    output
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, result, rest) = (words.next()?, words.next()?, words.next());
            let known = ["ok", "FAILED", "skipped"].contains(&result);
            (known && rest.is_none()).then(|| (name.to_owned(), result.to_owned()))
        })
        .collect()
}

/// The failed tests with what they said.
fn failures(output: &str) -> String {
    let mut shown = false;
    let lines = output.lines().filter(|line| {
        if !line.starts_with('\t') {
            shown = line.ends_with("FAILED");
        }
        shown
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn counts(results: &BTreeMap<String, String>) -> String {
    let count = |wanted: &str| results.values().filter(|result| *result == wanted).count();
    format!(
        "{} passed, {} failed, {} skipped",
        count("ok"),
        count("FAILED"),
        count("skipped")
    )
}

#[test]
fn output_is_parsed_by_line() {
    let output =
        "a::b    ok\na::c   FAILED\n\tassertion\nd   skipped\n\tok so\nSummary: 1 failed\n";
    let results = parse(output);
    assert_eq!(counts(&results), "1 passed, 1 failed, 1 skipped");
    assert_eq!(failures(output), "a::c   FAILED\n\tassertion");
}

/// Links a file until that fails; the number of links and the error.
fn link_until_it_fails(directory: &Path) -> (u64, Option<i32>) {
    let file = directory.join("file");
    fs::write(&file, "x").expect("write");
    for index in 1..100_000 {
        if let Err(error) = fs::hard_link(&file, directory.join(index.to_string())) {
            let links = fs::metadata(&file).expect("stat").nlink();
            assert_eq!(links, index);
            return (links, error.raw_os_error());
        }
    }
    unreachable!("no file system has so many links");
}

#[test]
fn the_link_limit_is_that_of_the_lower_file_system() {
    require_root();
    let scratch = Scratch::new("links");
    let watchdog = Watchdog::start("links on the native directory", BODY_DEADLINE);
    let native = link_until_it_fails(&scratch.directory("native"));
    drop(watchdog);
    // One preset answers for all: the limit is met below, in one place.
    if let Some(combination) = Combination::selected().last() {
        let lower = scratch.directory("lower");
        let mount = Mount::over(&lower, combination).must_start();
        assert_eq!(link_until_it_fails(mount.path()), native);
        mount.finish();
    }
}
