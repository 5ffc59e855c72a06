//! The library's own statistics against an independent count: the kernel's tracepoints.
//!
//! Needs root, /dev/fuse and tracefs; without them the test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "mounted/subject.rs"]
#[allow(dead_code, reason = "only some of its names are used here")]
mod subject;
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bickford::abi::Opcode;
use bickford::trace::kernel::{KernelRequest, Step, Tracepoints, tracefs};
use subject::Subject;
use support::{Fixture, over_each_transport, wait_until};

/// Not compared: what the kernel does not trace, and STATFS, which the session itself lets a process
/// send over io_uring that it ends, so that some are given up before the library could see them.
const NOT_COMPARED: [Opcode; 4] = [
    Opcode::Forget,
    Opcode::BatchForget,
    Opcode::Interrupt,
    Opcode::Statfs,
];

/// One test at a time: the tracing instances of this process are counted.
static ALONE: Mutex<()> = Mutex::new(());

type Counts = BTreeMap<String, (u64, u64)>;

fn can_trace() -> bool {
    if tracefs().is_err() {
        let tried = std::process::Command::new("mount")
            .args(["-t", "tracefs", "none", "/sys/kernel/tracing"])
            .status();
        println!("mount tracefs: {tried:?}");
    }
    let events = tracefs().map(|root| root.join("events/fuse/fuse_request_send"));
    let can = events.as_ref().is_ok_and(|path| path.exists());
    if !can {
        support::say(format_args!("SKIPPED: no FUSE tracepoints: {events:?}"));
    }
    can
}

/// Counts and errors by opcode, as the library has them.
fn own(fixture: &Fixture) -> Counts {
    let stats = fixture.session().stats();
    let compared = Opcode::ALL.iter().filter(|op| !NOT_COMPARED.contains(op));
    compared
        .map(|op| (op.name().to_owned(), stats.of(*op)))
        .filter(|(_, row)| row.count > 0)
        .map(|(name, row)| (name, (row.count, row.errors)))
        .collect()
}

fn add(counts: &mut Counts, requests: &[KernelRequest]) {
    let left_out = NOT_COMPARED.map(Opcode::name);
    for request in requests
        .iter()
        .filter(|r| !left_out.contains(&r.name().as_str()))
    {
        let (count, errors) = counts.entry(request.name()).or_default();
        *count += 1;
        *errors += u64::from(request.error != 0);
    }
}

fn since(now: &Counts, before: &Counts) -> Counts {
    let difference = now.iter().map(|(name, (count, errors))| {
        let (counted, failed) = before.get(name).copied().unwrap_or_default();
        (name.clone(), (count - counted, errors - failed))
    });
    difference.filter(|(_, (count, _))| *count > 0).collect()
}

fn work(fixture: &Fixture, round: u32) {
    for number in 0..200 {
        let name = format!("quick-{}", number * 10 + round);
        fs::metadata(fixture.path(&name)).unwrap();
        fs::metadata(fixture.path("no-such-name")).unwrap_err();
    }
    fs::read(fixture.path("data")).unwrap();
    fs::read(fixture.path("direct")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = fixture.path(&format!("later-{}", 100 + thread));
            scope.spawn(move || fs::metadata(path).unwrap());
        }
    });
}

fn instances_of_this_process() -> usize {
    let mine = format!("bickford-{}-", std::process::id());
    let instances = fs::read_dir(tracefs().unwrap().join("instances")).unwrap();
    instances
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine))
        .count()
}

#[test]
fn every_request_is_counted_as_the_kernel_counts_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !support::can_mount() || !can_trace() {
        return;
    }
    over_each_transport(|config| {
        let fixture = Fixture::new(Subject::new(), config);
        // What was before tracing must be over, or a half of it would be seen.
        work(&fixture, 1);
        let before = RefCell::new(own(&fixture));
        wait_until("no request is under way", || {
            std::thread::sleep(Duration::from_millis(50));
            let now = own(&fixture);
            fixture.session().server().in_flight().is_empty() && now == before.replace(now.clone())
        });
        let connection = fixture.session().connection().unwrap();
        let tracepoints = Tracepoints::open(Some(connection)).unwrap();
        assert_eq!(instances_of_this_process(), 1);
        let tracepoints = RefCell::new(tracepoints);
        let before = before.into_inner();
        work(&fixture, 2);

        let seen = RefCell::new(Counts::new());
        wait_until("both count the same", || {
            let ended = tracepoints.borrow_mut().take(Duration::ZERO).unwrap();
            add(&mut seen.borrow_mut(), &ended);
            let own = since(&own(&fixture), &before);
            let same = *seen.borrow() == own;
            if !same {
                println!("kernel {:?}\nlibrary {own:?}", seen.borrow());
                std::thread::sleep(Duration::from_millis(50));
            }
            same
        });
        let seen = seen.into_inner();
        assert!(seen["LOOKUP"].0 >= 400, "{seen:?}");
        assert!(seen["LOOKUP"].1 >= 200, "{seen:?}");
        assert!(seen.contains_key("READ"), "{seen:?}");
        let mut tracepoints = tracepoints.into_inner();
        tracepoints.stop().unwrap();
        assert_eq!(tracepoints.lost(), 0);
        drop(tracepoints);
        assert_eq!(instances_of_this_process(), 0);
        fixture.finish();
    });
}

#[test]
fn callers_are_named_and_what_a_killed_process_left_is_removed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !support::can_mount() || !can_trace() {
        return;
    }
    // No process has this number: it is above the kernel's highest.
    let left = tracefs().unwrap().join("instances/bickford-4194305-0");
    fs::create_dir_all(&left).unwrap();
    let fixture = Fixture::new(Subject::new(), bickford::SessionConfig::default());
    let connection = fixture.session().connection().unwrap();
    let mut tracepoints = Tracepoints::open(Some(connection)).unwrap();
    tracepoints.name_callers();
    assert!(!Path::new(&left).exists());
    fs::metadata(fixture.path("quick-7")).unwrap();
    let mine = fs::read_to_string("/proc/thread-self/comm").unwrap();
    let seen = RefCell::new(Vec::new());
    let tracepoints = RefCell::new(tracepoints);
    wait_until("the lookup is seen", || {
        let ended = tracepoints
            .borrow_mut()
            .take(Duration::from_millis(10))
            .unwrap();
        seen.borrow_mut().extend(ended);
        seen.borrow().iter().any(|r| r.name() == "LOOKUP")
    });
    let lookup = seen.borrow().iter().find(|r| r.name() == "LOOKUP").cloned();
    let lookup = lookup.unwrap();
    assert_eq!(lookup.comm, mine.trim_end());
    assert!(lookup.duration_ns() > 0 && lookup.bytes_in > 40);
    drop(tracepoints);
    fixture.finish();
}

#[test]
fn a_watched_thread_enters_waits_and_returns_around_its_request() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !support::can_mount() || !can_trace() {
        return;
    }
    let fixture = Fixture::new(Subject::new(), bickford::SessionConfig::default());
    let connection = fixture.session().connection().unwrap();
    let mut tracepoints = Tracepoints::open(Some(connection)).unwrap();
    let instances = tracefs().unwrap().join("instances");
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    tracepoints.watch(thread.unsigned_abs()).unwrap();
    fs::metadata(fixture.path("quick-7")).unwrap();
    tracepoints.stop().unwrap();
    let ended = tracepoints.take(Duration::ZERO).unwrap();
    let steps = tracepoints.take_steps();
    assert_eq!(tracepoints.lost(), 0);
    let lookup = ended.iter().find(|r| r.name() == "LOOKUP").unwrap();
    assert_eq!(lookup.pid, thread.unsigned_abs());
    let entered = steps
        .iter()
        .rposition(|s| s.step == Step::Entered && s.at_ns <= lookup.sent_ns);
    let left = steps
        .iter()
        .position(|s| s.step == Step::Left && s.at_ns >= lookup.ended_ns);
    let (Some(entered), Some(left)) = (entered, left) else {
        panic!("{lookup:?} {steps:?}");
    };
    // Between, it was away and came back; not each switch is told of, since kernels leave out some
    // from the idle task.
    let within = &steps[entered + 1..left];
    assert!(
        within
            .iter()
            .all(|s| !matches!(s.step, Step::Entered | Step::Left)),
        "{steps:?}"
    );
    for event in [
        "sched/sched_switch",
        "raw_syscalls/sys_enter",
        "raw_syscalls/sys_exit",
    ] {
        let name = format!("bickford-{}-", std::process::id());
        for instance in fs::read_dir(&instances).unwrap().flatten() {
            if instance.file_name().to_string_lossy().starts_with(&name) {
                let enabled = instance.path().join("events").join(event).join("enable");
                assert_eq!(fs::read_to_string(enabled).unwrap().trim(), "0", "{event}");
            }
        }
    }
    drop(tracepoints);
    assert_eq!(instances_of_this_process(), 0);
    fixture.finish();
}
