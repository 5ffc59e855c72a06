//! What the machine does not offer is replaced by the next best and said, or refused and said when it
//! was insisted on.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bickford_conformance::{
    BODY_DEADLINE, Combination, Finished, Io, Mount, OpenDevice, Preset, Scratch, StartLine,
    Transport, Watchdog, command_path, ordinary_user, passes_through, require_root, run, say,
    wait_for,
};

const DEADLINE: Duration = Duration::from_secs(60);
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The command in a mount namespace where `enable_uring` reads N; that of the machine, which others
/// use, is left alone.
fn without_uring(scratch: &Scratch, arguments: &[&str]) -> Command {
    let off = scratch.path().join("off");
    fs::write(&off, "N\n").expect("write");
    let script = format!("mount --bind \"$0\" {ENABLE_URING} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(off);
    command
        .arg(command_path())
        .args(["mount", "-f", "--preset=fast"]);
    command.args(arguments);
    command.args([scratch.directory("lower"), scratch.directory("mnt")]);
    command
}

fn uring_known() -> bool {
    let known = Path::new(ENABLE_URING).exists();
    if !known {
        say(format_args!(
            "left out: this kernel has no FUSE over io_uring"
        ));
    }
    known
}

/// A daemon in a mount namespace of its own, ended when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its mount goes with its namespace.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn io_uring_turned_off_is_said_and_dev_fuse_serves() {
    require_root();
    if !uring_known() {
        return;
    }
    let watchdog = Watchdog::start("io_uring off", BODY_DEADLINE);
    let scratch = Scratch::new("off");
    let path: PathBuf = scratch.path().join("log");
    let log = fs::File::create(&path).expect("log");
    let mut command = without_uring(&scratch, &["--transport=auto"]);
    let spawned = command.stdin(Stdio::null()).stderr(log).spawn();
    let daemon = Daemon(spawned.expect("daemon"));
    let read = || fs::read_to_string(&path).expect("log");
    wait_for(DEADLINE, || StartLine::find(&read()).is_some());
    drop(daemon);
    let log = read();
    let line = StartLine::find(&log).unwrap_or_default();
    assert_eq!(line.get("transport"), Some("dev_fuse"), "{log}");
    assert!(log.contains("enable_uring is N"), "{log}");
    drop(watchdog);
}

#[test]
fn io_uring_insisted_on_and_turned_off_is_refused() {
    require_root();
    if !uring_known() {
        return;
    }
    let watchdog = Watchdog::start("io_uring off", BODY_DEADLINE);
    let scratch = Scratch::new("off");
    let finished = run(&mut without_uring(&scratch, &["--transport=uring"]));
    refused(&finished, &["io_uring", "enable_uring is N"]);
    drop(watchdog);
}

fn refused(finished: &Finished, parts: &[&str]) {
    assert_eq!(finished.status.code(), Some(1), "{}", finished.report());
    for part in parts {
        assert!(
            finished.errors.contains(part),
            "{part}: {}",
            finished.report()
        );
    }
}

#[test]
fn pass_through_without_privileges_is_replaced_or_refused() {
    require_root();
    let _open = OpenDevice::new();
    let scratch = Scratch::new("fallback");
    let lower = scratch.directory_of_user("lower");
    let fast = Combination::preset(Preset::Fast);
    let mount = Mount::over(&lower, &fast).by_ordinary_user().must_start();
    assert_eq!(
        mount.start_line().get("io"),
        Some("plain"),
        "{}",
        mount.log()
    );
    mount.finish();
    let insisting = Combination::fast(Transport::Dev, Io::Passthrough);
    let started = Mount::over(&lower, &insisting).by_ordinary_user().start();
    let error = started.expect_err("pass-through without privileges");
    for part in ["passthrough", "CAP_SYS_ADMIN"] {
        assert!(error.log.contains(part), "{part}: {error}");
    }
}

#[test]
fn watching_without_privileges_is_said_and_the_cache_is_short() {
    require_root();
    let _open = OpenDevice::new();
    let (user, group) = ordinary_user();
    let scratch = Scratch::new("unwatched");
    let lower = scratch.directory_of_user("lower");
    let unwatched = Combination::fast(Transport::Dev, Io::Plain);
    let mount = Mount::over(&lower, &unwatched)
        .argument("--lower=watch")
        .by_ordinary_user()
        .must_start();
    assert_eq!(
        mount.start_line().get("lower"),
        Some("shared"),
        "{}",
        mount.log()
    );
    assert!(mount.log().contains("cannot be watched"), "{}", mount.log());
    // Only that user may look into the mount.
    let seen = || {
        let mut list = Command::new("ls");
        run(list.arg(mount.path()).uid(user).gid(group)).output
    };
    assert_eq!(seen(), "");
    fs::write(lower.join("new"), "").expect("write");
    assert!(
        wait_for(DEADLINE, || seen() == "new\n"),
        "a new name is never seen"
    );
    mount.finish();
}

/// The lower file system is a pass-through mount itself, which is as deep as the kernel goes: files
/// go through the daemon.
#[test]
fn a_lower_too_deep_for_pass_through_goes_through_the_daemon() {
    require_root();
    if !passes_through() {
        return say(format_args!("left out: Linux passes through from 6.9 on"));
    }
    let scratch = Scratch::new("deep");
    let passthrough = Combination::fast(Transport::Dev, Io::Passthrough);
    let below = Mount::over(&scratch.directory("lower"), &passthrough).must_start();
    let above = Mount::over(below.path(), &passthrough)
        .argument("--log=debug")
        .must_start();
    let contents = vec![7; 300_000];
    fs::write(above.path().join("file"), &contents).expect("write");
    assert!(fs::read(above.path().join("file")).expect("read") == contents);
    assert!(fs::read(scratch.path().join("lower/file")).expect("read") == contents);
    let log = above.log();
    assert!(log.contains("through the daemon"), "{log}");
    above.finish();
    below.finish();
}

const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

#[test]
fn low_latency_holds_the_device_while_requests_come() {
    require_root();
    if !Path::new(LATENCY_DEVICE).exists() {
        say(format_args!(
            "left out: no {LATENCY_DEVICE}; the kernel needs CONFIG_CPU_IDLE"
        ));
        return;
    }
    let scratch = Scratch::new("latency");
    for transport in [Transport::Dev, Transport::Uring] {
        if transport == Transport::Uring && !uring_known() {
            continue;
        }
        let combination = Combination::fast(transport, Io::Plain);
        let mount = Mount::over(&scratch.directory(&combination.to_string()), &combination)
            .argument("--low-latency")
            .must_start();
        assert_eq!(mount.start_line().get("low_latency"), Some("on:"));
        let held = || {
            let descriptors = fs::read_dir(format!("/proc/{}/fd", mount.daemon())).expect("fd");
            descriptors
                .flatten()
                .filter_map(|entry| fs::read_link(entry.path()).ok())
                .any(|target| target == Path::new(LATENCY_DEVICE))
        };
        assert!(wait_for(DEADLINE, || !held()), "held although nobody asks");
        let mut round = 0;
        let asked = || {
            // A new name each time, so that each is a request.
            round += 1;
            let _ = fs::metadata(mount.path().join(format!("missing-{round}")));
            held()
        };
        assert!(wait_for(DEADLINE, asked), "never held");
        assert!(wait_for(DEADLINE, || !held()), "never let go");
        mount.finish();
    }
}

#[test]
fn low_latency_and_read_ahead_without_privileges_are_said() {
    require_root();
    let _open = OpenDevice::new();
    let scratch = Scratch::new("latency");
    let lower = scratch.directory_of_user("lower");
    let combination = Combination::fast(Transport::Dev, Io::Plain);
    let mount = Mount::over(&lower, &combination)
        .argument("--low-latency")
        .argument("--log=debug")
        .by_ordinary_user()
        .must_start();
    let log = mount.log();
    assert_eq!(mount.start_line().get("low_latency"), Some("off:"), "{log}");
    let refused = format!("{LATENCY_DEVICE} cannot be held");
    assert!(log.contains(&refused), "{log}");
    assert_eq!(
        mount.start_line().get("read_ahead_kb"),
        Some("128"),
        "{log}"
    );
    assert!(log.contains("read_ahead_kb: Permission denied"), "{log}");
    mount.finish();
}

#[test]
fn read_ahead_is_raised_and_said() {
    require_root();
    let scratch = Scratch::new("read-ahead");
    let lower = scratch.directory("lower");
    for (combination, kib) in [
        (Combination::dev(Preset::Base, 1), "128"),
        (Combination::dev(Preset::Opt, 4), "128"),
        (Combination::fast(Transport::Dev, Io::Cached), "1024"),
    ] {
        let mount = Mount::over(&lower, &combination).must_start();
        let line = mount.start_line();
        assert_eq!(line.get("read_ahead_kb"), Some(kib), "{}", mount.log());
        mount.finish();
    }
}
