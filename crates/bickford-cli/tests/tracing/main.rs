//! `bickford trace`, from the requests of a mount to what is printed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

#[path = "../common/mod.rs"]
mod common;
mod ends;

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bickford::trace::control::socket_path;
use bickford::trace::kernel::tracefs;
use common::{Place, Running, bickford, stderr, stop, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// A place whose requests can be traced.
fn place() -> Option<Place> {
    let place = Place::new()?;
    if tracefs().is_err() {
        let mount = ["-t", "tracefs", "none", "/sys/kernel/tracing"];
        let _ = Command::new("mount").args(mount).status();
    }
    let connections = "/sys/fs/fuse/connections";
    if fs::read_dir(connections).unwrap().next().is_none() {
        let mount = ["-t", "fusectl", "none", connections];
        let _ = Command::new("mount").args(mount).status();
    }
    let can = tracefs().is_ok_and(|root| root.join("events/fuse/fuse_request_send").exists());
    if !can {
        crate::common::say(format_args!(
            "left out: needs tracefs and tracepoints of FUSE"
        ));
    }
    can.then_some(place)
}

/// A command that traces the place.
struct Trace {
    running: Running,
    output: PathBuf,
    log: PathBuf,
}

impl Trace {
    /// Returns when it traces.
    fn start(place: &Place, arguments: &[&str]) -> Self {
        Self::start_as(bickford(), place, arguments)
    }

    fn start_as(mut command: Command, place: &Place, arguments: &[&str]) -> Self {
        let name = format!("trace-{}", arguments.join("-"));
        let output = place.dir().join(&name);
        let log = place.dir().join(name + ".log");
        let child = command
            .arg("trace")
            .args(arguments)
            .arg(place.mountpoint())
            .stdout(fs::File::create(&output).unwrap())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let trace = Self {
            running: Running::of(child),
            output,
            log,
        };
        wait_until("requests are traced", || trace.is_enabled());
        trace
    }

    fn instances(&self) -> Vec<PathBuf> {
        let mine = format!("bickford-{}-", self.running.pid().as_raw_nonzero());
        let instances = fs::read_dir(tracefs().unwrap().join("instances")).unwrap();
        instances
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine))
            .map(|entry| entry.path())
            .collect()
    }

    /// Of both tracepoints the one of sending is enabled last.
    fn is_enabled(&self) -> bool {
        self.instances().iter().any(|instance| {
            let enable = instance.join("events/fuse/fuse_request_send/enable");
            fs::read_to_string(enable).is_ok_and(|text| text.starts_with('1'))
        })
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// Ends it as the user does; what it has printed.
    fn end(self) -> String {
        kill_process(self.running.pid(), Signal::INT).unwrap();
        let output = self.running.output();
        let log = fs::read_to_string(&self.log).unwrap();
        assert!(output.status.success(), "{log}{}", stderr(&output));
        fs::read_to_string(&self.output).unwrap()
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// LOOKUPs that no cache answers.
fn look_up(place: &Place, prefix: &str, count: u32) {
    for number in 0..count {
        fs::metadata(place.mountpoint().join(format!("{prefix}-{number}"))).unwrap_err();
    }
}

/// Requests without an answer.
fn waiting(place: &Place) -> u64 {
    let connection = place.listed().unwrap().minor;
    let path = format!("/sys/fs/fuse/connections/{connection}/waiting");
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

fn mkdir(path: &Path) -> Child {
    Command::new("mkdir")
        .arg(path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn every_line_is_json_and_stages_are_no_longer_than_the_request() {
    // Only over /dev/fuse does the daemon return from sending after the request has ended.
    for transport in ["dev", "auto"] {
        let Some(place) = place() else { return };
        let running = place.mount_in_foreground(&["--transport", transport]);
        stages_of_a_mount(&place);
        drop(running);
    }
}

fn stages_of_a_mount(place: &Place) {
    let trace = Trace::start(place, &["--format", "json"]);
    look_up(place, "missing", 30);
    // The daemon may be later with its own than the kernel.
    let mut more = 0;
    wait_until("the daemon's times are joined", || {
        more += 1;
        look_up(place, &format!("more-{more}"), 1);
        trace.text().contains("\"handler\"")
    });
    fs::create_dir(place.mountpoint().join("new")).unwrap();
    wait_until("the last request is printed", || {
        trace.text().contains("\"MKDIR\"")
    });
    let lines = lines(&trace.end());
    let of = |name: &str| lines.iter().filter(|line| line["opcode"] == name).count();
    assert!(of("LOOKUP") >= 30 && of("MKDIR") == 1, "{lines:#?}");
    let connection = place.listed().unwrap().minor;
    for line in &lines {
        assert_eq!(line["connection"], connection);
        assert_eq!(
            (&line["open"], &line["before"]),
            (&false.into(), &false.into())
        );
        let Some(stages) = line["stages_us"].as_object() else {
            continue;
        };
        let names: Vec<&str> = stages.keys().map(String::as_str).collect();
        assert_eq!(names, ["decode", "handler", "queued", "reply"]);
        let sum: f64 = stages.values().map(|stage| stage.as_f64().unwrap()).sum();
        let total = line["total_us"].as_f64().unwrap();
        assert!(sum <= total + 0.01, "{line:#}");
        assert!(line["error"] != 0 || sum > 0.0, "{line:#}");
    }
}

#[test]
fn time_in_system_calls_below_is_a_part_of_the_handler() {
    for transport in ["dev", "auto"] {
        let Some(place) = place() else { return };
        let _running = place.mount_in_foreground(&["--transport", transport]);
        let trace = Trace::start(&place, &["--lower-io", "--format", "json"]);
        let mut made = 0;
        wait_until("system calls are told", || {
            made += 1;
            fs::create_dir(place.mountpoint().join(format!("dir-{made}"))).unwrap();
            let text = trace.text();
            text.lines()
                .any(|line| line.contains("\"MKDIR\"") && !line.contains("\"lower_us\":null"))
        });
        let instances = trace.instances();
        assert_eq!(instances.len(), 2, "{instances:?}");
        let lines = lines(&trace.end());
        assert!(!instances.iter().any(|instance| instance.exists()));
        let told = lines.iter().filter(|line| line["lower_us"].is_number());
        let mkdirs = told.filter(|line| line["opcode"] == "MKDIR");
        for line in mkdirs {
            let lower = line["lower_us"].as_f64().unwrap();
            let handler = line["stages_us"]["handler"].as_f64().unwrap();
            assert!(0.0 < lower && lower <= handler, "{line:#}");
        }
    }
}

#[test]
fn system_calls_are_left_out_where_threads_have_other_numbers() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_pid_namespace();
    let trace = Trace::start(&place, &["--lower-io"]);
    let log = trace.log.clone();
    trace.end();
    let said = fs::read_to_string(log).unwrap();
    let here = place.daemon().unwrap();
    let told = format!("(it is process 1 there and {here} here)");
    assert!(
        said.contains("--lower-io is left out: ") && said.contains(&told),
        "{said}"
    );
}

#[test]
fn chrome_output_is_json_and_opcodes_are_filtered() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let count = &[
        "--format",
        "chrome",
        "--opcode",
        "mkdir,RMDIR",
        "--count",
        "2",
        // Later than any time of the clock.
        "--duration",
        "18446744073709551615",
    ];
    let trace = Trace::start(&place, count);
    look_up(&place, "missing", 5);
    fs::create_dir(place.mountpoint().join("new")).unwrap();
    fs::remove_dir(place.mountpoint().join("new")).unwrap();
    let output = trace.output.clone();
    assert!(trace.running.output().status.success());
    let mut marks: Vec<Value> = serde_json::from_str(&fs::read_to_string(output).unwrap()).unwrap();
    // What ends on different CPUs is told in any order, and viewers sort it.
    marks.sort_by(|a, b| a["ts"].as_f64().partial_cmp(&b["ts"].as_f64()).unwrap());
    let told: Vec<_> = marks.iter().map(|m| (&m["name"], &m["ph"])).collect();
    let (mkdir, rmdir) = (&Value::from("MKDIR"), &Value::from("RMDIR"));
    let (begin, end) = (&Value::from("b"), &Value::from("e"));
    let wanted = [(mkdir, begin), (mkdir, end), (rmdir, begin), (rmdir, end)];
    assert_eq!(told, wanted, "{marks:#?}");
}

/// Nobody waits for the answer of a RELEASE.
#[test]
fn requests_of_one_caller_that_overlap_are_pairs_of_their_own() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&["--layer", "delay:release=1000s"]);
    let opcodes = ["--format", "chrome", "--opcode", "RELEASE,MKDIR"];
    let trace = Trace::start(&place, &opcodes);
    drop(fs::File::open(place.mountpoint().join("f")).unwrap());
    fs::create_dir(place.mountpoint().join("new")).unwrap();
    wait_until("the second is printed", || trace.text().contains("MKDIR"));
    let marks: Vec<Value> = serde_json::from_str(&trace.end()).unwrap();
    let pairs: Vec<&[Value]> = marks.chunks(2).collect();
    let ts = |mark: &Value| mark["ts"].as_f64().unwrap();
    let mut ids = HashSet::new();
    for pair in &pairs {
        let [begin, end] = pair else {
            panic!("{pair:#?}")
        };
        assert_eq!((&begin["ph"], &end["ph"]), (&"b".into(), &"e".into()));
        for key in ["id", "cat", "name", "pid", "tid"] {
            assert_eq!(begin[key], end[key], "{key}: {pair:#?}");
        }
        assert!(ts(begin) <= ts(end), "{pair:#?}");
        assert!(ids.insert(begin["id"].as_str().unwrap()), "{marks:#?}");
    }
    let mkdir = pairs.iter().find(|pair| pair[0]["name"] == "MKDIR");
    let mkdir = mkdir.unwrap();
    let overlaps = |pair: &&&[Value]| {
        let same = pair[0]["name"] == "RELEASE" && pair[0]["tid"] == mkdir[0]["tid"];
        same && ts(&pair[0]) < ts(&mkdir[0]) && ts(&mkdir[0]) < ts(&pair[1])
    };
    assert!(pairs.iter().any(|pair| overlaps(&pair)), "{marks:#?}");
}

#[test]
fn a_process_is_filtered_by_any_of_its_threads() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let pid = std::process::id().to_string();
    let trace = Trace::start(&place, &["--format", "json", "--pid", &pid]);
    std::thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let there = place.mountpoint();
        // Not the thread that has the number of the process. It lives until it has been looked at.
        scope.spawn(move || {
            fs::metadata(there.join("missing")).unwrap_err();
            let _ = ended.recv();
        });
        let new = place.mountpoint().join("new");
        assert!(mkdir(&new).wait().unwrap().success());
        wait_until("the request of the thread is printed", || {
            trace.text().contains("\"LOOKUP\"")
        });
        drop(end);
    });
    let lines = lines(&trace.end());
    assert!(
        lines.iter().all(|line| line["opcode"] != "MKDIR"),
        "{lines:#?}"
    );
}

#[test]
fn a_terminal_does_not_obey_what_a_daemon_says() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let socket = socket_path(place.listed().unwrap().minor);
    fs::remove_file(&socket).unwrap();
    let hostile = UnixListener::bind(&socket).unwrap();
    let daemon = std::thread::spawn(move || {
        while let Ok((mut client, _)) = hostile.accept() {
            let mut request = String::new();
            let _ = BufReader::new(&client).read_line(&mut request);
            if request.is_empty() {
                return;
            }
            let _ = client.write_all(b"\"\\u001b[2Jall is well\"\n");
        }
    });
    let trace = Trace::start(&place, &["--format", "json"]);
    let said = || fs::read_to_string(&trace.log).unwrap();
    wait_until("the refusal is told", || said().contains("all is well"));
    assert!(said().contains("end here: ?[2Jall is well"), "{:?}", said());
    trace.end();
    // Another mount may have its number next.
    let _ = UnixStream::connect(&socket);
    daemon.join().unwrap();
    fs::remove_file(&socket).unwrap();
}

#[test]
fn what_hangs_is_told_in_every_format() {
    let Some(place) = place() else { return };
    let running = place.mount_in_foreground(&[]);
    let json = Trace::start(&place, &["--format", "json"]);
    let text = Trace::start(&place, &["--format", "text"]);
    let chrome = Trace::start(&place, &["--format", "chrome"]);
    let other = Trace::start(&place, &["--format", "json", "--opcode", "READ"]);
    wait_until("nothing is under way", || waiting(&place) == 0);
    stop(running.pid());
    let mut client = Running::of(mkdir(&place.mountpoint().join("new")));
    wait_until("the request is sent", || {
        client.assert_runs();
        waiting(&place) > 0
    });
    let ended: Vec<String> = [json, text, chrome, other].map(Trace::end).into();
    kill_process(running.pid(), Signal::CONT).unwrap();
    assert!(client.output().status.success());

    let is_open = |line: &Value| line["open"] == true;
    let open = lines(&ended[0]).into_iter().rfind(is_open).unwrap();
    assert_eq!(
        (&open["comm"], &open["before"]),
        (&"mkdir".into(), &false.into())
    );
    assert!(open["age_us"].as_f64().unwrap() > 0.0, "{open:#}");
    let line = ended[1]
        .lines()
        .find(|line| line.contains("open for"))
        .unwrap();
    assert!(line.contains(" mkdir-"), "{line}");
    let marks: Vec<Value> = serde_json::from_str(&ended[2]).unwrap();
    let begin = marks.iter().position(|mark| is_open(&mark["args"]));
    let [begin, end] = &marks[begin.unwrap()..][..2] else {
        panic!("{marks:#?}")
    };
    assert_eq!(begin["id"], end["id"], "{marks:#?}");
    assert!(end["ts"].as_f64() > begin["ts"].as_f64(), "{marks:#?}");
    assert_eq!(ended[3], "", "filters are for what is open, too");
}

#[test]
fn what_was_sent_before_is_told_at_once_and_when_it_ends() {
    let Some(place) = place() else { return };
    let running = place.mount_in_foreground(&["--layer", "delay:mkdir=1000s"]);
    let client = Running::of(mkdir(&place.mountpoint().join("new")));
    wait_until("the daemon has the request", || {
        let stat = bickford()
            .arg("stat")
            .arg(place.mountpoint())
            .output()
            .unwrap();
        String::from_utf8_lossy(&stat.stdout).contains("MKDIR")
    });
    let trace = Trace::start(&place, &["--format", "json"]);
    let chrome = Trace::start(&place, &["--format", "chrome"]);
    wait_until("it is told", || trace.text().ends_with('\n'));
    let first = lines(&trace.text()).remove(0);
    assert_eq!(
        (&first["opcode"], &first["comm"], &first["open"]),
        (&"MKDIR".into(), &"mkdir".into(), &true.into())
    );
    assert_eq!(
        (&first["before"], &first["received"]),
        (&true.into(), &true.into())
    );
    let marks: Value = serde_json::from_str(&chrome.end()).unwrap();
    assert_eq!(marks[0]["args"]["open"], true, "{marks:#}");
    let caller = first["pid"].as_i64().unwrap();
    assert_eq!(caller, i64::from(client.pid().as_raw_nonzero().get()));
    // A signal to the caller ends the delay.
    kill_process(client.pid(), Signal::TERM).unwrap();
    client.output();
    wait_until("it has ended", || trace.text().contains("total_us"));
    let ended = lines(&trace.end());
    let ended = ended
        .iter()
        .find(|line| line["opcode"] == "MKDIR" && line["open"] == false);
    let ended = ended.unwrap();
    assert_eq!(ended["before"], true, "{ended:#}");
    assert!(ended["total_us"].as_f64().unwrap() >= first["age_us"].as_f64().unwrap());
    assert_eq!(ended["stages_us"]["queued"], Value::Null, "{ended:#}");
    drop(running);
}

#[test]
fn of_a_stopped_daemon_the_number_of_requests_is_told() {
    let Some(place) = place() else { return };
    let running = place.mount_in_foreground(&[]);
    stop(running.pid());
    let client = Running::of(mkdir(&place.mountpoint().join("new")));
    wait_until("the request is sent", || waiting(&place) > 0);
    let trace = Trace::start(&place, &[]);
    let log = || fs::read_to_string(&trace.log).unwrap();
    wait_until("it is told", || log().contains("sent before tracing began"));
    assert!(log().contains("does not answer"), "{}", log());
    kill_process(running.pid(), Signal::CONT).unwrap();
    assert!(client.output().status.success());
    trace.end();
}

#[test]
fn a_client_that_never_rests_keeps_nothing_from_being_printed() {
    let Some(place) = place() else { return };
    let _running = place.mount_in_foreground(&[]);
    let trace = Trace::start(&place, &[]);
    let (printed, there) = (AtomicBool::new(false), place.mountpoint());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            // Within the tenth of a second that a reader of events waits by itself.
            while !printed.load(Ordering::SeqCst) && number < 2_000 {
                number += 1;
                let missing = there.join(format!("missing-{number}"));
                fs::metadata(missing).unwrap_err();
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        let deadline = Instant::now() + Duration::from_secs(50);
        while trace.text().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let told = !trace.text().is_empty();
        printed.store(true, Ordering::SeqCst);
        assert!(told, "nothing is printed while requests come");
    });
    trace.end();
}
