//! The harness itself: a daemon that stops answering ends in a failure, not in a hang.

use std::fs;
use std::time::Duration;

use bickford_conformance::{Combination, Mount, Scratch, Watchdog, require_root, wait_for};
use rustix::process::{Pid, Signal, kill_process};

#[test]
#[should_panic(expected = "did not end before its deadline")]
fn a_hanging_mount_is_taken_down_and_fails_its_test() {
    require_root();
    let Some(combination) = Combination::all().into_iter().next() else {
        return;
    };
    let scratch = Scratch::new("hang");
    let lower = scratch.directory("lower");
    let mount = Mount::over(&lower, &combination)
        .deadline(Duration::from_secs(2))
        .must_start();
    stop(&mount);
    hang(&mount);
    drop(mount);
}

#[test]
#[should_panic(expected = "over did not end before its deadline")]
fn what_is_mounted_below_the_directory_of_a_watchdog_is_aborted_with_it() {
    require_root();
    let Some(combination) = Combination::all().into_iter().next() else {
        return;
    };
    let scratch = Scratch::new("over");
    let mount = Mount::over(&scratch.directory("lower"), &combination).must_start();
    stop(&mount);
    let above = mount.path().parent().expect("parent");
    let watchdog = Watchdog::start("over", Duration::from_secs(1)).over(above);
    hang(&mount);
    drop(mount);
    drop(watchdog);
}

fn stop(mount: &Mount) {
    let daemon = i32::try_from(mount.daemon()).ok().and_then(Pid::from_raw);
    kill_process(daemon.expect("pid"), Signal::STOP).expect("stop");
    // kill(2) returns before the threads have stopped: one of them might still answer.
    let stopped = wait_for(Duration::from_secs(60), || all_stopped(mount.daemon()));
    assert!(stopped, "the daemon does not stop");
}

/// Asks what nobody answers until a watchdog aborts the connection.
fn hang(mount: &Mount) {
    let hung = fs::metadata(mount.path().join("never looked up"));
    let error = hung.expect_err("a stopped daemon answers").raw_os_error();
    eprintln!("   the caller got: {error:?}");
}

#[test]
fn a_daemon_that_does_not_start_is_told_with_what_it_said() {
    require_root();
    let Some(combination) = Combination::all().into_iter().next() else {
        return;
    };
    let scratch = Scratch::new("start");
    let missing = scratch.path().join("missing");
    let error = Mount::over(&missing, &combination)
        .start()
        .expect_err("started");
    let missing = missing.to_str().expect("path");
    assert!(error.reason.contains("instead of serving"), "{error}");
    assert!(error.log.contains(missing), "{error}");
}

/// Whether every thread of a process is in the state `T`, see proc_pid_stat(5).
fn all_stopped(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, fields)| fields.starts_with('T'))
    })
}
