//! A program in C that has its command line, background and end from the library.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail so")]

#[path = "c_programs/building.rs"]
mod building;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bickford::mount::{MountEntry, Unmount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

use building::{DEADLINE, clean_up, compile, compile_from, may_mount};

/// Runs `test` with a mount point, which is taken away when it is late.
fn watched(place: &Path, test: impl FnOnce(&Path)) {
    let mountpoint = place.join("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let (ends, ended) = channel::<()>();
    let late = mountpoint.clone();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            let _ = unmount(&late, Unmount::Force);
            clean_up(&late);
            return true;
        }
        false
    });
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mountpoint)));
    drop(ends);
    let late = watchdog.join().unwrap();
    clean_up(&mountpoint);
    assert!(!late, "it did not end within {DEADLINE:?}");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn run(program: &Path, words: &[&str]) -> Output {
    // Whatever it waits for without a mount.
    let mut command = Command::new("timeout");
    command.arg("50").arg(program).args(words).output().unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, status: i32, part: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{told}");
    assert!(told.contains(part), "{part:?} in {told:?}");
}

#[track_caller]
fn assert_silent(output: &Output) {
    let empty = output.stdout.is_empty() && output.stderr.is_empty();
    assert!(output.status.success() && empty, "{output:?}");
}

fn text(path: PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn await_line(log: &Path, part: &str) -> String {
    let until = Instant::now() + DEADLINE / 2;
    loop {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        if let Some(line) = log.lines().find(|line| line.contains(part)) {
            return line.to_owned();
        }
        assert!(Instant::now() < until, "no {part:?} in {log:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory with the program of `tests/c/program.c` in it, and with a file that it is to greet; `None` where nothing can
/// be mounted.
fn greeter() -> Option<(TempDir, PathBuf, PathBuf)> {
    may_mount().then(|| {
        let place = tempfile::tempdir().unwrap();
        let program = compile("program", place.path());
        let file = place.path().join("file");
        std::fs::write(&file, "world").unwrap();
        (place, program, file)
    })
}

#[test]
fn it_has_flags_a_source_and_a_log() {
    let Some((place, program, file)) = greeter() else {
        return;
    };
    let log = place.path().join("log");
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let log_file = format!("log-file={}", name(&log));
    watched(place.path(), |mountpoint| {
        let options = format!("greeting=Ahoy,aloud,umask=022,{log_file}");
        let words = [&name(&file), "-o", &options, &name(mountpoint)];
        assert_silent(&run(&program, &words));
        assert_eq!(text(mountpoint.join("says")), "Ahoy! world");
        let entry = MountEntry::at(mountpoint).unwrap().unwrap();
        assert_eq!(entry.fs_type, "fuse.greeter");
        assert_eq!(entry.source, file.as_os_str());
        assert!(
            entry
                .flags()
                .contains(bickford::mount::GenericFlags::READ_ONLY)
        );
        let mode = std::fs::metadata(mountpoint.join("says")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
        assert_eq!(mode & 0o7777, 0o755);
        let line = await_line(&log, " is there, connection 1");
        assert!(
            line.contains("INFO program: ") && line.contains(&name(&file)),
            "{line}"
        );
        unmount(mountpoint, Unmount::Normal).unwrap();
        await_line(&log, "unmounted");
    });
}

#[test]
fn it_says_what_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let program = compile("program", place.path());
    let help = run(&program, &["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for part in [
        "Greets",
        "<FILE> <MOUNTPOINT>",
        "-g, --greeting <TEXT>",
        "[default: Hello]",
        "--aloud",
        "umask",
    ] {
        assert!(help.contains(part), "{part:?} in {help}");
    }
    let version = run(&program, &["-V"]);
    assert!(
        version.stdout.starts_with(b"greeter 3.1 (bickford "),
        "{version:?}"
    );
    assert_refused(&run(&program, &["x"]), 2, "<FILE> <MOUNTPOINT>");
    assert_refused(
        &run(&program, &["x", "/", "-o", "greting=x"]),
        1,
        "'greeting'",
    );
    assert_refused(
        &run(&program, &["nameless"]),
        1,
        "bickford: the name of the program",
    );
    assert_refused(
        &run(&program, &["outdated"]),
        1,
        "version 0 of the interface",
    );
    assert_refused(
        &run(&program, &["driven"]),
        1,
        "option driven is for sessions within a program",
    );
    let doubled = run(&program, &["doubled"]);
    assert_refused(
        &doubled,
        1,
        "greeter: the flag 'log' of this program has the name of another",
    );
    assert_refused(
        &run(&program, &["letters"]),
        1,
        "'log|xy': after '|' a single letter",
    );
    // Over inodes there is no attr_timeout for all.
    assert_refused(&run(&program, &["nodes"]), 1, "attr_timeout");
    if !may_mount() {
        return;
    }
    for flag in ["--aloud", "-f"] {
        let refused = run(&program, &["/no/such", flag, "/mnt"]);
        assert_refused(&refused, 1, "greeter: /no/such: No such file or directory");
    }
    let refused = run(&program, &["/no/such", "--terse", "/mnt"]);
    assert_refused(
        &refused,
        1,
        "greeter: No such file or directory (os error 2)",
    );
}

#[test]
fn flags_have_letters_and_may_be_repeated() {
    let Some((place, program, file)) = greeter() else {
        return;
    };
    let file = file.to_str().unwrap();
    watched(place.path(), |mountpoint| {
        let at = mountpoint.to_str().unwrap();
        let words = ["-gHi", "-2", "moon", "-o", "also.to=sun,greeting=Ho"];
        let more = ["--also.to=stars", file, at];
        assert_silent(&run(&program, &[&words[..], &more].concat()));
        let says = text(mountpoint.join("says"));
        assert_eq!(says, "Hi world, sun, moon, stars");
        unmount(mountpoint, Unmount::Normal).unwrap();
    });
}

/// Runs a program at a terminal of its own, where `typed` is typed when it has asked.
fn run_at_terminal(program: &Path, words: &[&str], typed: &[u8]) -> Output {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut child = Command::new("setsid")
        .args(["--ctty", "timeout", "--foreground", "50"])
        .arg(program)
        .args(words)
        .stdin(theirs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut asked = [0; 2];
    let told = child.stderr.as_mut().unwrap();
    told.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"? ");
    // Its end is that of the terminal.
    let mut ours = File::from(ours);
    ours.write_all(typed).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn it_asks_whoever_called_it_before_it_leaves_the_terminal() {
    let Some((place, program, file)) = greeter() else {
        return;
    };
    let file = file.to_str().unwrap();
    watched(place.path(), |mountpoint| {
        let at = mountpoint.to_str().unwrap();
        let words = ["--ask", "/dev/tty", file, at];
        assert_silent(&run_at_terminal(&program, &words, b"Salut\n"));
        assert_eq!(text(mountpoint.join("says")), "Salut world");
        unmount(mountpoint, Unmount::Normal).unwrap();

        // Both processes end, or standard error would not.
        let ended = run_at_terminal(&program, &words, b"\x03");
        assert!(!ended.status.success(), "{ended:?}");
        assert_eq!(MountEntry::at(mountpoint).unwrap(), None);

        let mut command = Command::new("timeout");
        let command = command.args(["50", program.to_str().unwrap()]);
        let mut child = command
            .args(["--ask", "/dev/stdin", file, at])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"Ave\nno more\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(text(mountpoint.join("says")), "Ave world");
        unmount(mountpoint, Unmount::Normal).unwrap();
    });
}

#[test]
fn it_says_when_it_has_closed_what_it_was_started_with() {
    let place = tempfile::tempdir().unwrap();
    let program = compile("program", place.path());
    let refused = run(&program, &["closing", "x", "/mnt"]);
    assert_refused(&refused, 1, "the program has closed descriptor");
}

#[test]
fn closed_standard_descriptors_are_nobody_elses() {
    let Some((place, program, file)) = greeter() else {
        return;
    };
    let log = place.path().join("log");
    let [program, file, log_file] = [&program, &file, &log].map(|path| path.to_str().unwrap());
    watched(place.path(), |mountpoint| {
        for closed in ["<&-", "<&- >&-", "<&- >&- 2>&-"] {
            let script = format!("exec \"$0\" \"$@\" {closed}");
            let called = ["-c", &script, program, "--log-file", log_file, file];
            let called = [&called[..], &[mountpoint.to_str().unwrap()]].concat();
            assert_silent(&run(Path::new("sh"), &called));
            assert_eq!(text(mountpoint.join("says")), "Hello world", "{closed}");
            unmount(mountpoint, Unmount::Normal).unwrap();
            await_line(&log, "unmounted");
            std::fs::remove_file(&log).unwrap();
        }
    });
}

/// By SIGHUP it would be unmounted, and by SIGUSR1 log statistics.
#[test]
fn handlers_of_its_own_are_left_alone() {
    let Some((place, program, file)) = greeter() else {
        return;
    };
    let [log, handled] = ["log", "handled"].map(|name| place.path().join(name));
    File::create(&handled).unwrap();
    let [file, log_file, told] = [&file, &log, &handled].map(|path| path.to_str().unwrap());
    watched(place.path(), |mountpoint| {
        let options = format!("handled={told},log-file={log_file}");
        let at = mountpoint.to_str().unwrap();
        assert_silent(&run(&program, &["-o", &options, file, at]));
        let daemon = text(handled.clone()).trim().parse().unwrap();
        let daemon = Pid::from_raw(daemon).unwrap();
        for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::HUP, "SIGHUP")] {
            kill_process(daemon, signal).unwrap();
            await_line(&handled, name);
        }
        assert_eq!(text(mountpoint.join("says")), "Hello world");
        unmount(mountpoint, Unmount::Normal).unwrap();
        await_line(&log, "unmounted");
        let log = text(log.clone());
        for told in ["SIGHUP", "handler us"] {
            assert!(!log.contains(told), "{told} in {log}");
        }
    });
}

#[test]
fn it_serves_a_directory() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile("stackfs_program", place.path());
    let [source, log] = ["source", "log"].map(|name| place.path().join(name));
    std::fs::create_dir(&source).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    watched(place.path(), |mountpoint| {
        // Options that `open` fills in hold where the command line has none; it may have `_` for `-`.
        for (more, preset, io, written) in [
            ("as_is,workers=2", "base", "direct", "text"),
            ("preset=opt,lower=watch,no_xattr", "opt", "direct", "TEXT"),
            ("io=plain,prompt,--as-is", "base", "plain", "text"),
        ] {
            let options = format!("log_file={},{more}", name(&log));
            let options = options.trim_end_matches(",--as-is");
            let mut words = vec![
                "-o".to_owned(),
                options.to_owned(),
                name(&source),
                name(mountpoint),
            ];
            words.extend(more.contains("--as-is").then(|| "--as-is".to_owned()));
            let words = words.iter().map(String::as_str).collect::<Vec<_>>();
            assert_silent(&run(&program, &words));
            let entry = MountEntry::at(mountpoint).unwrap().unwrap();
            assert_eq!(entry.fs_type, "fuse.shouter");
            assert_eq!(entry.source, source.as_os_str());
            std::fs::write(mountpoint.join("file"), "text").unwrap();
            assert_eq!(text(source.join("file")), written, "{more}");
            let line = await_line(&log, "serving a directory");
            assert!(
                line.contains(&format!("preset=\"{preset}\" io=\"{io}\"")),
                "{more}: {line}"
            );
            unmount(mountpoint, Unmount::Normal).unwrap();
            await_line(&log, "unmounted");
            std::fs::remove_file(&log).unwrap();
        }
    });
    let refused = run(&program, &["nameless", "/"]);
    assert_refused(&refused, 1, "bickford: the program has no source");
    for (more, why) in [
        ("preset=quick", "[possible values: base, opt, fast]"),
        ("presett=opt", "'preset'"),
    ] {
        let refused = run(&program, &["/", "-o", more, "/mnt"]);
        let status = if why.starts_with('[') { 2 } else { 1 };
        assert_refused(&refused, status, why);
    }
}

/// A program that has mounted, and what it writes afterwards.
fn serving(program: &mut Command) -> (Child, BufReader<ChildStderr>) {
    let mut served = program.stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(served.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" mounted") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ended");
    }
    (served, reader)
}

/// Its `main` refuses other command lines than it was called with.
#[test]
fn a_signal_unmounts_it() {
    let Some((place, program, file)) = greeter() else {
        return;
    };
    watched(place.path(), |mountpoint| {
        let mut program = Command::new(&program);
        let (mut served, mut reader) = serving(program.arg("-f").arg(&file).arg(mountpoint));
        kill_process(Pid::from_child(&served), Signal::TERM).unwrap();
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        let status = served.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(said.contains(": unmounted"), "{said}");
        assert!(!said.contains("detached"), "{said}");
    });
}

/// As where its output goes through a command that ends before.
#[test]
fn it_outlives_who_reads_its_log() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile_from("../../examples/c", "hello", place.path());
    watched(place.path(), |mountpoint| {
        let (mut served, reader) = serving(Command::new(&program).arg("-f").arg(mountpoint));
        drop(reader);
        kill_process(Pid::from_child(&served), Signal::TERM).unwrap();
        let status = served.wait().unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(MountEntry::at(mountpoint).unwrap(), None);
    });
}

/// Among the limits are such as leave no room for the last of the threads that are started.
#[test]
fn a_start_that_fails_for_want_of_memory_leaves_no_mount() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile_from("../../examples/c", "hello", place.path());
    watched(place.path(), |mountpoint| {
        for kib in (20_000..50_000).step_by(500) {
            let script = format!("ulimit -v {kib}; exec \"$@\"");
            let started = Command::new("timeout")
                .args(["50", "sh", "-c", &script, "sh"])
                .args([&program, mountpoint])
                .output()
                .unwrap();
            let left = MountEntry::at(mountpoint).unwrap().is_some();
            assert_eq!(left, started.status.success(), "{kib} KiB: {started:?}");
            if left {
                unmount(mountpoint, Unmount::Normal).unwrap();
            }
        }
    });
}

/// As README.md has it, but for where the library is.
#[test]
fn the_example_says_hello() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compile_from("../../examples/c", "hello", place.path());
    watched(place.path(), |mountpoint| {
        assert_silent(&run(&program, &[mountpoint.to_str().unwrap()]));
        assert_eq!(text(mountpoint.join("hello")), "Hello, world!\n");
        let names = std::fs::read_dir(mountpoint).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["hello"]);
        unmount(mountpoint, Unmount::Normal).unwrap();
    });
}
