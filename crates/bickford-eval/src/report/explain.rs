//! Why a row is as it is, derived from what was measured of it.

use crate::measure::cpu::ProcessTime;
use crate::measure::tracepoints::Requests;
use crate::results::Measured;
use crate::rows::{Kind, Row, WorkloadClass};
use crate::stats::{Class, ROUNDS_FOR_SPREAD, interval_name};

use super::analysis::Cell;
use super::figure;

/// Requests below this many per operation do not explain a row.
const FEW: f64 = 0.01;

/// Requests that are less than this share of the time the workload waited do not explain a row either.
const SMALL_SHARE: f64 = 0.05;

/// FSYNC is told of from this share of a row's time on.
const FSYNC_SHARE: f64 = 0.1;

/// CPU time of a process is counted in hundredths of a second: below five of them it says nothing of
/// a single request.
const COUNTABLE_CPU_S: f64 = 0.05;

/// Requests take at most this share of the time the workload waited, where it waits for each: clocks are not
/// the same.
const OVERLAP: f64 = 1.1;

/// CPU time up to this share of the round trips is less than they are, whatever its clock.
const CLEARLY_BELOW: f64 = 0.9;

/// Sentences on one configuration, most important first.
pub(super) fn row(row: &Row, native: &Cell<'_>, cell: &Cell<'_>, cpus: usize) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(error) = cell.error {
        return vec![format!("The row ended with an error: {error}.")];
    }
    let Some(comparison) = cell.comparison else {
        return sentences;
    };
    let (best, worst) = comparison.class_range;
    if comparison.rounds < ROUNDS_FOR_SPREAD {
        sentences.push(format!(
            "The class is uncertain: {} of at least {ROUNDS_FOR_SPREAD} rounds were counted.",
            comparison.rounds
        ));
    } else if best != worst {
        sentences.push(format!(
            "The class is uncertain: the {} is {:+.1}% to {:+.1}%, {best} to {worst}; more --rounds make it surer.",
            interval_name(comparison.rounds),
            comparison.interval_pct.low,
            comparison.interval_pct.high
        ));
    }
    if let Some(doubt) = &cell.doubt {
        sentences.push(format!(
            "The comparison is uncertain: {}.",
            doubt.trim_end_matches('.')
        ));
    }
    sentences.extend(time_per_operation(native, cell));
    if let Some((measured, requests)) = cell.requests {
        sentences.extend(requests_per_operation(row, measured, requests));
        sentences.extend(stages(row, measured, requests));
        sentences.extend(fsync_in_turn(row, measured, requests));
        let matter = waited_for(measured, requests).is_none_or(|share| share >= SMALL_SHARE);
        if comparison.class != Class::Green && matter {
            sentences.extend(remedies(row, measured, requests));
        }
    }
    sentences.extend(waiting_device(native, cell));
    sentences.extend(resources(native, cell, cpus));
    sentences
}

/// The row's unit of work: an operation, or a MiB where operations have no meaning.
pub(super) fn unit(row: &Row, measured: &Measured) -> (f64, &'static str) {
    if row.kind.unit() == "MB/s" {
        (measured.work.bytes as f64 / f64::from(1 << 20), "MiB")
    } else if row.kind.unit() == "transactions/s" {
        (measured.work.operations as f64, "transaction")
    } else {
        (measured.work.operations as f64, "operation")
    }
}

fn plural(unit: &str) -> String {
    match unit {
        "MiB" => unit.to_owned(),
        _ => format!("{unit}s"),
    }
}

fn time_per_operation(native: &Cell<'_>, cell: &Cell<'_>) -> Option<String> {
    let latency = |c: &Cell<'_>| c.usage.mean_us;
    if let (Some(below), Some(above)) = (latency(native), latency(cell)) {
        return Some(format!(
            "An operation takes {} us on average, natively {} us; p99 of {} {} against {} us.",
            figure(above),
            figure(below),
            cell.operation.unwrap_or("it"),
            figure(cell.usage.p99_us.unwrap_or(0.0)),
            figure(native.usage.p99_us.unwrap_or(0.0))
        ));
    }
    let elapsed = (native.usage.elapsed_s?, cell.usage.elapsed_s?);
    Some(format!(
        "The work takes {} s, natively {} s.",
        figure(elapsed.1),
        figure(elapsed.0)
    ))
}

/// Whether the kernel answers nearly all by itself.
fn hardly_any(requests: &Requests, units: f64) -> bool {
    (requests.total() as f64) < FEW * units
}

fn requests_per_operation(row: &Row, measured: &Measured, requests: &Requests) -> Option<String> {
    let (units, name) = unit(row, measured);
    if units <= 0.0 {
        return None;
    }
    if hardly_any(requests, units) {
        return Some(format!(
            "Hardly any request reaches the daemon ({} for all {} {}): the kernel answers by itself.",
            requests.total(),
            figure(units),
            plural(name)
        ));
    }
    let per_unit = |count: u64| count as f64 / units;
    // Where no opcode alone is frequent, those that come most often stand for all.
    let frequent = requests.by_opcode.iter();
    let frequent = frequent.filter(|o| per_unit(o.count) >= FEW).count();
    let listed: Vec<String> = requests
        .by_opcode
        .iter()
        .take(if frequent == 0 { 3 } else { frequent.min(8) })
        .map(|o| {
            format!(
                "{} {} ({} us)",
                figure(per_unit(o.count)),
                o.op,
                figure(o.mean_us)
            )
        })
        .collect();
    Some(format!(
        "{} requests per {name}, with their mean round trip: {}.",
        figure(per_unit(requests.total())),
        listed.join(", ")
    ))
}

/// Where the time of the round that was traced went.
fn stages(row: &Row, measured: &Measured, requests: &Requests) -> Option<String> {
    let count = requests.total();
    let (units, _) = unit(row, measured);
    if count == 0 || hardly_any(requests, units) {
        return None;
    }
    let mut sentences = Vec::new();
    match measured.daemon {
        Some(daemon) if daemon.total() >= COUNTABLE_CPU_S => {
            sentences.extend(cpu_per_request(measured, requests, daemon));
        }
        Some(_) => {}
        None => sentences.push(
            "The daemon's share of a request is not known: it has no process of its own."
                .to_owned(),
        ),
    }
    if let Some(share) = waited_for(measured, requests) {
        sentences.push(if share <= OVERLAP {
            format!(
                "Requests are {:.0}% of the time the workload waited in that round.",
                100.0 * share
            )
        } else {
            format!(
                "Requests overlap (read-ahead, write-back, replies nobody waits for): {} were under way at once.",
                figure(requests.total_s() / measured.work.elapsed_s.max(1e-9))
            )
        });
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The daemon's CPU time by request, and what it leaves of a round trip where that can be told: it holds
/// work that is in no round trip (FORGET is not traced), so that what is left is a lower bound, and of
/// requests that overlap it is not one request's.
fn cpu_per_request(measured: &Measured, requests: &Requests, cpu: ProcessTime) -> Vec<String> {
    let count = requests.total().max(1) as f64;
    let per_request = |seconds: f64| figure(seconds * 1e6 / count);
    let mut sentences = vec![format!(
        "The daemon's CPU takes {} us per request ({} in user space, {} in the kernel: transport, lower file system), work that no caller waits for included.",
        per_request(cpu.total()),
        per_request(cpu.user_s),
        per_request(cpu.system_s)
    )];
    let trips = requests.total_s();
    // Without a clock around each operation: of one thread, requests that overlap take more than all the time.
    let apart = waited_for(measured, requests)
        .map_or(trips <= measured.work.elapsed_s, |share| share <= OVERLAP);
    if apart && cpu.total() < CLEARLY_BELOW * trips {
        sentences.push(format!(
            "Of the {} us of a round trip at least {} us are queueing, waking up and waiting for the device.",
            per_request(trips),
            per_request(trips - cpu.total())
        ));
    }
    sentences
}

/// Where threads of one file each fsync it: in the kernel `fuse_fsync` holds the inode's lock until FSYNC is
/// answered.
fn fsync_in_turn(row: &Row, measured: &Measured, requests: &Requests) -> Option<String> {
    match &row.kind {
        Kind::Fio(spec) if spec.threads > 1 && spec.files == 1 => {}
        _ => return None,
    }
    let fsync = requests.by_opcode.iter().find(|o| o.op == "FSYNC")?;
    let share = fsync.count as f64 * fsync.mean_us / 1e6 / measured.work.elapsed_s.max(1e-9);
    (share >= FSYNC_SHARE).then(|| {
        format!(
            "FSYNC is {:.0}% of the time from start to end: the kernel holds a file's lock until it is answered, so that the {} follow one another and the file's writers wait; natively they run side by side.",
            100.0 * share.min(1.0),
            fsync.count
        )
    })
}

/// Round trips as a share of what the workload waited for its operations; over 1 where they overlap.
fn waited_for(measured: &Measured, requests: &Requests) -> Option<f64> {
    let latencies = measured.work.latencies.iter();
    let waited: f64 = latencies.map(|l| l.mean_us * l.count as f64 / 1e6).sum();
    (waited > 0.0).then(|| requests.total_s() / waited)
}

fn waiting_device(native: &Cell<'_>, cell: &Cell<'_>) -> Option<String> {
    let (below, above) = (native.usage.disk_busy_pct?, cell.usage.disk_busy_pct?);
    (above + 20.0 < below).then(|| {
        format!(
            "The device is busy {above:.0}% of the time, natively {below:.0}%: it waits for requests."
        )
    })
}

/// What would help, by the requests that take most of the time.
fn remedies(row: &Row, measured: &Measured, requests: &Requests) -> Option<String> {
    let (units, _) = unit(row, measured);
    let total = requests.total_s();
    let mut weighed: Vec<(&str, f64)> = requests
        .by_opcode
        .iter()
        .filter(|o| o.count as f64 / units.max(1.0) >= FEW)
        .map(|o| (o.op.as_str(), o.count as f64 * o.mean_us / 1e6))
        .collect();
    weighed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let advice: Vec<String> = weighed
        .iter()
        .take(3)
        .filter(|(_, seconds)| *seconds > 0.1 * total)
        .filter_map(|(op, seconds)| {
            Some(format!(
                "{op} ({:.0}%): {}",
                100.0 * seconds / total,
                remedy(op, row.class)?
            ))
        })
        .collect();
    (!advice.is_empty()).then(|| {
        format!(
            "Most of the requests' time, and what would help: {}.",
            advice.join("; ")
        )
    })
}

fn remedy(opcode: &str, class: WorkloadClass) -> Option<&'static str> {
    let small_files = class == WorkloadClass::Metadata;
    Some(match opcode {
        "READ" | "WRITE" if small_files => {
            "a faster transport (io_uring, threads on the caller's CPU): the data of a small file used once is one request"
        }
        "LOOKUP" => {
            "longer entry timeouts, negative entries for names that miss; a new name is always looked up once"
        }
        "GETATTR" | "STATX" => {
            "longer attribute timeouts; with default_permissions each change of a directory makes its mode be asked for again (a mount of root alone can do without: --no-permission-checks)"
        }
        "GETXATTR" => {
            "HANDLE_KILLPRIV_V2, so that security.capability is asked for once a file, not at each write; without extended attributes (--no-xattr) it never is"
        }
        "OPEN" => {
            "zero-message open (OPEN answered with ENOSYS), which excludes kernel pass-through: --io cached"
        }
        "OPENDIR" => "zero-message opendir (OPENDIR answered with ENOSYS)",
        "FLUSH" => "FOPEN_NOFLUSH, or answering flush with ENOSYS",
        "RELEASE" => {
            "nobody waits for it, it only costs CPU; with zero-message open, which excludes kernel pass-through, it is not sent"
        }
        "RELEASEDIR" => "zero-message opendir, with which it is not sent",
        "READ" => "kernel pass-through, larger read-ahead, keeping the page cache over opens",
        "WRITE" => "kernel pass-through, a write-back cache, larger requests",
        "CREATE" | "MKNOD" | "UNLINK" | "MKDIR" | "RENAME" | "RENAME2" => {
            "a faster transport (io_uring, threads on the caller's CPU): this request cannot be avoided"
        }
        "FSYNC" | "FSYNCDIR" => "nothing in user space: it waits for the device, as natively",
        "SETATTR" => "a write-back cache, which keeps sizes and times in the kernel",
        _ => return None,
    })
}

fn resources(native: &Cell<'_>, cell: &Cell<'_>, cpus: usize) -> Option<String> {
    let mut parts = Vec::new();
    let (below, above) = (native.usage, cell.usage);
    if let (Some(busy), Some(wall)) = (above.machine_s, above.wall_s)
        && wall > 0.0
        && busy / (wall * cpus as f64) > 0.9
    {
        parts.push(format!(
            "all CPUs ({cpus}) are busy, so that CPU time bounds the row"
        ));
    }
    if let (Some(a), Some(b)) = (below.machine_s, above.machine_s)
        && a > 0.05
        && b / a > 1.2
    {
        parts.push(format!(
            "the machine's CPUs work {:.1} times as long as natively",
            b / a
        ));
    }
    if let (Some(a), Some(b)) = (below.cycles, above.cycles)
        && a > 0.0
    {
        parts.push(format!(
            "an operation takes {} cycles, natively {} ({:.1} times)",
            figure(b),
            figure(a),
            b / a
        ));
    }
    let moved = |u: super::analysis::Usage| Some(u.disk_read? + u.disk_written?);
    if let (Some(a), Some(b)) = (moved(below), moved(above))
        && a > 1e6
        && (b / a > 1.15 || b / a < 0.85)
    {
        parts.push(format!("the device moves {:.2} times the bytes", b / a));
    }
    if let (Some(lower), Some(upper)) = (above.cache_lower, above.cache_upper)
        && upper > 1e6
        && lower > 1e6
    {
        parts.push(format!(
            "{:.0} MB are cached above and {:.0} MB below",
            upper / 1e6,
            lower / 1e6
        ));
    }
    let text = parts.join("; ");
    let mut letters = text.chars();
    let first = letters.next()?;
    Some(format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cpu::SystemTime;
    use crate::measure::{OpLatency, Work};
    use crate::rows::fast17;

    fn times(op: &str, count: u64) -> OpLatency {
        OpLatency {
            op: op.to_owned(),
            count,
            mean_us: 100.0,
            p50_us: 100.0,
            p95_us: 100.0,
            p99_us: 100.0,
            p999_us: 100.0,
            max_us: 100.0,
        }
    }

    /// 1,000 operations in a second.
    fn measured(daemon_s: f64) -> Measured {
        Measured {
            throughput: 1000.0,
            work: Work {
                operations: 1000,
                elapsed_s: 1.0,
                latencies: vec![times("createfile", 1000)],
                ..Work::default()
            },
            wall_s: 1.0,
            workload_s: 0.1,
            daemon: Some(ProcessTime {
                user_s: 0.0,
                system_s: daemon_s,
            }),
            system: SystemTime::default(),
            cycles: None,
            disk: None,
            requests: None,
            caches: None,
            memory_limit: None,
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
    fn said(by_opcode: Vec<OpLatency>, daemon_s: f64) -> (String, Option<String>) {
        let (measured, requests) = (measured(daemon_s), requests(by_opcode));
        let rows = fast17(0.01);
        let row = &rows[36];
        (
            requests_per_operation(row, &measured, &requests).expect("there is work"),
            stages(row, &measured, &requests),
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
    fn hardly_any_request_has_no_stages() {
        let (requests, stages) = said(vec![times("LOOKUP", 3)], 1.0);
        assert!(requests.starts_with("Hardly any request"), "{requests}");
        assert_eq!(stages, None);
    }

    #[test]
    fn cpu_time_below_its_clock_is_not_divided() {
        let (_, long) = said(vec![times("LOOKUP", 500)], 0.06);
        let long = long.expect("there are requests");
        assert!(long.contains("CPU takes 120 us per request"), "{long}");
        let (_, short) = said(vec![times("LOOKUP", 500)], 0.02);
        let short = short.expect("there are requests");
        assert!(short.starts_with("Requests are 50%"), "{short}");
    }

    #[test]
    fn what_cpu_leaves_of_a_round_trip_is_told_only_where_it_is_true() {
        let told = |count: u64, daemon_s: f64| {
            let (_, stages) = said(vec![times("LOOKUP", count)], daemon_s);
            stages.expect("there are requests")
        };
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
            fsync_in_turn(row(id), &measured(0.0), &requests)
        };
        let told = of("f36", 2500).expect("a quarter of the time");
        assert!(told.starts_with("FSYNC is 25%"), "{told}");
        assert_eq!(of("f36", 500), None, "a twentieth");
        assert_eq!(of("f28", 2500), None, "a file for each thread");
        assert_eq!(of("f32", 2500), None, "one thread");
        assert_eq!(of("f44", 2500), None, "not of fio");
    }
}
