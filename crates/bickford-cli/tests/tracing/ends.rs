//! How tracing ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bickford::trace::control::socket_path;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::{Signal, kill_process};

use super::common::{Running, bickford, installed, run, stderr, stop, wait_until};
use super::{Trace, look_up, place};

#[test]
fn no_signal_leaves_tracing_enabled() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    for signal in [Signal::HUP, Signal::QUIT, Signal::TERM, Signal::INT] {
        // The tests may be run where a hangup is ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_bickford")]);
        let trace = Trace::start_as(command, &place, &[]);
        let instances = trace.instances();
        assert_eq!(instances.len(), 1);
        kill_process(trace.running.pid(), signal).unwrap();
        let output = trace.running.output();
        assert!(output.status.success(), "{signal:?}: {output:?}");
        assert!(!instances[0].exists(), "{signal:?}: {instances:?} is left");
    }
}

#[test]
fn a_hangup_is_ignored_where_it_was() {
    let Some(place) = place() else { return };
    if !installed("nohup") {
        return;
    }
    let _running = place.mount_in_foreground(&[]);
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_bickford"));
    let trace = Trace::start_as(command, &place, &["--opcode", "MKDIR"]);
    kill_process(trace.running.pid(), Signal::HUP).unwrap();
    for count in 1..=2 {
        fs::create_dir(place.mountpoint().join(format!("new-{count}"))).unwrap();
        wait_until("it goes on", || {
            trace.text().matches("MKDIR").count() == count
        });
    }
    trace.end();
}

#[test]
fn a_daemon_that_is_stopped_does_not_prolong_what_was_asked_for() {
    let Some(place) = place() else { return };
    let running = place.mount_in_foreground(&[]);
    stop(running.pid());
    let ends_in_time = || {
        let begun = Instant::now();
        let mut command = bickford();
        command.args(["trace", "--duration", "1"]);
        let output = run(command.arg(place.mountpoint()));
        assert!(output.status.success(), "{output:?}");
        let said = stderr(&output);
        assert_eq!(said.matches("does not answer").count(), 1, "{said}");
        begun.elapsed() < Duration::from_secs(5)
    };
    // More than once: this machine may be busy.
    assert!((0..3).any(|_| ends_in_time()));
    kill_process(running.pid(), Signal::CONT).unwrap();
}

#[test]
fn tracing_ends_with_what_is_traced() {
    let Some(place) = place() else { return };
    for (killed, said) in [(false, "has been unmounted"), (true, "has ended")] {
        let running = place.mount_in_foreground(&[]);
        let trace = Trace::start(&place, &[]);
        // The events of the daemon have one reader.
        let second = Trace::start(&place, &["--format", "json"]);
        wait_until("it has no events", || {
            let log = fs::read_to_string(&second.log).unwrap();
            log.contains("own times end here")
        });
        if killed {
            kill_process(running.pid(), Signal::KILL).unwrap();
        } else {
            place.unmount(&place.mountpoint());
        }
        for trace in [trace, second] {
            let output = trace.running.output();
            let log = fs::read_to_string(&trace.log).unwrap();
            assert!(output.status.success() && log.contains(said), "{log}");
        }
        running.output();
        if killed {
            place.unmount(&place.mountpoint());
        }
    }
}

#[test]
fn a_mount_that_has_another_place_by_now_is_still_mounted() {
    let Some(place) = place() else { return };
    let running = place.mount_in_foreground(&[]);
    let trace = Trace::start(&place, &[]);
    let (before, after) = (place.mountpoint(), place.source());
    mount_bind(&before, &after).unwrap();
    unmount(&before, UnmountFlags::DETACH).unwrap();
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.output();
    assert!(trace.running.output().status.success());
    let said = fs::read_to_string(&trace.log).unwrap();
    let ended = format!("the daemon of {} has ended", after.display());
    assert!(said.contains(&ended), "{said}");
    place.unmount(&after);
}

/// The end of a daemon that still listens when it hangs up.
#[test]
fn a_daemon_that_hung_up_first_is_seen_to_end() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let socket = socket_path(place.listed().unwrap().minor);
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ends);
    let daemon = std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept()
            && !told.load(Ordering::SeqCst)
        {
            let _ = BufReader::new(&client).read_line(&mut String::new());
        }
    });
    let trace = Trace::start(&place, &[]);
    let said = || fs::read_to_string(&trace.log).unwrap();
    wait_until("it has hung up", || said().contains("own times end here"));
    ends.store(true, Ordering::SeqCst);
    let _ = UnixStream::connect(&socket);
    daemon.join().unwrap();
    let output = trace.running.output();
    let log = fs::read_to_string(&trace.log).unwrap();
    assert!(
        output.status.success() && log.contains("has ended"),
        "{log}"
    );
    fs::remove_file(&socket).unwrap();
}

/// Killed instead, it would leave tracing enabled.
#[test]
fn a_reader_that_reads_no_more_does_not_keep_it_from_ending() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let child = bickford()
        .args(["trace", "--format", "json"])
        .arg(place.mountpoint())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let trace = Running::of(child);
    let mut asked = 0;
    let is_full = || {
        for _ in 0..100 {
            asked += 1;
            let _ = fs::metadata(place.mountpoint().join(format!("none-{asked}")));
        }
        rustix::io::ioctl_fionread(&reader).unwrap() > 55_000
    };
    wait_until("the pipe is full", is_full);
    // More than it still has room for.
    look_up(&place, "more", 300);
    kill_process(trace.pid(), Signal::TERM).unwrap();
    let output = trace.output();
    assert!(
        stderr(&output).contains("nobody reads standard output"),
        "{output:?}"
    );
    drop(reader);
}

/// The new mount has the number of the old one, and the same place.
#[test]
fn a_mount_that_was_made_anew_is_another() {
    let Some(place) = place() else { return };
    let number = || place.listed().unwrap().connection();
    let mut ended = None;
    for _ in 0..20 {
        assert!(place.mount(&[]).status.success());
        let old = number();
        let trace = Trace::start(&place, &[]);
        // It sees nothing of what is between.
        stop(trace.running.pid());
        place.unmount(&place.mountpoint());
        assert!(place.mount(&[]).status.success());
        if number() == old {
            ended = Some(trace);
            break;
        }
        drop(trace);
        place.unmount(&place.mountpoint());
    }
    let Some(trace) = ended else {
        crate::common::say(format_args!("left out: others take the numbers"));
        return;
    };
    let log = trace.log.clone();
    kill_process(trace.running.pid(), Signal::CONT).unwrap();
    assert!(trace.running.output().status.success());
    let said = fs::read_to_string(log).unwrap();
    assert!(said.contains("has been mounted anew"), "{said}");
}

/// More than the last readings take in.
#[test]
fn what_was_not_read_yet_is_told_at_the_end() {
    const EACH: usize = 55_000;
    const THREADS: usize = 4;
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let trace = Trace::start(&place, &["--opcode", "LOOKUP", "--format", "json"]);
    stop(trace.running.pid());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let directory = place.mountpoint();
            scope.spawn(move || {
                for name in 0..EACH {
                    let _ = fs::metadata(directory.join(format!("none-{thread}-{name}")));
                }
            });
        }
    });
    kill_process(trace.running.pid(), Signal::TERM).unwrap();
    kill_process(trace.running.pid(), Signal::CONT).unwrap();
    let (output, log) = (trace.output.clone(), trace.log.clone());
    assert!(trace.running.output().status.success());
    let told = fs::read_to_string(output).unwrap().lines().count();
    let log = fs::read_to_string(log).unwrap();
    assert!(
        told == EACH * THREADS || log.contains("events were lost"),
        "{told}: {log}"
    );
}
