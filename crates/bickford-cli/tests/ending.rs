//! Signals, unmounting, and daemons that are killed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bickford::mount::{MountOptions, Mounted, Unmount, mount};
use common::{
    Place, Running, assert_refused, assert_silent, bickford, run, stderr, stop, wait_until,
};
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};

/// A process whose current directory is `dir`; ends with the test.
struct Visitor(Child);

impl Visitor {
    fn in_directory(dir: &std::path::Path) -> Self {
        let mut command = Command::new("cat");
        command
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_signal_ends_it_cleanly() {
    let Some(place) = Place::new() else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let running = place.mount_in_foreground(&[]);
        kill_process(running.pid(), signal).unwrap();
        let output = running.output();
        assert!(output.status.success(), "{signal:?}: {output:?}");
        assert_eq!(place.listed(), None, "{signal:?}");
    }
}

#[test]
fn signals_that_were_ignored_stay_so() {
    let Some(place) = Place::new() else { return };
    // Without SIGCHLD nobody tells how the unmounting went.
    let running = place.mount_under(&["--ignore-signal=HUP,INT,CHLD"], &[]);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill_process(running.pid(), signal).unwrap();
    }
    let output = running.output();
    assert!(output.status.success(), "{output:?}");
    let log = stderr(&output);
    assert!(log.contains("SIGTERM: unmounting"), "{log}");
    assert!(
        !log.contains("detached") && !log.contains("aborting"),
        "{log}"
    );
}

#[test]
fn a_signal_ends_what_waits_for_a_passphrase() {
    let Some(place) = Place::new() else { return };
    let layer = "crypt:key=none,passphrase-file=/dev/stdin";
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_bickford")]);
    command.args(["mount", "-f", "--layer", layer]);
    command.args([place.source(), place.mountpoint()]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _written_to_by_nobody = child.stdin.take();
    let pid = child.id();
    let running = Running::of(child);
    wait_until("it reads", || {
        let wchan = fs::read_to_string(format!("/proc/{pid}/wchan"));
        wchan.is_ok_and(|name| name.contains("pipe"))
    });
    kill_process(running.pid(), Signal::INT).unwrap();
    let status = running.output().status;
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
}

#[test]
fn a_write_beyond_the_limit_of_the_daemon_does_not_end_it() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&["--io", "direct"]);
    let limit = Rlimit {
        current: Some(4096),
        maximum: Some(4096),
    };
    prlimit(Some(running.pid()), Resource::Fsize, limit).unwrap();
    let path = place.mountpoint().join("f");
    for _ in 0..2 {
        let file = File::options().write(true).open(&path).unwrap();
        let refused = file.write_at(b"x", 8192).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge, "{refused}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"content");
    kill_process(running.pid(), Signal::TERM).unwrap();
    let output = running.output();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output).matches("ulimit -f").count(), 1);
}

#[test]
fn a_busy_mount_is_served_until_a_second_signal() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    let held = File::open(place.mountpoint().join("f")).unwrap();
    kill_process(running.pid(), Signal::TERM).unwrap();
    wait_until("it is detached", || place.listed().is_none());
    let mut content = String::new();
    std::io::Read::read_to_string(&mut &held, &mut content).unwrap();
    assert_eq!(content, "content");
    kill_process(running.pid(), Signal::TERM).unwrap();
    let output = running.output();
    let log = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{log}");
    let holder = format!("pid {}", std::process::id());
    assert!(log.contains("busy") && log.contains(&holder), "{log}");
}

#[test]
fn a_detached_mount_ends_with_its_last_user() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    let held = File::open(place.mountpoint().join("f")).unwrap();
    assert_silent(&run(bickford()
        .args(["unmount", "--lazy"])
        .arg(place.mountpoint())));
    assert_eq!(place.listed(), None);
    drop(held);
    let output = running.output();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn unmounting_waits_for_the_daemon_to_end() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    let daemon = place.daemon().unwrap();
    stop(daemon);
    let child = bickford()
        .arg("unmount")
        .arg(place.mountpoint())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut unmounting = Running::of(child);
    wait_until("it is unmounted", || place.listed().is_none());
    std::thread::sleep(Duration::from_millis(200));
    unmounting.assert_runs();
    kill_process(daemon, Signal::CONT).unwrap();
    assert_silent(&unmounting.output());
    assert_eq!(place.daemon(), None);
}

#[test]
fn unmounting_one_of_two_places_does_not_wait_for_the_daemon() {
    let Some(place) = Place::new() else { return };
    let mut running = place.mount_in_foreground(&[]);
    let bound = place.dir().join("bound");
    fs::create_dir(&bound).unwrap();
    rustix::mount::mount_bind(place.mountpoint(), &bound).unwrap();
    for (taken, left) in [
        (&bound, Some(place.mountpoint())),
        (&place.mountpoint(), None),
    ] {
        let begun = std::time::Instant::now();
        let output = run(bickford().arg("unmount").arg(taken));
        let message = stderr(&output);
        assert!(output.status.success(), "{message}");
        match left {
            Some(left) => {
                let shown = format!("mounted at {} still", left.display());
                assert!(message.contains(&shown), "{message}");
                assert!(begun.elapsed() < Duration::from_secs(10), "it waited");
                running.assert_runs();
            }
            None => assert_eq!(message, ""),
        }
    }
    assert!(running.output().status.success());
}

/// A process in a mount namespace of its own, to which nothing of this one is told.
fn in_own_namespace() -> Running {
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let running = Running::of(command.spawn().unwrap());
    let process = format!("/proc/{}", running.pid());
    wait_until("it has its own mounts", || {
        let runs = fs::read_to_string(format!("{process}/comm"));
        runs.is_ok_and(|name| name == "cat\n")
            && fs::read_link(format!("{process}/ns/mnt")).is_ok_and(|its| its != own)
    });
    running
}

#[test]
fn unmounting_tells_of_other_mount_namespaces() {
    let Some(place) = Place::new() else { return };
    let mut running = place.mount_in_foreground(&[]);
    let other = in_own_namespace();
    let begun = std::time::Instant::now();
    let output = run(bickford().arg("unmount").arg(place.mountpoint()));
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    let advice = format!("nsenter -t {} -m umount", other.pid());
    assert!(
        message.contains("unmounted here") && message.contains(&advice),
        "{message}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited");
    running.assert_runs();
    drop(other);
    assert!(running.output().status.success());
}

#[test]
fn a_signal_tells_of_other_mount_namespaces() {
    let Some(place) = Place::new() else { return };
    let log = place.dir().join("log");
    let running = place.mount_in_foreground(&["--log-file", log.to_str().unwrap()]);
    let other = in_own_namespace();
    kill_process(running.pid(), Signal::TERM).unwrap();
    let told = format!("for pid {} (cat)", other.pid());
    wait_until("it says where it is mounted still", || {
        fs::read_to_string(&log).unwrap().contains(&told)
    });
    assert_eq!(place.listed(), None);
    drop(other);
    assert!(running.output().status.success());
}

#[test]
fn a_signal_leaves_the_mount_of_another_daemon_alone() {
    let Some(place) = Place::new() else { return };
    let log = place.dir().join("log");
    let first = place.mount_in_foreground(&["--log-file", log.to_str().unwrap()]);
    let held = File::open(place.mountpoint().join("f")).unwrap();
    assert_silent(&run(bickford()
        .args(["unmount", "--lazy"])
        .arg(place.mountpoint())));
    let second = place.mount_in_foreground(&[]);
    let listed = place.listed().unwrap();
    kill_process(first.pid(), Signal::TERM).unwrap();
    wait_until("the signal is handled", || {
        let said = fs::read_to_string(&log).unwrap();
        said.contains("detached; serving until the last user is gone")
    });
    assert_eq!(place.listed(), Some(listed));
    assert_eq!(fs::read(place.mountpoint().join("f")).unwrap(), b"content");
    drop(held);
    assert!(first.output().status.success());
    kill_process(second.pid(), Signal::TERM).unwrap();
    assert!(second.output().status.success());
    assert_eq!(place.listed(), None);
}

#[test]
fn a_covered_mount_ends_when_it_is_uncovered() {
    let Some(place) = Place::new() else { return };
    let log = place.dir().join("log");
    let first = place.mount_in_foreground(&["--log-file", log.to_str().unwrap()]);
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", place.mountpoint(), "tmpfs", flags, None).unwrap();
    kill_process(first.pid(), Signal::TERM).unwrap();
    wait_until("the signal is handled", || {
        fs::read_to_string(&log).unwrap().contains("covered by")
    });
    let detached = rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(place.mountpoint(), detached).unwrap();
    assert!(first.output().status.success());
    assert_eq!(place.listed(), None);
}

#[test]
fn unmounting_by_identity_takes_no_other_mount() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    let told = format!("1:{}", place.mountpoint().display());
    let output = run(bickford().env("BICKFORD_UNMOUNT", told));
    assert_refused(&output, 1, &["another mount is there"]);
    assert!(place.listed().is_some());
    place.unmount(&place.mountpoint());
}

#[test]
fn a_signal_ends_the_session_of_a_passed_descriptor() {
    let Some(place) = Place::new() else { return };
    let counted = place.dir().join("counted");
    let mounted = mount(&place.mountpoint(), &MountOptions::new()).unwrap();
    let Mounted { device, guard, .. } = mounted;
    let mut command = bickford();
    command
        .args(["mount", "-f", "--layer"])
        .arg(format!("stats:file={}", counted.display()))
        .arg(place.source())
        .arg("/dev/fd/0")
        .stdin(Stdio::from(device))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = Running::of(command.spawn().unwrap());
    drop(command);
    assert_eq!(fs::read(place.mountpoint().join("f")).unwrap(), b"content");
    kill_process(running.pid(), Signal::TERM).unwrap();
    let output = running.output();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&counted).unwrap();
    assert!(text.contains("lookup"), "{text}");
    guard.unmount(Unmount::Lazy).unwrap();
}

#[test]
fn a_busy_unmount_says_who() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    let visitor = Visitor::in_directory(&place.mountpoint());
    let held = File::open(place.mountpoint().join("f")).unwrap();
    let unmount = || run(bickford().arg("unmount").arg(place.mountpoint()));
    let visits = format!("pid {} (cat): current directory", visitor.0.id());
    let opened = format!("pid {}", std::process::id());
    assert_refused(&unmount(), 1, &["busy", &visits, &opened, "descriptor"]);
    assert!(place.listed().is_some());
    drop(held);
    drop(visitor);
    // RELEASE is sent after close(2) has returned; the descriptor is the kernel's until then.
    wait_until("nobody is there any more", || unmount().status.success());
    assert_eq!(place.listed(), None);
}

#[test]
fn a_mount_that_hangs_is_taken_away_by_force() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    stop(running.pid());
    assert_silent(&run(bickford()
        .args(["unmount", "--force"])
        .arg(place.mountpoint())));
    assert_eq!(place.listed(), None);
    kill_process(running.pid(), Signal::CONT).unwrap();
    let output = running.output();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_mount_whose_daemon_was_killed_is_recognised_and_unmounted() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.output();
    // Attributes may be cached.
    rustix::fs::statfs(place.mountpoint()).unwrap_err();
    assert_refused(
        &place.mount(&[]),
        1,
        &["server is gone", "bickford unmount"],
    );
    place.unmount(&place.mountpoint());
    assert_eq!(place.listed(), None);
}

#[test]
fn auto_unmount_outlives_kill() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&["-o", "auto_unmount"]);
    let connection = place.listed().unwrap().connection();
    let socket = bickford::trace::control::socket_path(connection);
    assert!(socket.exists());
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.output();
    wait_until("the mount is gone", || place.listed().is_none());
    assert_ne!(refused(&socket), Some(io::ErrorKind::ConnectionRefused));
}

#[test]
fn an_aborted_connection_is_a_failure() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    let connection = place.listed().unwrap().minor;
    if bickford::mount::abort(connection).is_err() {
        crate::common::say(format_args!(
            "left out: /sys/fs/fuse/connections is not mounted"
        ));
        return;
    }
    let output = running.output();
    assert_refused(&output, 1, &["the connection was aborted"]);
    assert_eq!(place.listed(), None);
}

#[test]
fn the_socket_of_a_daemon_that_was_killed_goes_with_its_mount() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    let connection = place.listed().unwrap().minor;
    let socket = bickford::trace::control::socket_path(connection);
    assert!(socket.exists());
    let daemon = place.daemon().unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the daemon is gone", || place.daemon().is_none());
    assert!(socket.exists(), "it is left");
    place.unmount(&place.mountpoint());
    assert_ne!(
        refused(&socket),
        Some(std::io::ErrorKind::ConnectionRefused)
    );
}

/// As that of a daemon that is stopped, or that another user has put there.
#[test]
fn unmounting_waits_for_no_socket_that_accepts_nobody() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    let connection = place.listed().unwrap().connection();
    let path = bickford::trace::control::socket_path(connection);
    fs::remove_file(&path).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let inode = || fs::metadata(&path).map(|found| found.ino());
    let own = inode().unwrap();
    let reached = || bickford::trace::control::connect(&path);
    // As many as may wait to be accepted.
    let _waiting: Vec<_> = std::iter::from_fn(|| reached().ok()).take(8).collect();
    let full = reached().map_err(|error| error.kind()).err();
    assert_eq!(full, Some(io::ErrorKind::TimedOut));
    place.unmount(&place.mountpoint());
    assert_eq!(place.listed(), None);
    // Another mount may have the number by now, and its own there.
    if inode().is_ok_and(|inode| inode == own) {
        fs::remove_file(&path).unwrap();
    }
}

/// Another mount may have got the number meanwhile, and listen there.
fn refused(socket: &std::path::Path) -> Option<std::io::ErrorKind> {
    let tried = std::os::unix::net::UnixStream::connect(socket);
    tried.err().map(|error| error.kind())
}

#[test]
fn unmounting_a_mount_that_hangs_says_that_requests_wait() {
    let Some(place) = Place::new() else { return };
    let served = place.mount_in_foreground(&["--preset", "base"]);
    stop(served.pid());
    let mut command = Command::new("stat");
    command.arg(place.mountpoint().join("none"));
    let asks = Running::of(command.stderr(Stdio::null()).spawn().unwrap());
    let wchan = format!("/proc/{}/wchan", asks.pid().as_raw_nonzero());
    wait_until("it waits", || {
        fs::read_to_string(&wchan).is_ok_and(|name| name.contains("request_wait"))
    });
    let refused = run(bickford().arg("unmount").arg(place.mountpoint()));
    assert_refused(&refused, 1, &["busy", "bickford stat", "--force"]);
    assert!(!stderr(&refused).contains("as root"), "{refused:?}");
    kill_process(served.pid(), Signal::CONT).unwrap();
    assert!(!asks.output().status.success());
}

#[test]
fn unmounting_from_within_names_others_only() {
    let Some(place) = Place::new() else { return };
    assert_silent(&place.mount(&[]));
    let mut command = bickford();
    command
        .current_dir(place.mountpoint())
        .args(["unmount", "../mnt"]);
    let output = run(&mut command);
    assert!(!stderr(&output).contains("(bickford)"), "{output:?}");
    if place.listed().is_some() {
        place.unmount(&place.mountpoint());
    }
}

#[test]
fn what_is_mounted_below_is_to_go_first() {
    let Some(place) = Place::new() else { return };
    fs::create_dir(place.source().join("below")).unwrap();
    assert_silent(&place.mount(&[]));
    let below = place.mountpoint().join("below");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &below, "tmpfs", flags, None).unwrap();
    let refused = run(bickford().arg("unmount").arg(place.mountpoint()));
    rustix::mount::unmount(&below, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_refused(&refused, 1, &["mnt/below", "unmount that first"]);
    assert!(!stderr(&refused).contains("end them"), "{refused:?}");
    place.unmount(&place.mountpoint());
}
