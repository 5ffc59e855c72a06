//! Without -f the command ends when the mount answers, and its status tells whether it does.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Place, Running, assert_refused, assert_silent, bickford, run, wait_until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Pid;

#[test]
fn the_mount_answers_when_the_command_has_ended() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    assert_eq!(fs::read(place.mountpoint().join("f")).unwrap(), b"content");
    let entry = place.listed().unwrap();
    assert_eq!(entry.fs_type, "fuse.bickford");
    assert_eq!(entry.source, place.source());

    place.unmount(&place.mountpoint());
    assert_eq!(place.listed(), None);
    wait_until("the daemon ends", || place.daemon().is_none());
}

#[test]
fn the_daemon_keeps_nothing_of_who_started_it() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&["-o", "fsname=one\\,two,ro"]));
    let entry = place.listed().unwrap();
    assert_eq!(entry.source, "one,two");
    assert!(fs::write(place.mountpoint().join("f"), "x").is_err(), "ro");
    let daemon = place.daemon().unwrap();
    let process = format!("/proc/{}", daemon.as_raw_nonzero());
    assert_eq!(
        fs::read_link(format!("{process}/cwd")).unwrap().to_str(),
        Some("/")
    );
    for descriptor in 0..3 {
        let target = fs::read_link(format!("{process}/fd/{descriptor}")).unwrap();
        assert_eq!(
            target.to_str(),
            Some("/dev/null"),
            "descriptor {descriptor}"
        );
    }
    assert_eq!(
        rustix::process::getsid(Some(daemon)).unwrap(),
        daemon,
        "its own session"
    );
}

#[test]
fn the_daemon_opens_as_many_files_as_it_may() {
    let Some(place) = Place::new() else { return };
    let script = "ulimit -Sn 256 && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_bickford"), "mount"]);
    assert_silent(&run(command.args([place.source(), place.mountpoint()])));
    let daemon = place.daemon().unwrap().as_raw_nonzero();
    let limits = fs::read_to_string(format!("/proc/{daemon}/limits")).unwrap();
    let words = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let words = words.unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(words.first(), words.get(1), "{limits}");
    place.unmount(&place.mountpoint());
}

#[test]
fn a_source_with_a_long_path_is_mounted_under_the_end_of_it() {
    let Some(place) = Place::new() else { return };
    let source = place.source().join("d".repeat(200)).join("e".repeat(200));
    fs::create_dir_all(&source).unwrap();
    let mut command = bickford();
    command.arg("mount").arg(&source).arg(place.mountpoint());
    assert_silent(&run(&mut command));
    let name = place.listed().unwrap().source.into_string().unwrap();
    assert_eq!(name.len(), 255);
    assert!(source.to_str().unwrap().ends_with(&name[3..]), "{name}");
    place.unmount(&place.mountpoint());
}

#[test]
fn statistics_go_to_the_file_named_where_the_command_was_called() {
    let Some(place) = Place::new() else { return };
    let mut command = bickford();
    command
        .current_dir(place.dir())
        .args(["mount", "--layer", "stats:file=counted"])
        .arg(place.source())
        .arg(place.mountpoint());
    assert_silent(&run(&mut command));
    assert_eq!(fs::read(place.mountpoint().join("f")).unwrap(), b"content");
    place.unmount(&place.mountpoint());
    wait_until("the figures are written", || {
        let text = fs::read_to_string(place.dir().join("counted")).unwrap();
        text.contains("lookup")
    });
}

#[test]
fn a_daemon_that_cannot_mount_says_why_and_fails() {
    let Some(place) = Place::new() else { return };
    // Found by the daemon, not by the check of the arguments.
    let full = place.dir().join("none/log");
    let output = place.mount(&["--log-file", full.to_str().unwrap()]);
    assert_refused(&output, 1, &["none/log", "No such file"]);
    let missing = place.dir().join("missing");
    let output = run(bickford().arg("mount").arg(place.source()).arg(&missing));
    assert_refused(&output, 1, &["missing", "does not exist"]);
    assert_eq!(place.listed(), None);
}

#[test]
fn a_mount_that_fails_leaves_no_new_key() {
    let Some(place) = Place::new() else { return };
    let (key, passphrase) = (place.source().join("key"), place.dir().join("passphrase"));
    fs::write(&passphrase, "secret").unwrap();
    let given = format!("crypt:key={},passphrase-file=", key.display());
    let layer = format!(
        "{given}{},create=true,memory=32K,passes=1",
        passphrase.display()
    );
    let missing = place.dir().join("missing");
    let mount = |arguments: &[&str], mountpoint: &Path| {
        let mut command = bickford();
        command
            .arg("mount")
            .args(arguments)
            .args(["--layer", &layer]);
        run(command.arg(place.source()).arg(mountpoint))
    };
    for mode in [&[][..], &["-f"]] {
        assert_refused(&mount(mode, &missing), 1, &["does not exist"]);
        assert!(!key.exists(), "{mode:?}");
        // The layers are made from the last to the first: this one after the key.
        let wrong = [mode, &["--layer", "stats:none=1"]].concat();
        assert_refused(&mount(&wrong, &place.mountpoint()), 1, &["none"]);
        assert!(!key.exists(), "{wrong:?}");
        let contradicting = [mode, &["--no-permission-checks", "-o", "allow_other"]].concat();
        let refused = mount(&contradicting, &place.mountpoint());
        assert_refused(&refused, 1, &["allow_other"]);
        assert!(!key.exists(), "{contradicting:?}");
    }
    assert!(mount(&[], &place.mountpoint()).status.success());
    place.unmount(&place.mountpoint());
    let made = fs::read(&key).unwrap();
    assert_refused(&mount(&[], &missing), 1, &["does not exist"]);
    assert_eq!(fs::read(&key).unwrap(), made, "it was there before");
}

/// The one that fails makes the key first, and waits for a passphrase until the other is mounted.
#[test]
fn a_mount_that_fails_leaves_the_new_key_of_another() {
    for (passphrase, why) in [("secret", "does not exist"), ("", "no passphrase")] {
        let Some(place) = Place::new() else { return };
        let file = |name: &str| place.dir().join(name);
        fs::write(file("passphrase"), "secret").unwrap();
        let layer = |key: &str, passphrase: &Path| {
            let (key, passphrase) = (file(key), passphrase.display());
            let given = format!("key={},passphrase-file={passphrase}", key.display());
            format!("crypt:{given},create=true,memory=32K,passes=1")
        };
        let shared = layer("key", &file("passphrase"));
        let waiting = layer("other", Path::new("/dev/stdin"));
        fs::create_dir(file("failing")).unwrap();
        let mut failing = bickford();
        failing.args(["mount", "-f", "--layer", &waiting, "--layer", &shared]);
        failing.args([file("failing"), file("missing")]);
        failing.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = failing.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let pid = child.id();
        let failing = Running::of(child);
        // Its pipe is read after the key was made.
        wait_until("it reads", || {
            let wchan = fs::read_to_string(format!("/proc/{pid}/wchan"));
            wchan.is_ok_and(|name| name.contains("pipe"))
        });
        assert!(place.mount(&["--layer", &shared]).status.success());
        fs::write(place.mountpoint().join("g"), "kept").unwrap();
        input.write_all(passphrase.as_bytes()).unwrap();
        drop(input);
        assert_refused(&failing.output(), 1, &[why, "uses it"]);
        assert!(!file("other").exists());
        place.unmount(&place.mountpoint());
        assert!(place.mount(&["--layer", &shared]).status.success());
        let kept = fs::read(place.mountpoint().join("g")).unwrap();
        assert_eq!(kept, b"kept", "{why}");
        place.unmount(&place.mountpoint());
    }
}

/// Both the command and its daemon make the layers: what is read but once is empty for the daemon, or waited for
/// without end.
#[test]
fn what_can_be_read_but_once_is_refused_in_the_background() {
    let Some(place) = Place::new() else { return };
    let (fifo, key) = (place.dir().join("fifo"), place.dir().join("key"));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (fifo, key) = (fifo.to_str().unwrap(), key.to_str().unwrap());
    let crypt = |from| format!("crypt:key={key},create=true,passphrase-file={from}");
    for layer in [
        crypt(fifo),
        crypt("/dev/stdin"),
        format!("stats:switches={fifo}"),
    ] {
        let output = place.mount(&["--layer", &layer]);
        assert_refused(&output, 1, &["can be read but once", "(-f)"]);
    }
    assert!(!Path::new(key).exists() && place.listed().is_none());
}

#[test]
fn the_log_goes_to_the_file() {
    let Some(place) = Place::new() else { return };
    let log = place.dir().join("log");
    assert_silent(&place.mount(&["--log-file", log.to_str().unwrap()]));
    place.unmount(&place.mountpoint());
    wait_until("the daemon has written its last line", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("unmounted"))
    });
    assert!(
        fs::read_to_string(&log)
            .unwrap()
            .contains("session started")
    );
    // What others may not list must not be told to them.
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn the_service_manager_is_told() {
    let Some(place) = Place::new() else { return };
    let path = place.dir().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mount = |mountpoint: &Path| {
        let mut command = bickford();
        command.env("NOTIFY_SOCKET", &path).arg("mount");
        assert_silent(&run(command.arg(place.source()).arg(mountpoint)));
    };
    mount(&place.mountpoint());
    let receive = || {
        let mut buffer = [0_u8; 512];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let ready = receive();
    let pid = place.daemon().unwrap();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    assert!(
        ready.contains(&format!("MAINPID={}\n", pid.as_raw_nonzero())),
        "{ready}"
    );
    place.unmount(&place.mountpoint());
    assert_eq!(receive(), "STOPPING=1");
    // A path is one line, whatever is in it.
    let odd = place.mountpoint().join("a\nBARRIER=1");
    fs::create_dir(&odd).unwrap();
    mount(&odd);
    let ready = receive();
    place.unmount(&odd);
    assert!(ready.ends_with("mnt/a\\nBARRIER=1"), "{ready}");
}

#[test]
fn a_directory_is_mounted_over_itself() {
    let Some(place) = Place::new() else { return };
    assert_silent(&run(bickford()
        .arg("mount")
        .args([place.source(), place.source()])));
    fs::write(place.source().join("g"), "through").unwrap();
    assert_eq!(fs::read(place.source().join("f")).unwrap(), b"content");
    place.unmount(&place.source());
    assert_eq!(fs::read(place.source().join("g")).unwrap(), b"through");
}

#[test]
fn a_directory_is_mounted_over_its_parent() {
    let Some(place) = Place::new() else { return };
    assert_silent(&run(bickford()
        .arg("mount")
        .args([place.source(), place.dir()])));
    assert_eq!(fs::read(place.dir().join("f")).unwrap(), b"content");
    assert!(!place.dir().join("src").exists());
    place.unmount(&place.dir());
    assert!(place.dir().join("src").exists());
}

#[test]
fn a_directory_is_mounted_inside_itself() {
    let Some(place) = Place::new() else { return };
    assert_silent(&run(bickford()
        .arg("mount")
        .args([place.dir(), place.mountpoint()])));
    assert_eq!(
        fs::read(place.mountpoint().join("src/f")).unwrap(),
        b"content"
    );
    assert_eq!(
        fs::read_dir(place.mountpoint().join("mnt"))
            .unwrap()
            .count(),
        0,
        "not into itself"
    );
    place.unmount(&place.mountpoint());
}

/// How often the threads of a process have gone to sleep by themselves.
fn sleeps(process: Pid) -> u64 {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let tasks = fs::read_dir(tasks).unwrap();
    let count = |task: fs::DirEntry| -> Option<u64> {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse().ok()
    };
    tasks.filter_map(|task| count(task.ok()?)).sum()
}

#[test]
fn an_idle_mount_wakes_nothing() {
    let Some(place) = Place::new() else { return };
    // What others do on a file system is told to who watches it.
    let tmpfs = run(Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(place.source()));
    assert_silent(&tmpfs);
    fs::write(place.source().join("f"), "content").unwrap();
    for arguments in [
        ["--preset", "base"],
        ["--preset", "opt"],
        ["--preset", "fast"],
        ["--lower", "watch"],
    ] {
        let running = place.mount_in_foreground(&arguments);
        wait_until("no thread has woken for half a second", || {
            let before = sleeps(running.pid());
            std::thread::sleep(Duration::from_millis(500));
            sleeps(running.pid()) == before
        });
        place.unmount(&place.mountpoint());
        running.output();
    }
    assert_silent(&run(Command::new("umount").arg(place.source())));
}
