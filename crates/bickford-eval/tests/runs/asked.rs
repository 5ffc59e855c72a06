//! What a run is asked to do: from where, with how much, and what contradicts itself.

use super::*;

/// `--resume` from another directory goes on with the same device, the same commands and the same programs.
#[test]
fn relative_paths_are_those_of_the_beginning() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::write(place.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("mounts", "exec mount --bind \"$1\" \"$2\"");
    script("bickford", "shift 4; exec mount --bind \"$1\" \"$2\"");
    let mut command = Command::new(program());
    command.current_dir(place.directory.path()).args([
        "--workload",
        "load.f",
        "--device",
        "./device",
        "--dir",
        ".",
        "--out",
        "out",
        "--rounds",
        "1",
        "--bickford",
        "./bickford",
        "--config",
        "base",
        "--config",
        "own=./mounts {src} {mnt}",
    ]);
    let first = finish(command);
    assert!(first.status.success(), "{}", said(&first));
    let samples = place.out().join("samples.jsonl");
    let text = fs::read_to_string(&samples).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6);
    // Of the counted round nothing is left.
    fs::write(&samples, format!("{}\n", lines[..3].join("\n"))).unwrap();
    let resume = || {
        let mut command = Command::new(program());
        command.arg("--resume").arg(place.out()).current_dir("/");
        finish(command)
    };
    let again = resume();
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(place.results().samples.len(), 6);
    let run = place.out().join("run.json");
    let text = fs::read_to_string(&run).unwrap();
    let here = format!("\"directory\": \"{}\"", place.directory.path().display());
    assert!(text.contains(&here), "{text}");
    fs::write(&run, text.replace(&here, "\"directory\": \"/nonexistent\"")).unwrap();
    let refused = resume();
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(
        said(&refused).contains("/nonexistent, where commands start, is no directory now"),
        "{}",
        said(&refused)
    );
}

/// An argument of a program has 128 KiB at most.
#[test]
fn a_long_workload_is_run() {
    let place = Place::new(&format!("{WORKLOAD}\n{}", "# a comment\n".repeat(20_000)));
    let output = finish(place.command(&["native"]));
    assert!(output.status.success(), "{}", said(&output));
}

/// As in a container: uid 0, and a /proc/sys that is read-only.
#[test]
fn caches_that_cannot_be_dropped_are_a_note_in_a_directory() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let inner = place.command(&["native"]);
    let mut command = Command::new("unshare");
    let script =
        "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let output = finish(command);
    assert!(output.status.success(), "{}", said(&output));
    let notes = place.results().notes;
    let told = |note: &String| note.contains("drop_caches") && note.contains("caches stay warm");
    assert!(notes.iter().any(told), "{notes:?}");
}

#[test]
fn what_would_be_ignored_is_refused() {
    let nowhere = "/nonexistent";
    let mut refused = vec![vec!["--list", "--resume", nowhere]];
    // What is not refused ends for want of a directory.
    let check = |more: &[&'static str]| [&["--self-check", "--dir", nowhere], more].concat();
    refused.push(check(&["--list"]));
    let with_values = [
        ["--rows", "f01"],
        ["--scale", "2"],
        ["--deadline", "9"],
        ["--config", "fast"],
        ["--suite", "sac10"],
    ];
    refused.extend(with_values.map(|words| check(&words)));
    for words in refused {
        let mut command = Command::new(program());
        command.args(&words);
        let output = finish(command);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let text = said(&output);
        assert!(text.contains("cannot be used with"), "{words:?}: {text}");
    }
}

#[test]
fn an_interrupt_of_the_self_check_is_told_by_its_status() {
    let place = Place::new(WORKLOAD);
    let mut command = Command::new(program());
    command.arg("--self-check").args(["--rounds", "100"]);
    command
        .arg("--device")
        .arg(place.path("device"))
        .arg("--dir")
        .arg(place.directory.path());
    let begun = || fs::read_dir(place.path("device")).unwrap().count() > 0;
    let output = finish_after(command, |child| signal_when(begun, child, Signal::INT));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    is_clean(&place);
}

/// Those that have been started do not wait for the others until the deadline.
#[test]
fn threads_that_cannot_all_be_started_are_an_error() {
    let place = Place::new("");
    let text = "define file name=log,path=/x,size=0,prealloc\n\
                define process name=p { thread name=t,instances=4096 { flowop statfile name=s,filesetname=log\n\
                flowop finishoncount name=f,value=9 } }";
    let text = text.replace('\n', "\\n");
    let job =
        format!("{{\"null\":{{\"kind\":{{\"wml\":{{\"text\":\"{text}\",\"scale\":1.0}}}}}}}}");
    fs::write(place.path("job"), job).unwrap();
    // Address space for the stacks of some of them.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1000000 && exec \"$0\" --worker"]);
    command.arg(program());
    command.stdin(fs::File::open(place.path("job")).unwrap());
    let output = finish(command);
    let text = said(&output);
    assert!(
        text.contains("failed") && text.contains("of 4096 cannot be started"),
        "{text}"
    );
}

/// A full device: the row ends with the device's own words.
#[test]
fn a_full_device_ends_its_row() {
    if !root() {
        return;
    }
    // Its seconds do not say how much it appends.
    let endless = WORKLOAD
        .replace("createfile", "openfile")
        .replace(
            "writewholefile name=w,fd=1,iosize=4k",
            "appendfile name=w,fd=1,iosize=1m",
        )
        .replace("flowop finishoncount name=f,value=120", "");
    let place = Place::new(&format!("{endless}\nrun 600\n"));
    let device = place.path("device");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&device)
        .status();
    assert!(mount.unwrap().success());
    let mut command = place.command(&["native"]);
    // Later than any time of the clock.
    command.args(["--deadline", "18446744073709551615"]);
    let output = finish(command);
    let umount = Command::new("umount").arg(&device).status();
    assert!(
        umount.unwrap().success(),
        "nothing may keep the device busy"
    );
    let results = place.results();
    let error = results.error("own01", "native").map(str::to_owned);
    let error = error.unwrap_or_default();
    assert!(
        error.contains("No space left") && error.contains("MB of 4 MB and"),
        "{error}: {}",
        said(&output)
    );
    let note = |note: &String| note.starts_with("load: how much it appends");
    assert!(results.notes.iter().any(note), "{:?}", results.notes);
}
