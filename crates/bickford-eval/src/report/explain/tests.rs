//! Sentences from what was measured.

use super::*;
use crate::measure::disk::Counters;
use crate::report::analysis::Analysis;
use crate::report::fixture;
use crate::results::Outcome;
use crate::rows::fast17;

fn times(op: &str, count: u64) -> OpLatency {
    let op = op.to_owned();
    let [latency] = fixture::measured(0.0).work.latencies.try_into().unwrap();
    OpLatency {
        op,
        count,
        ..latency
    }
}

/// 1,000 operations in a second.
fn measured(daemon_s: f64) -> Measured {
    Measured {
        daemon: Some(ProcessTime {
            user_s: 0.0,
            system_s: daemon_s,
        }),
        ..fixture::measured(1000.0)
    }
}

fn requests(by_opcode: Vec<OpLatency>) -> Requests {
    Requests {
        by_opcode,
        errors: 0,
        unanswered: 0,
        lost: 0,
    }
}

/// What is said of these requests.
fn said(by_opcode: Vec<OpLatency>, daemon_s: f64) -> (String, String) {
    let (measured, requests) = (measured(daemon_s), requests(by_opcode));
    let rows = fast17(0.01);
    let row = &rows[36];
    (
        requests_per_operation(row, &measured, &requests)
            .expect("there is work")
            .full,
        full(&stages(row, &measured, &requests)),
    )
}

#[test]
fn frequent_requests_are_listed_and_others_only_where_there_are_none() {
    let (both, _) = said(vec![times("LOOKUP", 500), times("STATFS", 2)], 1.0);
    assert_eq!(
        both,
        "0.502 requests per operation, with their mean round trip: 0.500 LOOKUP (100 us)."
    );
    let (rare, _) = said(vec![times("CREATE", 6), times("FLUSH", 5)], 1.0);
    assert_eq!(
        rare,
        "0.0110 requests per operation, with their mean round trip: 0.00600 CREATE (100 us), 0.00500 FLUSH (100 us)."
    );
}

#[test]
fn time_that_operations_do_not_show_is_told() {
    let of = |mean_us: f64, elapsed_s: f64| Usage {
        mean_us: Some(mean_us),
        elapsed_s: Some(elapsed_s),
        ..Usage::default()
    };
    let native = of(1.44, 0.1);
    let told = time_beside_operations(&native, &of(1.3, 0.183)).expect("twice the time");
    assert!(
        told.full.contains("takes 0.183 s, natively 0.100 s"),
        "{told:?}"
    );
    assert_eq!(time_beside_operations(&native, &of(2.88, 0.2)), None);
    assert_eq!(time_beside_operations(&native, &Usage::default()), None);
}

#[test]
fn other_programs_on_the_machine_are_told_of() {
    let of = |machine_s: f64, kernel_s: f64| Usage {
        wall_s: Some(1.0),
        workload_s: Some(0.5),
        daemon_s: Some(0.3),
        machine_s: Some(machine_s),
        kernel_s: Some(kernel_s),
        ..Usage::default()
    };
    assert_eq!(others(&of(2.0, 0.2), 2), Some(0.5));
    assert_eq!(others(&of(2.0, 1.2), 2), None, "the kernel's own");
    assert_eq!(others(&of(1.1, 0.2), 2), None, "a few ticks");
}

#[test]
fn a_device_with_less_to_do_does_not_wait_for_requests() {
    let told = |throughput: f64, read_bytes: u64| {
        let mut results = fixture::results(&["f37"], &["base"]);
        for (config, throughput, busy_ms, read_bytes) in [
            ("native", 100.0, 900, 100 << 20),
            ("base", throughput, 100, read_bytes),
        ] {
            for round in 1..=3 {
                let disk = Some(Counters {
                    read_bytes,
                    busy_ms,
                    ..Counters::default()
                });
                let one = Measured {
                    disk,
                    ..fixture::measured(throughput)
                };
                let outcome = Outcome::Measured(Box::new(one));
                fixture::add(&mut results, "f37", config, round, outcome);
            }
        }
        let analysis = Analysis::of(&results);
        full(&analysis.rows[0].cells[1].explanation).contains("waits for requests")
    };
    assert!(told(50.0, 100 << 20));
    assert!(told(50.0, 86 << 20), "about as much");
    assert!(!told(50.0, 25 << 20), "most is cached");
    assert!(!told(150.0, 100 << 20), "it is faster");
}

#[test]
fn a_daemon_whose_processes_were_not_found_is_not_said_to_have_none() {
    let requests = requests(vec![times("LOOKUP", 2_000)]);
    let told = full(&stages(
        &fast17(0.01)[36],
        &fixture::measured(1000.0),
        &requests,
    ));
    let found = "no process was found with BICKFORD_EVAL_MOUNT in its environment";
    assert!(told.contains(found), "{told}");
}

#[test]
fn hardly_any_request_has_no_stages() {
    let (requests, stages) = said(vec![times("LOOKUP", 3)], 1.0);
    assert!(requests.starts_with("Hardly any request"), "{requests}");
    assert_eq!(stages, "");
}

#[test]
fn cpu_time_below_its_clock_is_not_divided() {
    let (_, long) = said(vec![times("LOOKUP", 500)], 0.06);
    assert!(long.contains("CPU takes 120 us per request"), "{long}");
    let (_, short) = said(vec![times("LOOKUP", 500)], 0.02);
    assert!(short.starts_with("Requests are 50%"), "{short}");
}

#[test]
fn what_cpu_leaves_of_a_round_trip_is_told_only_where_it_is_true() {
    let told = |count: u64, daemon_s: f64| said(vec![times("LOOKUP", count)], daemon_s).1;
    let below = told(1000, 0.06);
    assert!(below.contains("CPU takes 60.0 us per request"), "{below}");
    assert!(
        below.contains("Of the 100 us of a round trip at least 40.0 us are queueing"),
        "{below}"
    );
    // FORGETs and the like: more CPU than round trips, or nearly as much.
    for cpu in [0.12, 0.095] {
        let above = told(1000, cpu);
        assert!(above.contains("per request"), "{above}");
        assert!(!above.contains("queueing"), "{above}");
    }
    // Twice as much as the workload waited: requests overlap.
    let beside = told(2000, 0.06);
    assert!(beside.contains("CPU takes 30.0 us"), "{beside}");
    assert!(
        !beside.contains("queueing") && beside.contains("overlap"),
        "{beside}"
    );
}

#[test]
fn fsyncs_of_one_file_by_many_threads_are_told_of() {
    let rows = fast17(0.01);
    let row = |id: &str| rows.iter().find(|row| row.id == id).expect("a row");
    let of = |id: &str, count: u64| {
        let requests = requests(vec![times("FSYNC", count)]);
        fsync_in_turn(row(id), &measured(0.0), &requests).map(|s| s.full)
    };
    let told = of("f36", 2500).expect("a quarter of the time");
    assert!(told.starts_with("FSYNC is 25%"), "{told}");
    assert_eq!(of("f36", 500), None, "a twentieth");
    assert_eq!(of("f28", 2500), None, "a file for each thread");
    assert_eq!(of("f32", 2500), None, "one thread");
    assert_eq!(of("f44", 2500), None, "not of fio");
}

#[test]
fn short_rows_of_fio_are_told_and_their_class_is_not_certain() {
    let of = |elapsed_s| {
        let mut results = fixture::results(&["f01"], &["base"]);
        fixture::run(&mut results, "f01", "native", &[100.0; 3]);
        fixture::run(&mut results, "f01", "base", &[97.0; 3]);
        for sample in &mut results.samples {
            if let Outcome::Measured(measured) = &mut sample.outcome {
                measured.work.elapsed_s = elapsed_s;
            }
        }
        let analysis = Analysis::of(&results);
        let cell = &analysis.rows[0].cells[1];
        (cell.uncertain(), full(&cell.explanation))
    };
    let (uncertain, why) = of(0.02);
    assert!(uncertain && why.contains("-12.7% to +6.7%"), "{why}");
    assert!(
        why.contains("whole milliseconds") && why.contains("10.0% wider"),
        "{why}"
    );
    let (uncertain, why) = of(0.2);
    assert!(!uncertain && !why.contains("milliseconds"), "{why}");
}
