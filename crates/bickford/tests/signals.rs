//! Signals that come before a request is handed over: the same over each transport.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "mounted/subject.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod subject;
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use bickford::Workers;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use subject::{Subject, Unblock};
use support::{Fixture, over_each_transport, show_connections, wait_until};

/// Starts a process on one CPU: its requests go to one queue.
fn on_one_cpu(mut command: Command) -> Child {
    let start = move || {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu));
        let mut one = CpuSet::new();
        one.set(first.unwrap());
        sched_setaffinity(None, &one).unwrap();
        command.spawn().unwrap()
    };
    thread::spawn(start).join().unwrap()
}

/// Keeps a thread of the session in a method.
fn blocker(fixture: &Fixture, name: &str) -> Child {
    let mut command = Command::new("stat");
    command.arg(fixture.path(name)).stdout(Stdio::null());
    on_one_cpu(command)
}

/// Opens a file, reads it when told to, and ends with 7 when a signal ends that.
const CALLER: &str = r"
import os, signal, sys
class Over(Exception): pass
def over(*_): raise Over
signal.signal(signal.SIGUSR1, over)
file = os.open(sys.argv[1], os.O_RDONLY)
print(flush=True)
sys.stdin.readline()
try: os.read(file, 1)
except Over: sys.exit(7)
";

fn caller(fixture: &Fixture) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", CALLER]).arg(fixture.path("endless"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    on_one_cpu(command)
}

/// Requests that wait for an answer, those among them that the session does not have yet.
fn waiting(connection: u32) -> usize {
    let path = format!("/sys/fs/fuse/connections/{connection}/waiting");
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

fn state(child: &Child) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.unwrap().trim().into()
}

/// Asks for a name, and reads in another thread when told to; ends with 7 when a signal has ended the first.
const CALLERS: &str = r"
import os, signal, sys, threading
class Over(Exception): pass
def over(*_): raise Over
def read():
    sys.stdin.readline()
    os.read(file, 1)
signal.signal(signal.SIGUSR1, over)
file = os.open(sys.argv[1], os.O_RDONLY)
threading.Thread(target=read, daemon=True).start()
try:
    os.stat(sys.argv[2])
    signal.pause()
except Over: os._exit(7)
";

/// A signal to a process is pending for all of its threads while the one that it woke has not taken it.
#[test]
fn a_signal_that_another_thread_is_to_take_interrupts_nothing() {
    over_each_transport(|config| {
        let subject = Subject::new();
        let fixture = Fixture::new(subject.clone(), config.workers(Workers::up_to(2)));
        let go_on = Unblock(&subject);
        let mut command = Command::new("python3");
        command.args(["-c", CALLERS]);
        command.args(["endless", "blocked-1"].map(|name| fixture.path(name)));
        command.stdin(Stdio::piped());
        let mut callers = on_one_cpu(command);
        wait_until("the first is in a method", || subject.blocked() == 1);
        kill_process(Pid::from_child(&callers), Signal::USR1).unwrap();
        wait_until("it has the signal", || state(&callers).starts_with('D'));
        let mut input = callers.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        wait_until("the other reads", || subject.reads() == 1);
        // Requests are looked at when they are ten milliseconds old.
        thread::sleep(Duration::from_millis(300));
        assert_eq!(subject.interrupted(), 0);
        drop(go_on);
        assert_eq!(callers.wait().unwrap().code(), Some(7));
        fixture.finish();
    });
}

#[test]
fn a_signal_that_came_before_the_request_was_handed_over_interrupts_it() {
    over_each_transport(|config| {
        let subject = Subject::new();
        let fixture = Fixture::new(subject.clone(), config.workers(Workers::up_to(2)));
        show_connections();
        let connection = fixture.session().guard().connection().unwrap();
        let mut caller = caller(&fixture);
        let mut opened = String::new();
        let mut output = BufReader::new(caller.stdout.take().unwrap());
        output.read_line(&mut opened).unwrap();

        let go_on = Unblock(&subject);
        let blockers = ["blocked-1", "blocked-2"].map(|name| blocker(&fixture, name));
        wait_until("every thread is in a method", || subject.blocked() == 2);
        let mut input = caller.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        wait_until("the third request waits", || waiting(connection) == 3);
        wait_until("its caller sleeps", || state(&caller).starts_with('S'));
        kill_process(Pid::from_child(&caller), Signal::USR1).unwrap();
        // Where only what kills it would wake it.
        wait_until("it has its signal", || state(&caller).starts_with('D'));
        assert_eq!(subject.reads(), 0);

        drop(go_on);
        assert_eq!(caller.wait().unwrap().code(), Some(7));
        assert_eq!(subject.interrupted(), 1);
        for mut blocker in blockers {
            assert!(blocker.wait().unwrap().success());
        }
        fixture.finish();
    });
}
