//! The file system in memory, and the directory passed through over paths, under the suites that file
//! systems are tested with: pjdfstest (semantics of every call) and fsx (random reads, writes,
//! truncations and mappings of one file).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::example::{Example, can_mount, full_length, transports};

const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

const FSX: &str = "
[weights]
close_open = 0.5
invalidate = 0.2
mapread = 1.0
mapwrite = 1.0
read = 1.0
write = 1.0
truncate = 1.0
fsync = 0.05
posix_fallocate = 0.3
punch_hole = 0.3
";

/// Runs a suite; `None`, loudly, where it is not installed.
fn run(command: &mut Command) -> Option<String> {
    match command.env("NO_COLOR", "1").output() {
        Ok(Output {
            status,
            stdout,
            stderr,
        }) => {
            let output = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
            assert!(status.success(), "{command:?}: {status}\n{output}");
            Some(output)
        }
        Err(error) => {
            let program = command.get_program().display();
            eprintln!("SKIPPED: {program}: {error}; scripts/prerequisites.sh test installs it");
            None
        }
    }
}

fn on_each_transport(program: &str, directories: usize, body: fn(&Example)) {
    if !can_mount() {
        return;
    }
    for transport in transports() {
        eprintln!("over {transport}");
        let lower = tempfile::tempdir().unwrap();
        let arguments = vec![lower.path(); directories];
        let example = Example::start_over(transport, program, &arguments);
        body(&example);
        example.finish();
    }
}

fn memfs(body: fn(&Example)) {
    on_each_transport(env!("CARGO_BIN_EXE_memfs"), 0, body);
}

fn mirror(body: fn(&Example)) {
    on_each_transport(env!("CARGO_BIN_EXE_mirror"), 1, body);
}

#[test]
fn pjdfstest_finds_no_fault_in_memory() {
    memfs(pjdfstest);
}

#[test]
fn pjdfstest_finds_no_fault_over_paths() {
    mirror(pjdfstest);
}

#[test]
fn fsx_finds_no_wrong_byte_in_memory() {
    memfs(fsx);
}

#[test]
fn fsx_finds_no_wrong_byte_over_paths() {
    mirror(fsx);
}

fn pjdfstest(example: &Example) {
    let configuration = tempfile::NamedTempFile::new().unwrap();
    fs::write(configuration.path(), PJDFSTEST).unwrap();
    // It acts as other users, who must be let through to the mount.
    fs::set_permissions(example.path(".."), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(example.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("pjdfstest");
    command
        .arg("-c")
        .arg(configuration.path())
        .arg("-p")
        .arg(example.path(""));
    if let Some(output) = run(&mut command) {
        assert!(output.contains("Summary: 0 failed"), "{output}");
    }
}

fn fsx(example: &Example) {
    let artifacts = tempfile::tempdir().unwrap();
    let configuration = artifacts.path().join("fsx.toml");
    fs::write(&configuration, FSX).unwrap();
    let operations = if full_length() { "100000" } else { "2000" };
    let mut command = Command::new("fsx");
    command
        .args(["-q", "-S", "7", "-N", operations, "-f"])
        .arg(&configuration);
    command
        .arg("-P")
        .arg(artifacts.path())
        .arg(example.path("file"));
    if let Some(output) = run(&mut command) {
        assert!(
            output.contains("All operations completed A-OK!"),
            "{output}"
        );
    }
}
