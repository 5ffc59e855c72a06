//! What is kept of a run, and when it is gone on with.

use super::*;
use crate::host::cgroup::MemoryLimit;

fn settings() -> Settings {
    Settings {
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::probe(),
        usable_cpus: Some(crate::host::usable_cpus()),
        root: Some(crate::host::is_root()),
        limited: Some(MemoryLimit::probe().is_ok()),
        file_system: crate::host::mounts::file_system(Path::new("/var/tmp")),
        ..crate::report::fixture::results(&[], &[]).settings
    }
}

#[test]
fn another_machine_kernel_or_version_is_a_change() {
    let now = Machine::probe();
    assert_eq!(settings().changes(&now), Vec::<String>::new());
    let mut other = settings();
    other.machine.memory_bytes -= 4096;
    assert_eq!(other.changes(&now), Vec::<String>::new());
    other.machine.memory_bytes /= 2;
    other.machine.kernel = "Linux 2.4".into();
    other.machine.cpu = "abacus".into();
    other.machine.cpus += 1;
    other.version = "0.0.1".into();
    let (built, gone) = (PathBuf::from("/bin/sh"), PathBuf::from("/nonexistent"));
    other.programs = [(built, "older".into()), (gone, String::new())].into();
    other.usable_cpus = Some(12_345);
    other.enable_uring = Some("of another kernel".into());
    other.root = Some(!crate::host::is_root());
    other.limited = Some(MemoryLimit::probe().is_err());
    other.file_system = Some("ext2 on a floppy".into());
    let changes = other.changes(&now).join("; ");
    for told in [
        "the kernel was Linux 2.4 and is ",
        "the processor was abacus",
        "CPUs and is with",
        "bickford-eval was 0.0.1",
        "the number of CPUs that may be used was 12345 and is ",
        "MB of memory and is",
        "/bin/sh is another program now",
        "/nonexistent: No such file",
        "enable_uring of the module fuse was of another kernel and is ",
        "the user was ",
        "a memory limit was ",
        "the file system below was ext2 on a floppy and is ",
    ] {
        assert!(changes.contains(told), "{told}: {changes}");
    }
}

fn sample(config: &str, round: u32, error: &str) -> Sample {
    Sample {
        row: "r".into(),
        config: config.into(),
        round,
        outcome: Outcome::Failed(error.into()),
    }
}

#[test]
fn a_line_may_be_cut_off_within_a_character_and_a_bad_one_is_told_by_its_number() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("out");
    let mut store = Store::create(&place, settings()).expect("new");
    store.add(sample("a", 1, "first")).expect("kept");
    drop(store);
    let file = place.join(SAMPLES);
    let kept = fs::read(&file).expect("samples");
    let put = |more: &[u8]| fs::write(&file, [&kept, more].concat()).expect("written");
    put(b"{\"row\":\"r\",\"config\":\"\xc2");
    assert_eq!(load(&place).expect("read").samples.len(), 1);
    let store = Store::resume(&place).expect("goes on");
    assert_eq!(store.results.samples.len(), 1);
    assert_eq!(fs::read(&file).expect("samples"), kept);
    for bad in [b"{\"row\":1}\n".as_slice(), b"\xff\n"] {
        put(bad);
        let error = load(&place).expect_err("bad").to_string();
        assert!(error.contains("samples.jsonl: line 2: "), "{error}");
        assert!(!error.contains("line 1"), "{error}");
    }
}

#[test]
fn a_row_is_left_until_each_configuration_has_all_its_rounds_or_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut settings = settings();
    settings.rows = crate::rows::quick(1.0);
    settings.rows.truncate(2);
    let ids: Vec<String> = settings.rows.iter().map(|row| row.id.clone()).collect();
    let configs: Vec<String> = ["a", "b"].map(str::to_owned).into();
    let config = |name: &String| crate::target::Config {
        name: name.clone(),
        command: None,
        directory: None,
    };
    settings.configs = configs.iter().map(config).collect();
    let mut store = Store::create(&directory.path().join("out"), settings).expect("new");
    let left = |store: &Store| store.rows_left().map(|r| r.id.clone()).collect::<Vec<_>>();
    for name in &configs {
        assert_eq!(left(&store), ids, "not yet {name}");
        let mut failed = sample(name, 0, "no");
        failed.row.clone_from(ids.first().expect("two rows"));
        store.add(failed).expect("kept");
    }
    assert_eq!(left(&store), ids.get(1..).expect("two rows"));
}

#[test]
fn what_failed_is_run_again_once_and_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("out");
    let mut store = Store::create(&place, settings()).expect("new");
    store.add(sample("a", 1, "first")).expect("kept");
    drop(store);
    let mut store = Store::resume(&place).expect("the same machine");
    assert!(store.is_done("r", "a", 1) && store.is_done("r", "a", 2));
    store.retry_failed();
    assert!(!store.is_done("r", "a", 1) && !store.is_done("r", "a", 2));
    assert_eq!(
        store.results.error("r", "a"),
        Some("first"),
        "until replaced"
    );
    store.add(sample("a", 1, "second")).expect("kept");
    assert!(store.is_done("r", "a", 1), "once");
    let kept = |results: &Results| {
        let error = results.error("r", "a").map(str::to_owned);
        (results.samples.len(), error)
    };
    assert_eq!(kept(&store.results), (1, Some("second".into())));
    let read = load(&place).expect("read again");
    assert_eq!(kept(&read), (1, Some("second".into())));
    assert!(
        read.notes.iter().any(|n| n.contains("run again")),
        "{:?}",
        read.notes
    );
}

#[test]
fn a_directory_is_one_runs_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("out");
    let mut store = Store::create(&place, settings()).expect("new");
    store.add(sample("a", 1, "first")).expect("kept");
    let samples = || fs::read(place.join(SAMPLES)).expect("samples");
    // The other is in the middle of a line.
    store.log.write_all(b"{\"row\":").expect("written");
    let kept = samples();
    let others = [Store::resume(&place), Store::create(&place, settings())];
    for other in others {
        let error = other.expect_err("it is written to").to_string();
        assert!(error.contains("another run writes there"), "{error}");
    }
    assert_eq!(samples(), kept, "nothing is cut off");
    assert_eq!(load(&place).expect("reports may be made").samples.len(), 1);
    drop(store);
    Store::resume(&place).expect("free again");
    let empty = tempfile::tempdir().expect("a directory");
    Store::resume(empty.path()).expect_err("no run");
    assert_eq!(fs::read_dir(empty.path()).expect("there").count(), 0);
}
