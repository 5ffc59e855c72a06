//! As a user without privileges, through fusermount3.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use common::{
    NOBODY, Place, Running, as_nobody, as_user, assert_refused, assert_silent, in_namespace,
    installed, run, wait_until,
};
use rustix::process::{Signal, kill_process};

/// A place of the user, in a namespace where /dev/fuse is open to all as udev makes it, and where
/// `fuse_conf` is the content of /etc/fuse.conf.
fn place(test: &str, fuse_conf: &str) -> Option<Place> {
    if !installed("fusermount3") || !installed("setpriv") || !installed("unshare") {
        return None;
    }
    let place = Place::new()?;
    if !in_namespace(test, &place, fuse_conf) {
        return None;
    }
    place.give_to_nobody();
    Some(place)
}

#[test]
fn a_user_mounts_and_unmounts() {
    let Some(place) = place("a_user_mounts_and_unmounts", "") else {
        return;
    };
    let program = place.public_program();
    let mount = run(as_nobody(&program)
        .arg("mount")
        .args([place.source(), place.mountpoint()]));
    assert_silent(&mount);
    let entry = place.listed().unwrap();
    assert!(
        entry.super_options.contains(&format!("user_id={NOBODY}")),
        "{entry:?}"
    );
    assert_eq!(
        (entry.fs_type.as_str(), entry.source.as_os_str()),
        ("fuse.bickford", place.source().as_os_str())
    );
    assert!(
        entry.options.contains("nosuid") && entry.options.contains("nodev"),
        "{entry:?}"
    );

    let cat = run(as_nobody("cat".as_ref()).arg(place.mountpoint().join("f")));
    assert_eq!(cat.stdout, b"content");
    assert!(
        fs::read(place.mountpoint().join("f")).is_err(),
        "root is another user"
    );

    assert_silent(&run(as_nobody(&program)
        .arg("unmount")
        .arg(place.mountpoint())));
    assert_eq!(place.listed(), None);
    wait_until("the daemon ends", || place.daemon().is_none());
}

/// execve(2) leaves signals ignored, and whoever starts this may have had SIGCHLD so.
#[test]
fn a_user_mounts_and_unmounts_where_no_status_of_children_is_kept() {
    let Some(place) = place(
        "a_user_mounts_and_unmounts_where_no_status_of_children_is_kept",
        "",
    ) else {
        return;
    };
    let program = place.public_program();
    let ignoring = || {
        let mut command = as_nobody("env".as_ref());
        command.arg("--ignore-signal=CHLD").arg(&program);
        command
    };
    let mounted = run(ignoring()
        .arg("mount")
        .args([place.source(), place.mountpoint()]));
    if String::from_utf8_lossy(&mounted.stderr).contains("unrecognized option") {
        return crate::common::say(format_args!("left out: env(1) cannot ignore signals"));
    }
    assert_silent(&mounted);
    let cat = run(as_nobody("cat".as_ref()).arg(place.mountpoint().join("f")));
    assert_eq!(cat.stdout, b"content");
    assert_silent(&run(ignoring().arg("unmount").arg(place.mountpoint())));
    assert_eq!(place.listed(), None);
    wait_until("the daemon ends", || place.daemon().is_none());
}

#[test]
fn a_user_who_may_not_let_others_in_is_told_why() {
    let Some(place) = place("a_user_who_may_not_let_others_in_is_told_why", "") else {
        return;
    };
    let program = place.public_program();
    for option in ["allow_other", "allow_root"] {
        let mut command = as_nobody(&program);
        let output = run(command
            .args(["mount", "-o", option])
            .args([place.source(), place.mountpoint()]));
        assert_refused(&output, 1, &[option, "user_allow_other", "/etc/fuse.conf"]);
    }
    assert_eq!(place.listed(), None);
}

#[test]
fn a_user_who_may_lets_others_in() {
    let test = "a_user_who_may_lets_others_in";
    let Some(place) = place(test, "user_allow_other\n") else {
        return;
    };
    let program = place.public_program();
    for option in ["allow_other", "allow_root"] {
        let mut command = as_nobody(&program);
        let command = command.args(["mount", "-o", option]);
        assert_silent(&run(command.args([place.source(), place.mountpoint()])));
        assert_eq!(
            fs::read(place.mountpoint().join("f")).unwrap(),
            b"content",
            "{option}"
        );
        let other = run(as_user("cat".as_ref(), NOBODY - 1).arg(place.mountpoint().join("f")));
        assert_eq!(
            other.status.success(),
            option == "allow_other",
            "{option}: {other:?}"
        );
        assert_silent(&run(as_nobody(&program)
            .arg("unmount")
            .arg(place.mountpoint())));
    }
}

/// The kernel lets everybody in, and may answer without a request.
#[test]
fn what_is_cached_is_not_for_who_is_kept_out_by_allow_root() {
    let Some(place) = Place::new().filter(|_| installed("setpriv")) else {
        return;
    };
    let (source, file) = (place.source(), place.mountpoint().join("f"));
    let modes = [(&source, 0o705), (&source.join("f"), 0o606)];
    for (path, mode) in modes {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for more in [&[][..], &["--io=cached"], &["--preset=opt"]] {
        assert_silent(&place.mount(&[&["-o", "allow_root"][..], more].concat()));
        // Afterwards the kernel has asked for all that it asks for to open it.
        for _ in 0..2 {
            assert_eq!(fs::read(&file).unwrap(), b"content");
        }
        fs::OpenOptions::new().append(true).open(&file).unwrap();
        for script in ["stat $0", "cat <$0", "echo more >>$0", "ls ${0%/*}"] {
            let other = run(as_nobody("sh".as_ref()).args(["-c", script]).arg(&file));
            assert!(
                !other.status.success() && other.stdout.is_empty(),
                "{more:?}: {script}: {other:?}"
            );
        }
        place.unmount(&place.mountpoint());
        assert_eq!(fs::read(source.join("f")).unwrap(), b"content", "{more:?}");
    }
}

#[test]
fn what_fusermount3_refuses_is_passed_on() {
    let Some(place) = place("what_fusermount3_refuses_is_passed_on", "") else {
        return;
    };
    let program = place.public_program();
    // Root's directory: not writable for this user.
    std::os::unix::fs::chown(place.mountpoint(), Some(0), Some(0)).unwrap();
    let output = run(as_nobody(&program)
        .arg("mount")
        .args([place.source(), place.mountpoint()]));
    assert_refused(&output, 1, &["fusermount3:", "mnt"]);
    assert_eq!(place.listed(), None);
}

#[test]
fn a_helper_that_cannot_be_started_is_told_with_the_limit() {
    let Some(place) = place("a_helper_that_cannot_be_started_is_told_with_the_limit", "") else {
        return;
    };
    let program = place.public_program();
    // Nobody else's processes count: there is room for this one and its threads for signals, and for no helper.
    let alone = NOBODY - 2;
    std::os::unix::fs::chown(place.mountpoint(), Some(alone), Some(alone)).unwrap();
    std::os::unix::fs::chown(place.source(), Some(alone), Some(alone)).unwrap();
    let mount = || {
        let mut command = as_user("prlimit".as_ref(), alone);
        command.args(["--nproc=3", "--"]);
        command.arg(&program).args(["mount", "-f"]);
        run(command.args([place.source(), place.mountpoint()]))
    };
    // A thread that has ended counts for a moment.
    let has_threads = |output: &Output| {
        let told = String::from_utf8_lossy(&output.stderr);
        !told.contains("start the thread")
    };
    let output = (0..200).map(|_| mount()).find(has_threads).unwrap();
    assert_refused(&output, 1, &["/fusermount3: ", "ulimit -u"]);
    assert_eq!(place.listed(), None);
}

/// In a user namespace root has a limit, too, and unmounts without a helper.
#[test]
fn a_signal_unmounts_where_no_further_thread_can_be_started() {
    let test = "a_signal_unmounts_where_no_further_thread_can_be_started";
    let Some(place) = place(test, "") else { return };
    let program = place.public_program();
    let alone = NOBODY - 3;
    for path in [place.source(), place.mountpoint()] {
        std::os::unix::fs::chown(path, Some(alone), Some(alone)).unwrap();
    }
    let unshared = || {
        let mut command = as_user("unshare".as_ref(), alone);
        command.args(["--user", "--map-root-user", "--mount", "--"]);
        command
    };
    if !run(unshared().arg("true")).status.success() {
        return common::say(format_args!("left out: no user namespaces"));
    }
    let mut mount = unshared();
    mount.arg(program).args(["mount", "-f"]);
    mount.args([place.source(), place.mountpoint()]);
    let mut child = mount.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let running = Running::of(child);
    let mounted = log.any(|line| line.unwrap().contains("mounted source="));
    assert!(mounted);
    let pid = running.pid().as_raw_nonzero().to_string();
    assert_silent(&run(as_user("prlimit".as_ref(), alone).args([
        "--nproc=0",
        "--pid",
        &pid,
    ])));
    kill_process(running.pid(), Signal::TERM).unwrap();
    let output = running.output();
    let log: Vec<_> = log.map_while(Result::ok).collect();
    assert!(output.status.success(), "{output:?}: {log:?}");
}

#[test]
fn a_second_mount_of_a_user_is_told_of_the_first() {
    let Some(place) = place("a_second_mount_of_a_user_is_told_of_the_first", "") else {
        return;
    };
    let program = place.public_program();
    let mount = || {
        let mut command = as_nobody(&program);
        run(command
            .arg("mount")
            .args([place.source(), place.mountpoint()]))
    };
    assert_silent(&mount());
    assert_refused(&mount(), 1, &["there already", "bickford unmount"]);
    let mut unmount = as_nobody(&program);
    assert_silent(&run(unmount.arg("unmount").arg(place.mountpoint())));
    assert_eq!(place.listed(), None);
}

#[test]
fn a_mode_that_a_user_cannot_have_is_refused_with_its_reason() {
    let test = "a_mode_that_a_user_cannot_have_is_refused_with_its_reason";
    let Some(place) = place(test, "") else {
        return;
    };
    let mut command = as_nobody(&place.public_program());
    command.args(["mount", "--io=passthrough", "--log=off"]);
    let output = run(command.args([place.source(), place.mountpoint()]));
    assert_refused(
        &output,
        1,
        &["io=passthrough", "CAP_SYS_ADMIN", "use io=cached"],
    );
    assert_eq!(place.listed(), None);
}

#[test]
fn the_mount_of_another_user_is_told_to_be_theirs() {
    let Some(place) = place("the_mount_of_another_user_is_told_to_be_theirs", "") else {
        return;
    };
    assert_silent(&place.mount(&["-o", "allow_other"]));
    let mut command = as_nobody(&place.public_program());
    let refused = run(command.arg("unmount").arg(place.mountpoint()));
    assert_refused(&refused, 1, &["mounted by uid 0 (root)", "run as root"]);
    place.unmount(&place.mountpoint());
}

#[test]
fn auto_unmount_outlives_kill_for_users_too() {
    let Some(place) = place("auto_unmount_outlives_kill_for_users_too", "") else {
        return;
    };
    let program = place.public_program();
    let mut command = as_nobody(&program);
    command
        .args(["mount", "-o", "auto_unmount"])
        .args([place.source(), place.mountpoint()]);
    assert_silent(&run(&mut command));
    let daemon = place.daemon().unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the mount is gone", || place.listed().is_none());
}

#[test]
fn a_busy_unmount_says_who_to_users_too() {
    let Some(place) = place("a_busy_unmount_says_who_to_users_too", "") else {
        return;
    };
    let program = place.public_program();
    assert_silent(&run(as_nobody(&program)
        .arg("mount")
        .args([place.source(), place.mountpoint()])));
    let mut command = as_nobody("tail".as_ref());
    command
        .arg("-f")
        .arg(place.mountpoint().join("f"))
        .stdout(Stdio::piped());
    let mut visitor = command.spawn().unwrap();
    // What it prints shows that it has the file open.
    let mut content = [0_u8; 7];
    visitor
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut content)
        .unwrap();
    let unmount = || run(as_nobody(&program).arg("unmount").arg(place.mountpoint()));
    let visits = format!("pid {} (tail): descriptor", visitor.id());
    assert_refused(&unmount(), 1, &["busy", &visits]);
    visitor.kill().unwrap();
    visitor.wait().unwrap();
    wait_until("nobody is there any more", || unmount().status.success());
}

#[test]
fn doctor_knows_the_way_of_a_user() {
    let Some(place) = place("doctor_knows_the_way_of_a_user", "") else {
        return;
    };
    let output = run(as_nobody(&place.public_program()).arg("doctor"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("through fusermount3"), "{text}");
}

#[test]
fn doctor_tells_what_a_user_namespace_lacks() {
    if !installed("unshare") || Place::new().is_none() {
        return;
    }
    let doctor = |flags: &str| {
        let program = env!("CARGO_BIN_EXE_bickford");
        let output =
            run(std::process::Command::new("unshare").args([flags, program, "doctor", "/"]));
        String::from_utf8(output.stdout).unwrap()
    };
    let own = doctor("-Urm");
    if own.is_empty() {
        crate::common::say(format_args!("left out: no user namespaces here"));
        return;
    }
    let line = |text: &str, name: &str| {
        let found = text.lines().find(|line| line.starts_with(name));
        found.unwrap_or_default().to_owned()
    };
    assert!(line(&own, "mounting").contains("directly"), "{own}");
    for name in ["pass-through", "file handles"] {
        assert!(!line(&own, name).contains(" ok "), "{own}");
    }
    assert!(
        !line(&own, "pipes for splice").contains("any size"),
        "{own}"
    );
    assert!(own.contains("outside of this user namespace"), "{own}");
    // A mount namespace of another user namespace.
    let alien = doctor("-Ur");
    assert!(line(&alien, "mounting").contains("NEEDED"), "{alien}");
}

#[test]
fn root_sees_the_statistics_of_a_users_mount() {
    let Some(place) = place("root_sees_the_statistics_of_a_users_mount", "") else {
        return;
    };
    let program = place.public_program();
    let runtime = place.dir().join("runtime");
    // A daemon that has no runtime directory has its socket below /tmp.
    let mut command = as_nobody(&program);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR");
    assert_silent(&run(command
        .arg("mount")
        .args([place.source(), place.mountpoint()])));
    let cat = run(as_nobody("cat".as_ref()).arg(place.mountpoint().join("f")));
    assert_eq!(cat.stdout, b"content");
    let seen = |command: &mut std::process::Command| {
        let output = run(command
            .env("XDG_RUNTIME_DIR", &runtime)
            .args(["stat", "--json"])
            .arg(place.mountpoint()));
        assert_silent(&output);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let report = seen(&mut common::bickford());
    let rows = report["session"]["opcodes"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "LOOKUP"), "{report:#}");
    assert_eq!(report["session_error"], serde_json::Value::Null);
    // Another user may not, and is told so.
    let report = seen(&mut as_user(&program, NOBODY - 1));
    assert_eq!(report["session"], serde_json::Value::Null);
    let reason = report["session_error"].as_str().unwrap();
    assert!(
        reason.contains("run as root or as user 65534"),
        "{report:#}"
    );
    let mut table = as_user(&program, NOBODY - 1);
    let table = run(table.arg("stat").arg(place.mountpoint()));
    let table = String::from_utf8(table.stdout).unwrap();
    if fs::read_dir("/sys/fs/fuse/connections").is_ok_and(|mut all| all.next().is_some()) {
        assert!(table.contains("told to root"), "{table}");
    }
    // Whether tracefs is mounted is not seen by all.
    let mut trace = as_nobody(&program);
    let trace = run(trace
        .args(["trace", "--duration", "0"])
        .arg(place.mountpoint()));
    if bickford::trace::kernel::tracefs().is_ok() {
        assert_refused(&trace, 1, &["Permission denied", "run as root"]);
    }
    assert_silent(&run(as_nobody(&program)
        .arg("unmount")
        .arg(place.mountpoint())));
}

#[test]
fn user_0_of_a_namespace_sees_the_statistics_of_its_mount() {
    let test = "user_0_of_a_namespace_sees_the_statistics_of_its_mount";
    let Some(place) = place(test, "") else {
        return;
    };
    // As mounts of root leave it.
    if let Err(error) = fs::create_dir("/run/bickford") {
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    }
    let runtime = place.dir().join("runtime");
    fs::create_dir(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
    let commands = r#""$0" mount "$1" "$2" && "$0" stat --json "$2"; "$0" unmount "$2""#;
    let mut command = as_nobody("unshare".as_ref());
    let arguments = [place.public_program(), place.source(), place.mountpoint()];
    command.env("XDG_RUNTIME_DIR", runtime);
    command.args(["-Urm", "sh", "-c", commands]).args(arguments);
    let output = run(&mut command);
    if common::stderr(&output).contains("unshare failed") {
        return common::say(format_args!("left out: users have no namespaces here"));
    }
    assert_silent(&output);
    let report = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    assert!(report["session"]["opcodes"].is_array(), "{report:#}");
}

#[test]
fn the_sockets_of_a_user_leave_no_directory() {
    let Some(place) = place("the_sockets_of_a_user_leave_no_directory", "") else {
        return;
    };
    let program = place.public_program();
    let runtime = place.dir().join("runtime");
    fs::create_dir(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
    let sockets = runtime.join(format!("bickford-{NOBODY}"));
    let unmount = || {
        let mut command = as_nobody(&program);
        command.env("XDG_RUNTIME_DIR", &runtime).arg("unmount");
        assert_silent(&run(command.arg(place.mountpoint())));
    };
    let mount = |options: &[&str]| {
        let mut command = as_nobody(&program);
        command.env("XDG_RUNTIME_DIR", &runtime);
        command.arg("mount").args(options);
        assert_silent(&run(command.args([place.source(), place.mountpoint()])));
        assert_eq!(fs::read_dir(&sockets).unwrap().count(), 1);
    };
    mount(&[]);
    unmount();
    wait_until("the directory is gone", || !sockets.exists());
    mount(&[]);
    kill_process(place.daemon().unwrap(), Signal::KILL).unwrap();
    wait_until("the daemon is gone", || place.daemon().is_none());
    unmount();
    assert!(!sockets.exists());
    mount(&["-o", "auto_unmount"]);
    kill_process(place.daemon().unwrap(), Signal::KILL).unwrap();
    wait_until("it is unmounted", || place.listed().is_none());
    assert!(!sockets.exists());
}

/// As su(1) and the like leave it.
#[test]
fn a_runtime_directory_that_is_not_the_users_is_not_used() {
    let test = "a_runtime_directory_that_is_not_the_users_is_not_used";
    let Some(place) = place(test, "") else {
        return;
    };
    let program = place.public_program();
    let of_root = place.dir().join("runtime");
    fs::create_dir(&of_root).unwrap();
    for runtime in [of_root.to_str().unwrap(), "relative", "", "/nonexistent"] {
        let mut mount = as_nobody(&program);
        mount
            .env("XDG_RUNTIME_DIR", runtime)
            .env_remove("TMPDIR")
            .arg("mount");
        assert_silent(&run(mount.args([place.source(), place.mountpoint()])));
        let mut stat = as_nobody(&program);
        stat.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR");
        let output = run(stat.args(["stat", "--json"]).arg(place.mountpoint()));
        let report = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
        assert!(report["session"].is_object(), "{runtime:?}: {report:#}");
        let mut unmount = as_nobody(&program);
        unmount.env_remove("XDG_RUNTIME_DIR").arg("unmount");
        assert_silent(&run(unmount.arg(place.mountpoint())));
    }
}
