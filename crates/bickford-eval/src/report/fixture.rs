//! Results for the tests of reports.

use std::path::PathBuf;

use crate::host::Machine;
use crate::host::device::Choice;
use crate::measure::cpu::SystemTime;
use crate::measure::{OpLatency, Work};
use crate::results::{Measured, Outcome, Results, Sample, Settings};
use crate::rows;
use crate::target::Config;

/// Rows of FAST'17 by their identifiers, in native and in these configurations, none of them run.
pub(crate) fn results(ids: &[&str], configs: &[&str]) -> Results {
    let mut rows = rows::fast17(0.01);
    rows.retain(|r| ids.contains(&r.id.as_str()));
    let mut all = vec![Config::native()];
    all.extend(configs.iter().map(|name| Config {
        name: (*name).to_owned(),
        command: Some(format!("{name} {{src}} {{mnt}}")),
        directory: None,
    }));
    let settings = Settings {
        version: "1".into(),
        suite: "fast17".into(),
        scale: 0.01,
        device: Choice::Disk,
        directory: PathBuf::from("/var/tmp"),
        rounds: 3,
        deadline_s: 60,
        configs: all,
        rows,
        machine: Machine {
            kernel: "Linux 6".into(),
            cpu: "one".into(),
            cpus: 2,
            memory_bytes: 1 << 32,
        },
        started: 0,
        command: "bickford eval".into(),
        programs: std::collections::BTreeMap::new(),
        enable_uring: None,
        usable_cpus: None,
        root: None,
        limited: None,
        file_system: None,
    };
    Results {
        settings,
        samples: Vec::new(),
        notes: Vec::new(),
    }
}

/// A run of 1,000 creates in a second.
pub(super) fn measured(throughput: f64) -> Measured {
    Measured {
        throughput,
        work: Work {
            operations: 1000,
            elapsed_s: 1.0,
            latencies: vec![OpLatency {
                op: "createfile".into(),
                count: 1000,
                mean_us: 100.0,
                p50_us: 50.0,
                p95_us: 95.0,
                p99_us: 99.0,
                p999_us: 99.9,
                max_us: 100.0,
            }],
            ..Work::default()
        },
        wall_s: 1.0,
        workload_s: 0.1,
        daemon: None,
        system: SystemTime::default(),
        cycles: None,
        disk: None,
        requests: None,
        caches: None,
        memory_limit: None,
    }
}

/// Counted rounds of a row, numbered from 1.
pub(super) fn run(results: &mut Results, row: &str, config: &str, throughputs: &[f64]) {
    for (round, throughput) in (1..).zip(throughputs) {
        let outcome = Outcome::Measured(Box::new(measured(*throughput)));
        add(results, row, config, round, outcome);
    }
}

/// A round of a row.
pub(super) fn add(results: &mut Results, row: &str, config: &str, round: u32, outcome: Outcome) {
    results.samples.push(Sample {
        row: row.to_owned(),
        config: config.to_owned(),
        round,
        outcome,
    });
}
