//! The file system in memory, and the directory passed through over paths, under the suites that file
//! systems are tested with: pjdfstest (semantics of every call) and fsx (random reads, writes,
//! truncations and mappings of one file).

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Output};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::example::{Example, can_mount, full_length, say, transports};

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

/// Of 398 tests; those of what is not configured are skipped.
const PASSED: usize = 375;

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
            say(format_args!(
                "SKIPPED: {program}: {error}; scripts/prerequisites.sh test installs it"
            ));
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

#[test]
fn a_file_without_a_name_gets_one_in_memory() {
    memfs(unnamed);
}

#[test]
fn a_file_without_a_name_gets_one_over_paths() {
    mirror(unnamed);
}

fn unnamed(example: &Example) {
    let top = example.path("");
    let flags = OFlags::TMPFILE.union(OFlags::RDWR);
    let open = || {
        let file = rustix::fs::open(&top, flags, Mode::from_raw_mode(0o640)).unwrap();
        File::from(file)
    };
    let name = |file: &File, name: &str| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, path, CWD, top.join(name), AtFlags::SYMLINK_FOLLOW)
    };
    let names = || {
        let entries = fs::read_dir(&top).unwrap();
        let mut names: Vec<_> = entries.map(|one| one.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let mut file = open();
    file.write_all(b"text").unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), names().len()), (0, 0));
    assert_eq!(name(&file, "one"), Ok(()));
    assert_eq!(name(&file, "one"), Err(Errno::EXIST));
    assert_eq!(name(&file, "two"), Ok(()));
    // The file and its names are one, before and after it is closed.
    let found = fs::metadata(top.join("one")).unwrap();
    assert_eq!(
        (found.nlink(), found.mode() & 0o7777, found.len()),
        (2, 0o640, 4)
    );
    assert_eq!(found.ino(), file.metadata().unwrap().ino());
    file.write_all(b" more").unwrap();
    drop(file);
    assert_eq!(fs::read(top.join("two")).unwrap(), b"text more");
    assert_eq!(names(), ["one", "two"]);
    fs::remove_file(top.join("one")).unwrap();
    assert_eq!(fs::metadata(top.join("two")).unwrap().nlink(), 1);
    // What gets none is gone, and what had its last one taken away gets no other.
    drop(open());
    let removed = File::open(top.join("two")).unwrap();
    fs::remove_file(top.join("two")).unwrap();
    assert_eq!(name(&removed, "three"), Err(Errno::NOENT));
    assert_eq!(names().len(), 0);
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
        let passed = output.lines().filter(|line| line.ends_with(" ok"));
        let passed = passed.count();
        assert!(passed >= PASSED, "{passed} passed:\n{output}");
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
