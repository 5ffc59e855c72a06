//! What people do in a directory, done in the mount.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bickford_conformance::{
    BODY_DEADLINE, Scratch, Watchdog, maps_shared, on_every_combination, run_ok, same_tree,
    tells_holes,
};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const PROCESSES: u32 = 16;
const ROUNDS: u32 = 25;
/// Names that nobody changes.
const STILL: u32 = 500;

#[test]
fn git_clones_and_finds_every_object_whole() {
    on_every_combination("git", BODY_DEADLINE, |directory| {
        let origin = directory.join("origin");
        fs::create_dir(&origin).expect("origin");
        git(&origin, &["init", "--quiet"]);
        for index in 0..300_u32 {
            let folder = origin.join(format!("folder-{}", index % 17));
            fs::create_dir_all(&folder).expect("folder");
            let contents = format!("line {index}\n").repeat(1 + index as usize * 7 % 400);
            fs::write(folder.join(format!("file-{index}")), contents).expect("file");
        }
        git(&origin, &["add", "."]);
        git(&origin, &["commit", "--quiet", "-m", "all"]);
        git(
            directory,
            &["clone", "--quiet", "--no-local", "origin", "clone"],
        );
        let clone = directory.join("clone");
        git(&clone, &["fsck", "--full", "--strict"]);
        git(&clone, &["gc", "--quiet"]);
        assert_eq!(git(&clone, &["status", "--porcelain"]), "");
        let head = |repository: &Path| git(repository, &["rev-parse", "HEAD^{tree}"]);
        assert_eq!(head(&clone), head(&origin));
    });
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    run_ok(
        Command::new("git")
            .current_dir(directory)
            // The configuration of the machine or its user is none of the test's.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .args(["-c", "user.name=Test", "-c", "user.email=test@localhost"])
            .args(arguments),
    )
}

#[test]
fn cargo_builds_and_what_it_built_runs() {
    on_every_combination("cargo", BODY_DEADLINE, |directory| {
        // The compiler maps what it has written.
        if !maps_shared(directory) {
            return;
        }
        let package = directory.join("tiny");
        fs::create_dir_all(package.join("src")).expect("package");
        let manifest =
            "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n";
        fs::write(package.join("Cargo.toml"), manifest).expect("manifest");
        let lib =
            "pub fn answer() -> u32 { 6 * 7 }\n#[test]\nfn it() { assert_eq!(answer(), 42); }\n";
        fs::write(package.join("src/lib.rs"), lib).expect("lib");
        let main = "fn main() { println!(\"{}\", tiny::answer()); }\n";
        fs::write(package.join("src/main.rs"), main).expect("main");
        assert_eq!(cargo(&package, &["run", "--quiet"]), "42\n");
        let lib = lib.replace("6 * 7", "7 * 7").replace("42", "49");
        // Cargo rebuilds by the time of the file: it must not lie in the past of the first build.
        std::thread::sleep(Duration::from_millis(20));
        fs::write(package.join("src/lib.rs"), lib).expect("lib");
        assert_eq!(cargo(&package, &["run", "--quiet"]), "49\n");
    });
}

fn cargo(package: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("cargo");
    command
        .current_dir(package)
        .arg("--offline")
        .args(arguments);
    for variable in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    run_ok(&mut command)
}

#[test]
fn tar_carries_a_tree_in_and_out_unchanged() {
    let scratch = Scratch::new("tar");
    let reference = scratch.directory("reference");
    plant(&reference);
    on_every_combination("tar", BODY_DEADLINE, |directory| {
        let inside = directory.join("inside");
        fs::create_dir(&inside).expect("directory");
        carry(&reference, &inside, &directory.join("in.tar"));
        assert_eq!(same_tree(&reference, &inside), Ok(()), "carried in");
        let outside = Scratch::new("tar-out");
        let out = outside.directory("out");
        carry(&inside, &out, &directory.join("out.tar"));
        assert_eq!(same_tree(&reference, &out), Ok(()), "carried out");
    });
}

/// A tree with one of everything that tar can carry.
fn plant(top: &Path) {
    let contents: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::create_dir_all(top.join("deep/er")).expect("directories");
    fs::write(top.join("deep/er/data"), &contents).expect("data");
    fs::write(top.join("empty"), "").expect("empty");
    fs::hard_link(top.join("deep/er/data"), top.join("again")).expect("link");
    symlink("deep/er/data", top.join("symlink")).expect("symlink");
    symlink("nowhere", top.join("dangling")).expect("symlink");
    let sparse = fs::File::create(top.join("sparse")).expect("sparse");
    sparse.set_len(64 << 20).expect("length");
    for offset in [0, 1 << 20, 40 << 20] {
        sparse
            .write_all_at(&contents[..8192], offset)
            .expect("write");
    }
    sparse.sync_all().expect("sync");
    let name_of_bytes: &std::ffi::OsStr =
        std::os::unix::ffi::OsStrExt::from_bytes(b"bytes \xff\n\t\\");
    fs::write(top.join(name_of_bytes), "x").expect("name");
    run_ok(Command::new("mkfifo").arg(top.join("fifo")));
    run_ok(
        Command::new("mknod")
            .arg(top.join("null"))
            .args(["c", "1", "3"]),
    );
    run_ok(Command::new("chmod").arg("4711").arg(top.join("empty")));
    run_ok(Command::new("chown").arg("1:2").arg(top.join("deep/er")));
    let attribute = |name: &str, value: &str, path: &str| {
        let path = top.join(path);
        run_ok(
            Command::new("setfattr")
                .args(["-n", name, "-v", value])
                .arg(path),
        );
    };
    attribute("user.note", "a value with blanks", "deep/er/data");
    attribute("user.bytes", "0x00ff0a00", "deep");
    attribute("trusted.note", "for root", "deep/er/data");
    run_ok(
        Command::new("setfacl")
            .args(["-m", "u:1:rwx,g:2:r"])
            .arg(top.join("deep/er/data")),
    );
    run_ok(
        Command::new("setfacl")
            .args(["-d", "-m", "u:1:rx"])
            .arg(top.join("deep")),
    );
    run_ok(Command::new("sync").arg("-f").arg(top));
}

fn carry(from: &Path, to: &Path, archive: &Path) {
    let flags = [
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--numeric-owner",
        "--sparse",
    ];
    let tar = |mode: &str, directory: &Path| {
        let mut command = Command::new("tar");
        command
            .args(flags)
            .arg("--format=posix")
            .arg(mode)
            .arg("--file")
            .arg(archive);
        run_ok(
            command
                .arg("-C")
                .arg(directory)
                .args(if mode == "--create" {
                    ["."].as_slice()
                } else {
                    &["--preserve-permissions"]
                }),
        );
    };
    tar("--create", from);
    tar("--extract", to);
}

#[test]
fn sqlite_keeps_its_rows_in_wal_mode() {
    on_every_combination("sqlite", BODY_DEADLINE, |directory| {
        // The index of the log is a mapping.
        if !maps_shared(directory) {
            return;
        }
        let database = directory.join("database");
        let mode = sqlite(
            &database,
            "PRAGMA journal_mode=WAL; CREATE TABLE t (w, i, b);",
        );
        assert_eq!(mode, "wal\n");
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let inserts: String = (0..50)
                    .map(|index| {
                        format!("INSERT INTO t VALUES ({writer}, {index}, randomblob(2000));\n")
                    })
                    .collect();
                Command::new("sqlite3")
                    .args(["-bail", "-cmd", ".timeout 120000"])
                    .arg(&database)
                    .arg(inserts)
                    .stdin(Stdio::null())
                    .spawn()
                    .expect("sqlite3")
            })
            .collect();
        for mut writer in writers {
            assert!(writer.wait().expect("wait").success());
        }
        assert_eq!(sqlite(&database, "PRAGMA integrity_check;"), "ok\n");
        let count = "SELECT count(*), count(DISTINCT w * 1000 + i) FROM t;";
        assert_eq!(sqlite(&database, count), "200|200\n");
        sqlite(&database, "PRAGMA wal_checkpoint(TRUNCATE); VACUUM;");
        assert_eq!(sqlite(&database, "PRAGMA integrity_check;"), "ok\n");
    });
}

fn sqlite(database: &Path, statements: &str) -> String {
    let mut command = Command::new("sqlite3");
    run_ok(
        command
            .args(["-bail", "-batch"])
            .arg(database)
            .arg(statements),
    )
}

#[test]
fn sixteen_processes_share_a_directory() {
    on_every_combination("processes", BODY_DEADLINE, |directory| {
        let worker = env!("CARGO_BIN_EXE_conformance-worker");
        // A listing of them takes several requests, between which others change the directory.
        let still = |index: u32| format!("{index:0>60}");
        for index in 0..STILL {
            fs::write(directory.join(still(index)), "").expect("write");
        }
        let processes: Vec<_> = (0..PROCESSES)
            .map(|index| {
                Command::new(worker)
                    .arg("churn")
                    .arg(directory)
                    .args([index.to_string(), ROUNDS.to_string()])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("worker")
            })
            .collect();
        for process in processes {
            let output = process.wait_with_output().expect("wait");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
        }
        let mut names: Vec<_> = fs::read_dir(directory)
            .expect("list")
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .into_string()
                    .expect("name")
            })
            .collect();
        names.sort();
        let mut wanted: Vec<_> = (0..PROCESSES)
            .map(|index| format!("kept-{index}"))
            .chain((0..STILL).map(still))
            .collect();
        wanted.sort();
        assert_eq!(names, wanted);
    });
}

/// Queues and threads belong to CPUs; their clients move.
#[test]
fn a_client_that_changes_cpus_under_load_notices_nothing() {
    on_every_combination("affinity", BODY_DEADLINE, |directory| {
        let worker = env!("CARGO_BIN_EXE_conformance-worker");
        let mut process = Command::new(worker)
            .arg("churn")
            .arg(directory)
            .args(["moving", "300"])
            .stdin(Stdio::null())
            .spawn()
            .expect("worker");
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let allowed = sched_getaffinity(None).expect("affinity");
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu))
            .collect();
        let mut moves = 0;
        let status = loop {
            if let Some(status) = process.try_wait().expect("wait") {
                break status;
            }
            let mut one = CpuSet::new();
            one.set(cpus[moves % cpus.len()]);
            // Fails for a process that has just ended.
            let _ = sched_setaffinity(pid, &one);
            moves += 1;
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "{status}");
        assert!(directory.join("kept-moving").exists());
    });
}

#[test]
fn the_tree_that_tar_carries_has_what_it_should() {
    let watchdog = Watchdog::start("plant", BODY_DEADLINE);
    let scratch = Scratch::new("plant");
    let one = scratch.directory("one");
    plant(&one);
    let lines = bickford_conformance::describe(&one).expect("describe");
    let sparse = &lines[Path::new("sparse")];
    assert!(
        sparse.contains("size 67108864") && sparse.contains("(41943040, ") == tells_holes(),
        "{sparse}"
    );
    let data = &lines[Path::new("deep/er/data")];
    for part in [
        "links 2",
        "user.note",
        "trusted.note",
        "system.posix_acl_access",
    ] {
        assert!(data.contains(part), "{part}: {data}");
    }
    assert!(
        lines[Path::new("null")].contains("device 103"),
        "{lines:#?}"
    );
    drop(watchdog);
}
