//! Whole runs of the program: a bind mount stands in for a file system, so that nothing else is needed.
//! Without root there are no mounts: then the tests that need one say so and end.

// Helpers of tests fail by panicking, as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod asked;
mod device;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bickford_eval::results::{Outcome, Results, load};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

/// No run of these tests may take longer.
const PATIENCE: Duration = Duration::from_secs(600);

const WORKLOAD: &str = "
set $dir=/tmp
define fileset name=files,path=$dir,entries=200,size=4k,dirwidth=20,prealloc=50
define process name=p {
  thread name=t,instances=2 {
    flowop createfile name=c,filesetname=files,fd=1
    flowop writewholefile name=w,fd=1,iosize=4k
    flowop closefile name=x,fd=1
    flowop finishoncount name=f,value=120
  }
}
";

/// Runs until somebody stops it: a file is created and deleted for ever.
const ENDLESS: &str = "
set $dir=/tmp
define fileset name=files,path=$dir,entries=4,size=1k,dirwidth=4
define process name=p {
  thread name=t {
    flowop createfile name=c,filesetname=files,fd=1
    flowop closefile name=x,fd=1
    flowop deletefile name=d,filesetname=files
    flowop finishoncount name=f,value=1000000000
  }
}
";

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        // Where the output of tests that pass is captured, too.
        let _ = writeln!(io::stderr(), "skipped: mounting needs root");
    }
    root
}

/// The example next to this test, which Cargo has built with it.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/eval")
}

/// A place for one test: a workload file, a directory as device, results.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new(workload: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("load.f"), workload).unwrap();
        fs::create_dir(directory.path().join("device")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn out(&self) -> PathBuf {
        self.path("out")
    }

    fn results(&self) -> Results {
        load(&self.out()).unwrap()
    }

    fn command(&self, configs: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("--workload").arg(self.path("load.f"));
        command
            .arg("--device")
            .arg(self.path("device"))
            .arg("--dir")
            .arg(self.directory.path());
        command
            .arg("--out")
            .arg(self.out())
            .args(["--rounds", "2", "--scale", "1"]);
        for config in configs {
            command.args(["--config", config]);
        }
        command
    }
}

/// Runs a command to its end, which must come.
fn finish(command: Command) -> Output {
    finish_after(command, |_| {})
}

/// The same, with something done once it has started.
fn finish_after(mut command: Command, started: impl FnOnce(&Child)) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    started(&child);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{command:?} did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn mounted_below(path: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(path.to_str().unwrap())
}

#[test]
fn a_run_compares_a_mount_with_the_directory_below() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let output = finish(place.command(&["bind=mount --bind {src} {mnt}"]));
    assert!(output.status.success(), "{}", said(&output));
    let results = place.results();
    // A round that is not counted and two that are, in two configurations.
    assert_eq!(results.samples.len(), 6);
    assert_eq!(results.throughputs("own01", "bind").len(), 2);
    assert!(said(&output).contains("Own workloads"), "{}", said(&output));
    for sample in &results.samples {
        let Outcome::Measured(measured) = &sample.outcome else {
            panic!("{sample:?}")
        };
        assert!(measured.work.operations >= 120 && measured.throughput > 0.0);
    }
    let page = fs::read_to_string(place.out().join("report.html")).unwrap();
    assert!(page.contains("load") && page.contains("bind"));
    for outside in ["src=\"http", "href=\"http", "url(", "@import"] {
        assert!(
            !page.contains(outside),
            "the page must stand alone: {outside}"
        );
    }
    let table = fs::read_to_string(place.out().join("report.csv")).unwrap();
    assert_eq!(table.lines().count(), 3);
    assert!(!mounted_below(place.directory.path()));
}

#[test]
fn an_interrupted_directory_goes_on_where_it_was() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let first = finish(place.command(&["bind=mount --bind {src} {mnt}"]));
    assert!(first.status.success(), "{}", said(&first));
    // As a power cut leaves it: three lines, and the fourth half written.
    let file = place.out().join("samples.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().take(3).collect();
    let half = text.lines().nth(3).unwrap();
    fs::write(
        &file,
        format!("{}\n{}", kept.join("\n"), &half[..half.len() / 2]),
    )
    .unwrap();
    let mut again = Command::new(program());
    again.arg("--resume").arg(place.out());
    let output = finish(again);
    assert!(output.status.success(), "{}", said(&output));
    let after = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = after.lines().collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[..3], kept[..], "what was done is not done again");
    assert_eq!(place.results().samples.len(), 6);
}

fn resume(place: &Place, more: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("--resume").arg(place.out()).args(more);
    finish(command)
}

#[test]
fn a_directory_of_another_machine_is_not_gone_on_with() {
    let place = Place::new(WORKLOAD);
    let first = finish(place.command(&["native"]));
    assert!(first.status.success(), "{}", said(&first));
    let settings = place.out().join("run.json");
    let samples = fs::read(place.out().join("samples.jsonl")).unwrap();
    let kernel = place.results().settings.machine.kernel;
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace(&kernel, "Linux 2.4")).unwrap();
    let refused = resume(&place, &[]);
    let text = said(&refused);
    assert!(!refused.status.success(), "{text}");
    for told in ["the kernel was Linux 2.4", kernel.as_str(), "another --out"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let after = fs::read(place.out().join("samples.jsonl")).unwrap();
    assert_eq!(after, samples, "nothing is touched");
    // What is asked for now would not be done.
    for more in [["--rounds", "9"], ["--scale", "2"], ["--config", "fast"]] {
        let refused = resume(&place, &more);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(said(&refused).contains(more[0]), "{}", said(&refused));
    }
}

#[test]
fn what_failed_is_run_again_when_asked() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let good = place.path("good");
    let command = format!("test -e {} && mount --bind {{src}} {{mnt}}", good.display());
    let first = finish(place.command(&[&format!("bind={command}")]));
    assert_eq!(first.status.code(), Some(1), "{}", said(&first));
    fs::write(&good, "").unwrap();
    let count = |place: &Place| place.results().throughputs("own01", "bind").len();
    let left = resume(&place, &[]);
    assert_eq!(
        (left.status.code(), count(&place)),
        (Some(1), 0),
        "an error is final"
    );
    let again = resume(&place, &["--retry-failed"]);
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(count(&place), 2);
    assert!(
        said(&again).contains("run again after an error"),
        "{}",
        said(&again)
    );
    let alone = finish({
        let mut command = place.command(&["native"]);
        command.arg("--retry-failed");
        command
    });
    assert!(said(&alone).contains("--resume"), "{}", said(&alone));
}

/// Waits until `ready` is true, or the child has ended: what it said is the test's to judge.
fn wait_until(ready: impl Fn() -> bool, child: &Child) -> Pid {
    let pid = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_ended = || waitid(WaitId::Pid(pid), options).unwrap().is_some();
    let end = Instant::now() + PATIENCE;
    while !ready() && !has_ended() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    pid
}

/// Sends a signal then.
fn signal_when(ready: impl Fn() -> bool, child: &Child, signal: Signal) {
    rustix::process::kill_process(wait_until(ready, child), signal).unwrap();
}

/// The same as soon as everything is set up and signals are caught.
fn signal(place: &Place, child: &Child, signal: Signal) {
    let logs = place.out().join("logs");
    signal_when(|| logs.exists(), child, signal);
}

fn is_clean(place: &Place) {
    assert!(!mounted_below(place.directory.path()));
    let left = fs::read_dir(place.path("device")).unwrap().count();
    assert_eq!(left, 0, "nothing stays on the device");
}

/// Ctrl-C in the middle of a row: the row's programs end, nothing stays mounted, the status says so.
#[test]
fn an_interrupt_ends_the_run_and_leaves_nothing_behind() {
    if !root() {
        return;
    }
    for sent in [Signal::INT, Signal::QUIT] {
        let place = Place::new(ENDLESS);
        let command = place.command(&["bind=mount --bind {src} {mnt}"]);
        let output = finish_after(command, |child| signal(&place, child, sent));
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert!(said(&output).contains("--resume"), "{}", said(&output));
        assert!(
            place.results().samples.is_empty(),
            "half a row is no result"
        );
        is_clean(&place);
    }
}

/// Ctrl-C where a command mounts nothing: it is not waited for until its time is over.
#[test]
fn an_interrupt_ends_a_command_that_does_not_mount() {
    let place = Place::new(WORKLOAD);
    let waits = place.path("waits");
    let command = format!("hangs=echo > {}; exec sleep 600 # {{mnt}}", waits.display());
    let mut interrupted = None;
    let output = finish_after(place.command(&[&command]), |child| {
        signal_when(|| waits.exists(), child, Signal::INT);
        interrupted = Some(Instant::now());
    });
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let took = interrupted.unwrap().elapsed();
    // A command that mounts nothing has half a minute to do so.
    assert!(took < Duration::from_secs(25), "{took:?}");
    is_clean(&place);
}

/// The round that is not counted comes on top of what is asked for.
#[test]
fn the_most_rounds_are_no_overflow() {
    let place = Place::new(WORKLOAD);
    let words = place.command(&["native"]);
    let words = words.get_args().map(|word| match word {
        word if word == "2" => "4294967295".as_ref(),
        word => word,
    });
    let mut command = Command::new(program());
    command.args(words);
    let output = finish_after(command, |child| signal(&place, child, Signal::INT));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
}

/// The terminal goes away: nobody reads what is said, and it must not matter.
#[test]
fn a_hangup_leaves_nothing_behind() {
    if !root() {
        return;
    }
    let place = Place::new(ENDLESS);
    let inner = place.command(&["bind=mount --bind {src} {mnt}"]);
    // Whoever runs the tests under nohup has them ignore it.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP".as_ref(), inner.get_program()])
        .args(inner.get_args());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Native, whose turn is first, ends by its deadline.
    command.args(["--deadline", "3"]);
    let mut child = command.spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let mounted = || mounted_below(place.directory.path());
    signal_when(mounted, &child, Signal::HUP);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it must end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    is_clean(&place);
    assert!(place.out().join("report.html").exists());
}

#[test]
fn nohup_goes_on_after_a_hangup() {
    let place = Place::new(WORKLOAD);
    let inner = place.command(&["native"]);
    let mut command = Command::new("nohup");
    command.arg(inner.get_program()).args(inner.get_args());
    let output = finish_after(command, |child| signal(&place, child, Signal::HUP));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(place.results().throughputs("own01", "native").len(), 2);
}

#[test]
fn results_are_not_overwritten() {
    let place = Place::new(WORKLOAD);
    let first = finish(place.command(&["native"]));
    assert!(first.status.success(), "{}", said(&first));
    let second = finish(place.command(&["native"]));
    assert!(!second.status.success());
    assert!(said(&second).contains("--resume"), "{}", said(&second));
}

/// A directory of the user's, whose names happen to be those of a run's files.
#[test]
fn what_is_not_of_a_run_is_not_overwritten() {
    for name in ["notes.txt", "run.json", "report.html"] {
        let place = Place::new(WORKLOAD);
        let file = place.out().join(name);
        fs::create_dir(place.out()).unwrap();
        fs::write(&file, "mine").unwrap();
        let output = finish(place.command(&["native"]));
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let told = format!("holds {name}, which is not of a run");
        assert!(said(&output).contains(&told), "{}", said(&output));
        assert_eq!(fs::read(&file).unwrap(), b"mine");
        assert_eq!(fs::read_dir(place.out()).unwrap().count(), 1);
    }
}

/// The mount goes away while the workload runs. The row must end with an error; native, and the run, go on.
#[test]
fn a_mount_that_dies_ends_its_row_and_not_the_run() {
    if !root() {
        return;
    }
    let place = Place::new(ENDLESS);
    // Dies as soon as the workload has created its directory's first file or 10,000 more.
    let dies = "mount --bind {src} {mnt}; (while ! ls {src}/files/* >/dev/null 2>&1; do :; done; umount -l {mnt}) &";
    let mut command = place.command(&[&format!("dying={dies}")]);
    // Native would run for ever: its deadline ends it, which is an error of the row as well.
    command.args(["--deadline", "5"]);
    let output = finish(command);
    assert!(!output.status.success(), "errors must show in the status");
    let results = place.results();
    let error = results.error("own01", "dying").expect("the row must fail");
    assert!(error.contains("went away"), "{error}");
    let native = results
        .error("own01", "native")
        .expect("no end but the deadline's");
    assert!(native.contains("--deadline"), "{native}");
    assert!(place.out().join("report.html").exists());
    assert!(!mounted_below(place.directory.path()));
}

/// What the evaluation itself takes down at a deadline did not go away by itself.
#[test]
fn a_deadline_is_not_told_as_a_mount_that_died() {
    if !root() {
        return;
    }
    let place = Place::new(ENDLESS);
    let mut command = place.command(&["bind=mount --bind {src} {mnt}"]);
    command.args(["--deadline", "2"]);
    finish(command);
    let results = place.results();
    let error = results.error("own01", "bind").expect("it never ends");
    assert!(
        error.contains("within 2 s") && !error.contains("went away"),
        "{error}"
    );
}

/// A report that was made of samples which are gone stays.
#[test]
fn a_report_of_nothing_replaces_none() {
    let place = Place::new(WORKLOAD);
    let output = finish(place.command(&["native"]));
    assert!(output.status.success(), "{}", said(&output));
    let kept = fs::read(place.out().join("report.json")).unwrap();
    fs::write(place.out().join("samples.jsonl"), "{\"row\":\"own").unwrap();
    let mut report = Command::new(program());
    report.arg("--report").arg(place.out());
    let output = finish(report);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("nothing to report"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read(place.out().join("report.json")).unwrap(), kept);
}

/// What a run was asked, its results tell.
#[test]
fn a_report_is_of_all_that_was_run() {
    for asked in [
        &["--report", "a"][..],
        &["--compare", "a", "b"],
        &["--markdown", "a"],
    ] {
        let mut report = Command::new(program());
        report.args(asked).args(["--rows", "own01"]);
        let output = finish(report);
        let refused = output.status.code() == Some(2) && said(&output).contains("--rows");
        assert!(refused, "{}", said(&output));
    }
}

#[test]
fn a_command_that_cannot_mount_is_an_error_of_its_rows_only() {
    let place = Place::new(WORKLOAD);
    let output = finish(place.command(&["broken=echo not today: {src} {mnt} >&2; exit 1"]));
    assert!(!output.status.success());
    let results = place.results();
    assert!(
        results
            .error("own01", "broken")
            .is_some_and(|e| e.contains("not today"))
    );
    assert_eq!(results.throughputs("own01", "native").len(), 2);
}

#[test]
fn a_bad_workload_is_told_with_file_line_and_column() {
    let place = Place::new("define fileset name=a,entries=4,colour=red\n");
    let output = finish(place.command(&["native"]));
    let text = said(&output);
    assert!(
        text.contains("load.f") && text.contains("line 1, column 33"),
        "{text}"
    );
}

#[test]
fn two_runs_are_compared() {
    let place = Place::new(WORKLOAD);
    assert!(finish(place.command(&["native"])).status.success());
    let mut compare = Command::new(program());
    compare
        .arg("--compare")
        .arg(place.out())
        .arg(place.out().join("report.json"));
    let output = finish(compare);
    let text = said(&output);
    assert!(
        output.status.success() && text.contains("+0.0%") && text.contains("within the spread"),
        "{text}"
    );
}
