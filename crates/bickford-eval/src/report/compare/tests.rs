//! What is compared, and what is told of the runs.

use super::*;
use crate::report::fixture::{add, results, run};
use crate::results::Outcome;

/// Native and `base` of row 37.
fn base(native: f64, base: f64) -> Results {
    let mut results = results(&["f37"], &["base"]);
    let around = |v: f64| [v, v * 1.01, v * 0.99];
    run(&mut results, "f37", "native", &around(native));
    run(&mut results, "f37", "base", &around(base));
    results
}

fn line(text: &str, config: &str) -> String {
    let mut lines = text.lines();
    let found = lines.find(|l| l.starts_with("f37") && l.contains(config));
    found.unwrap_or_default().to_owned()
}

#[test]
fn a_change_against_native_has_its_own_spread() {
    let same = line(&text(&base(100.0, 50.0), &base(200.0, 100.0)), "base");
    assert!(same.contains("+100.0% (+96.0 to +104.0)"), "{same}");
    assert!(same.contains("-50.0% (-51.0 to -49.0)"), "{same}");
    assert!(
        same.ends_with("change to native within the spread"),
        "{same}"
    );
    let better = line(&text(&base(100.0, 50.0), &base(100.0, 80.0)), "base");
    assert!(
        better.contains("+60.0%") && !better.contains("within"),
        "{better}"
    );
}

#[test]
fn what_only_one_run_has_is_a_line() {
    let mut a = base(100.0, 50.0);
    let mut b = base(100.0, 50.0);
    b.samples.retain(|s| s.config != "base");
    let unmeasured = line(&text(&a, &b), "base");
    assert!(
        unmeasured.contains("-50.0% (") && unmeasured.ends_with("B: no result"),
        "{unmeasured}"
    );
    add(&mut b, "f37", "base", 1, Outcome::Failed("no luck".into()));
    let failed = line(&text(&a, &b), "base");
    assert!(failed.ends_with("B: error: no luck"), "{failed}");
    let rows = results(&["f37", "f38"], &["fast"]);
    b.settings.rows = rows.settings.rows;
    b.settings.configs = rows.settings.configs;
    let other = text(&a, &b);
    assert!(
        other.contains("f38") && other.contains("only in B"),
        "{other}"
    );
    assert!(other.contains("Configuration base: only in A."), "{other}");
    assert!(other.contains("Configuration fast: only in B."), "{other}");
    a.settings.rows.clear();
    assert!(line(&text(&b, &a), "").ends_with("only in A"));
}

#[test]
fn rows_that_do_other_work_are_not_compared() {
    let a = base(100.0, 50.0);
    let mut b = base(100.0, 60.0);
    if let Some(row) = b.settings.rows.first_mut() {
        row.memory *= 2;
    }
    let memory = line(&text(&a, &b), "base");
    assert!(
        memory.contains("other work: not compared (memory"),
        "{memory}"
    );
    assert!(
        memory.contains("-40.0%") && !memory.contains("+20.0%"),
        "{memory}"
    );
    if let Some(row) = b.settings.rows.first_mut() {
        row.kind = Kind::Copy { bytes: 1 };
    }
    let kind = line(&text(&a, &b), "native");
    assert!(kind.ends_with("other work: not compared"), "{kind}");
}

#[test]
fn short_rows_of_fio_are_surer_by_no_more_than_its_clock() {
    let run_of = |base: f64| {
        let mut results = results(&["f01"], &["base"]);
        run(&mut results, "f01", "native", &[100.0; 3]);
        run(&mut results, "f01", "base", &[base; 3]);
        for sample in &mut results.samples {
            if let Outcome::Measured(measured) = &mut sample.outcome {
                measured.work.elapsed_s = 0.05;
            }
        }
        results
    };
    let told = text(&run_of(96.0), &run_of(92.0));
    let base = told
        .lines()
        .find(|l| l.starts_with("f01") && l.contains("base"));
    let base = base.unwrap_or_default();
    for part in [
        "-4.2% (-8.0 to -0.3)",
        "-4.0% (-7.8 to -0.2)",
        "-4.2% (-11.8 to +3.5)",
    ] {
        assert!(base.contains(part), "{part}: {base}");
    }
}

#[test]
fn rows_under_other_memory_limits_are_not_compared() {
    let (a, mut b) = (base(100.0, 50.0), base(100.0, 60.0));
    for sample in b.samples.iter_mut().filter(|s| s.config == "base") {
        if let Outcome::Measured(measured) = &mut sample.outcome {
            measured.memory_limit = Some(64 << 20);
        }
    }
    let told = line(&text(&a, &b), "base");
    let remark = "another memory limit: not compared (none in A, 64 MB in B)";
    assert!(told.ends_with(remark) && !told.contains("+20.0%"), "{told}");
    assert!(!text(&b, &b).contains("limit"), "{}", text(&b, &b));
}

#[test]
fn other_rights_and_another_file_system_below_are_told() {
    let (mut a, mut b) = (base(100.0, 50.0), base(100.0, 50.0));
    b.settings.root = Some(true);
    b.settings.limited = Some(true);
    b.settings.file_system = Some("ext4 on /dev/sda1".into());
    let older = text(&a, &b);
    assert!(
        !older.contains("root") && !older.contains("different"),
        "{older}"
    );
    assert!(!text(&b, &b).contains("Only"), "{}", text(&b, &b));
    a.settings.root = Some(false);
    a.settings.limited = Some(false);
    a.settings.file_system = Some("xfs on /dev/sdb1".into());
    let told = text(&a, &b);
    for part in [
        "Only B was run as root",
        "Only in B could a memory limit be had",
        "The runs have different devices",
        "A: disk, work directory /var/tmp (xfs on /dev/sdb1)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn what_differs_of_the_machines_is_told_and_a_restart_makes_no_other_machine() {
    let a = base(100.0, 50.0);
    let mut b = base(100.0, 50.0);
    // The kernel keeps a little more for itself.
    b.settings.machine.memory_bytes -= 4096;
    assert!(!text(&a, &b).contains("different"), "{}", text(&a, &b));
    b.settings.machine.memory_bytes /= 2;
    b.settings.machine.kernel = "Linux 7".into();
    let told = text(&a, &b);
    for part in [
        "different machines (the kernel Linux 6 in A, Linux 7 in B; ",
        "the machine with 4096 MB of memory in A, with 2047 MB of memory in B)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn cpus_that_only_one_run_might_not_use_are_told() {
    let a = base(100.0, 50.0);
    let mut b = base(100.0, 50.0);
    // All that there are, as in older records.
    b.settings.usable_cpus = Some(2);
    assert!(!text(&a, &b).contains("CPUs"), "{}", text(&a, &b));
    b.settings.usable_cpus = Some(1);
    let told = text(&a, &b);
    assert!(told.contains("of CPUs, 2 in A and 1 in B"), "{told}");
    assert!(!text(&b, &b).contains("CPUs"), "{}", text(&b, &b));
}

#[test]
fn other_devices_and_commands_are_told() {
    let a = base(100.0, 50.0);
    assert!(!text(&a, &a).contains("different"), "{}", text(&a, &a));
    let mut b = base(100.0, 50.0);
    b.settings.enable_uring = Some("N".into());
    assert!(!text(&a, &b).contains("io_uring"), "an older record");
    let mut on = base(100.0, 50.0);
    on.settings.enable_uring = Some("Y".into());
    let told = text(&on, &b);
    assert!(told.contains("is Y in A and N in B"), "{told}");
    b.settings.device = crate::host::device::Choice::Ram;
    if let Some(config) = b.settings.configs.last_mut() {
        config.command = Some("other {src} {mnt}".into());
    }
    let told = text(&a, &b);
    assert!(told.contains("different devices"), "{told}");
    assert!(told.contains("base: its command is another one"), "{told}");
    assert!(told.contains("B: other {src} {mnt}"), "{told}");
}

#[test]
fn native_with_fewer_rounds_is_told() {
    let mut b = base(100.0, 50.0);
    b.samples.retain(|s| s.config != "native" || s.round < 3);
    let told = line(&text(&base(100.0, 50.0), &b), "base");
    assert!(
        told.contains("B: of counted rounds native has 2, base 3"),
        "{told}"
    );
}
