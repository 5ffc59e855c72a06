//! What is wrong with a command line is said by name.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use common::{Place, assert_refused, assert_silent, bickford, run};

#[test]
fn each_wrong_option_is_named() {
    let Some(place) = Place::new() else { return };
    let cases: &[(&[&str], i32, &[&str])] = &[
        (
            &["-o", "ro,alow_other"],
            1,
            &["'alow_other'", "'allow_other'"],
        ),
        (&["-o", "presett=fast"], 1, &["'presett'", "'preset'"]),
        (
            &["-o", "zzzzzzzz"],
            1,
            &["'zzzzzzzz' is not known; 'bickford mount --help'"],
        ),
        (&["-o", "mand"], 1, &["'mand': ", "leave it out"]),
        (&["-o", "fsname"], 1, &["'fsname' needs a value"]),
        (&["-o", "ro=yes"], 1, &["'ro' takes no value"]),
        (&["-o", "max_read=1k"], 1, &["max_read=1k"]),
        (&["-o", "root_kind=file"], 1, &["root_kind=file"]),
        (
            &["-o", "allow_root", "-o", "allow_other"],
            1,
            &["'allow_root'", "'allow_other'"],
        ),
        (
            &["--no-permission-checks", "-o", "allow_other"],
            1,
            &["no permission checks", "allow_other"],
        ),
        (
            &["-o", "no-permission-checks,default_permissions"],
            1,
            &["default_permissions"],
        ),
        (&["-o", "preset=slow"], 2, &["'slow'", "base, opt, fast"]),
        (&["--workers", "0"], 2, &["--workers"]),
        (
            &["-s", "--workers", "4"],
            2,
            &["--single-thread", "--workers"],
        ),
        (
            &["--log", "bickford=loud", "-f"],
            1,
            &["--log bickford=loud"],
        ),
        (
            &["--layer", "log:format=json"],
            1,
            &["log:format=json", "file=PATH", "-f"],
        ),
        (
            &["--log", "nonsense"],
            1,
            &["\"nonsense\" is no level", "warn"],
        ),
        (&["--log", ""], 1, &["no level", "warn"]),
        (&["--log", "trace="], 1, &["no level", "MODULE=LEVEL"]),
        (&["-o", "log=garbage::"], 1, &["garbage::", "no level"]),
        (
            &["--log", "hyper=warn"],
            1,
            &["\"hyper\" is no module of ours"],
        ),
    ];
    for (arguments, status, parts) in cases {
        assert_refused(&place.mount(arguments), *status, parts);
        assert_eq!(place.listed(), None, "{arguments:?}");
    }
}

#[test]
fn places_that_cannot_be_used_are_named() {
    let Some(place) = Place::new() else { return };
    let (file, none) = (place.source().join("f"), place.dir().join("none"));
    let mount = |source: &std::path::Path, mountpoint: &std::path::Path| {
        run(bickford().arg("mount").args([source, mountpoint]))
    };
    assert_refused(&mount(&none, &place.mountpoint()), 1, &["none"]);
    assert_refused(&mount(&file, &place.mountpoint()), 1, &["src/f"]);
    assert_refused(
        &mount(&place.source(), &none),
        1,
        &["none", "does not exist"],
    );
    assert_refused(
        &mount(&place.source(), &file),
        1,
        &["src/f", "is a regular file"],
    );
    let descriptor = std::path::Path::new("/dev/fd/0");
    assert_refused(
        &mount(&place.source(), descriptor),
        1,
        &["/dev/fd/0", "not an open /dev/fuse"],
    );
    let no_number = std::path::Path::new("/dev/fd/");
    assert_refused(
        &mount(&place.source(), no_number),
        1,
        &["names no descriptor"],
    );
    assert_refused(
        &run(bickford().arg("unmount").arg(&none)),
        1,
        &["none", "nothing is mounted"],
    );
    assert_refused(&run(bickford().args(["unmount", "/"])), 1, &["not FUSE"]);
    assert_refused(
        &run(bickford().args(["unmount", "--lazy", "--force", "/"])),
        2,
        &["--lazy", "--force"],
    );
}

#[test]
fn a_path_cannot_write_to_the_terminal() {
    let refused = run(bickford().args(["unmount", "/none/\u{1b}[31mred\nline"]));
    assert_refused(&refused, 1, &["\\u{1b}[31mred\\nline"]);
    assert!(!common::stderr(&refused).contains('\u{1b}'), "{refused:?}");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for argument in ["--help", "-V"] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = bickford().arg(argument).stdout(full.unwrap()).output();
        assert_refused(&output.unwrap(), 1, &["standard output"]);
    }
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_named() {
    let Some(place) = Place::new() else { return };
    let mut command = std::process::Command::new("sh");
    let script = "ulimit -n 64 && exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_bickford"), "mount"]);
    let refused = run(command.args([place.source(), place.mountpoint()]));
    assert_refused(&refused, 1, &["64 open files", "ulimit -n 256"]);
}

#[test]
fn an_unknown_command_is_no_mount() {
    assert_refused(&run(bickford().arg("unmont")), 2, &["'unmont'", "unmount"]);
    assert_refused(&run(&mut bickford()), 2, &["Usage: bickford <COMMAND>"]);
}

#[test]
fn help_completions_and_man_pages_know_every_flag() {
    let help = run(bickford().args(["mount", "--help"]));
    let help = String::from_utf8(help.stdout).unwrap();
    let dir = tempfile::tempdir().unwrap();
    assert_silent(&run(bickford().arg("man").arg(dir.path())));
    let man = std::fs::read_to_string(dir.path().join("bickford-mount.1")).unwrap();
    assert!(man.contains("[OPTIONS] <SOURCE> <MOUNTPOINT>"), "{man}");
    assert!(dir.path().join("bickford-man.1").exists());
    let bash = run(bickford().args(["completions", "bash"]));
    let bash = String::from_utf8(bash.stdout).unwrap();
    for flag in [
        "preset",
        "workers",
        "foreground",
        "log-file",
        "single-thread",
    ] {
        assert!(help.contains(&format!("--{flag}")), "help: {flag}");
        assert!(bash.contains(&format!("--{flag}")), "bash: {flag}");
        assert!(man.contains(&flag.replace('-', "\\-")), "man: {flag}");
    }
    assert!(dir.path().join("bickford.1").exists());
}

#[test]
fn doctor_tells_about_this_machine() {
    let Some(place) = Place::new() else { return };
    let output = run(bickford().arg("doctor").arg(place.source()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for name in [
        "/dev/fuse",
        "FUSE protocol",
        "FUSE over io_uring",
        "pass-through",
        "fusermount3",
        "open files",
        "lower file system",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(name)),
            "{name}: {text}"
        );
    }
    // Nothing stays mounted for it.
    assert!(
        !std::fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .contains("bickford-probe")
    );
    assert_refused(&run(bickford().args(["doctor", "/none"])), 1, &["/none"]);
}

#[test]
fn an_evaluation_of_a_program_that_is_not_there_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (program, why) in [
        (&none, "No such file"),
        (&file, "not executable"),
        (&dir.path().to_owned(), "no file"),
    ] {
        let mut eval = bickford();
        eval.arg("eval").arg("--bickford").arg(program);
        let output = run(eval.arg("--out").arg(dir.path().join("out")));
        assert_refused(&output, 1, &["--bickford", why]);
    }
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let commands: [&[&str]; 4] = [
        &["layers"],
        &["completions", "bash"],
        &["doctor"],
        &["eval", "--list"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bickford().args(arguments).stdout(writer).output().unwrap();
        // A machine that lacks something is what doctor's status tells, not its reader's leaving.
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1)), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn keys_that_cannot_be_used_say_why() {
    let Some(place) = Place::new() else { return };
    let (key, pass) = (place.dir().join("key"), place.dir().join("pass"));
    std::fs::write(&pass, "secret\n").unwrap();
    let layer = |more: &str| {
        let (key, pass) = (key.display(), pass.display());
        format!("crypt:key={key},passphrase-file={pass},{more}")
    };
    let cases: &[(&str, &[&str])] = &[
        ("create=true,memory=1", &["memory=1", "32K to 4G"]),
        ("create=true,memory=1000G", &["memory=1000G", "32K to 4G"]),
        ("create=true,passes=0", &["passes=0", "1 to 1024"]),
    ];
    for (more, parts) in cases {
        assert_refused(&place.mount(&["--layer", &layer(more)]), 1, parts);
        assert!(!key.exists());
    }
    std::fs::write(&key, "short").unwrap();
    let refused = place.mount(&["--layer", &layer("")]);
    assert_refused(&refused, 1, &["/key: ", "does not begin as one"]);

    std::fs::remove_file(&key).unwrap();
    let new = layer("create=true,memory=32K,passes=1");
    let warned = place.mount(&["--layer", &new]);
    assert!(
        common::stderr(&warned).contains("src is not empty"),
        "{warned:?}"
    );
    std::fs::write(place.mountpoint().join("g"), "x").unwrap();
    place.unmount(&place.mountpoint());
    std::fs::remove_file(&key).unwrap();
    let refused = place.mount(&["--layer", &new]);
    assert_refused(&refused, 1, &["look encrypted", "another key"]);
    assert!(!key.exists() && place.listed().is_none());
}
