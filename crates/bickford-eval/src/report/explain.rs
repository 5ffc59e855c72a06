//! Why a row is as it is, derived from what was measured of it.

use crate::measure::tracepoints::Requests;
use crate::results::Measured;
use crate::rows::{Row, WorkloadClass};
use crate::stats::Class;

use super::analysis::Cell;
use super::figure;

/// Requests below this many per operation do not explain a row.
const FEW: f64 = 0.01;

/// Sentences on one configuration, most important first.
pub(super) fn row(row: &Row, native: &Cell<'_>, cell: &Cell<'_>, cpus: usize) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(error) = cell.error {
        return vec![format!("The row ended with an error: {error}.")];
    }
    let Some(comparison) = cell.comparison else {
        return sentences;
    };
    if comparison.uncertain() {
        let (best, worst) = comparison.class_range;
        sentences.push(format!(
            "The class is uncertain: the difference lies between {:+.1}% and {:+.1}%, {best} to {worst}; more --rounds narrow it.",
            comparison.interval_pct.low, comparison.interval_pct.high
        ));
    }
    sentences.extend(time_per_operation(native, cell));
    if let Some((measured, requests)) = cell.requests {
        sentences.extend(requests_per_operation(row, measured, requests));
        sentences.extend(stages(native, cell, measured, requests));
        if comparison.class != Class::Green {
            sentences.extend(remedies(row, measured, requests));
        }
    }
    sentences.extend(resources(native, cell, cpus));
    sentences
}

/// The row's unit of work: an operation, or a MiB where operations have no meaning.
fn unit(row: &Row, measured: &Measured) -> (f64, &'static str) {
    if row.kind.unit() == "MB/s" {
        (measured.work.bytes as f64 / f64::from(1 << 20), "MiB")
    } else if row.kind.unit() == "transactions/s" {
        (measured.work.operations as f64, "transaction")
    } else {
        (measured.work.operations as f64, "operation")
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

fn requests_per_operation(row: &Row, measured: &Measured, requests: &Requests) -> Option<String> {
    let (units, name) = unit(row, measured);
    if units <= 0.0 {
        return None;
    }
    if requests.total() as f64 / units < FEW {
        return Some(format!(
            "Hardly any request reaches the daemon ({} for all {} {name}s): the kernel answers by itself.",
            requests.total(),
            figure(units)
        ));
    }
    let listed: Vec<String> = requests
        .by_opcode
        .iter()
        .filter(|o| o.count as f64 / units >= FEW)
        .take(8)
        .map(|o| {
            format!(
                "{} {} ({} us)",
                figure(o.count as f64 / units),
                o.op,
                figure(o.mean_us)
            )
        })
        .collect();
    let total = figure(requests.total() as f64 / units);
    Some(format!(
        "{total} requests per {name}, with their mean round trip: {}.",
        listed.join(", ")
    ))
}

/// Where the time of the round that was traced went.
fn stages(
    native: &Cell<'_>,
    cell: &Cell<'_>,
    measured: &Measured,
    requests: &Requests,
) -> Option<String> {
    let count = requests.total();
    if count == 0 {
        return None;
    }
    let per_request = |seconds: f64| figure(seconds * 1e6 / count as f64);
    let mut text = format!("Of a request's {} us", per_request(requests.total_s()));
    match measured.daemon {
        Some(daemon) => text.push_str(&format!(
            " the daemon's CPU takes {} us ({} in user space, {} in the kernel: transport, lower file system); the rest is queueing, waking up and waiting for the device.",
            per_request(daemon.total()),
            per_request(daemon.user_s),
            per_request(daemon.system_s)
        )),
        None => text.push_str(" the daemon's share is not known (no process of its own)."),
    }
    let client: f64 = measured
        .work
        .latencies
        .iter()
        .map(|l| l.mean_us * l.count as f64 / 1e6)
        .sum();
    if client > 0.0 {
        let share = requests.total_s() / client;
        if share <= 1.1 {
            text.push_str(&format!(
                " Requests are {:.0}% of the time the workload waited in that round.",
                100.0 * share
            ));
        } else {
            text.push_str(&format!(
                " Requests overlap (read-ahead, write-back, replies nobody waits for): {} were under way at once.",
                figure(requests.total_s() / measured.work.elapsed_s.max(1e-9))
            ));
        }
    }
    if let (Some(below), Some(above)) = (native.usage.disk_busy_pct, cell.usage.disk_busy_pct)
        && above + 20.0 < below
    {
        text.push_str(&format!(" The device is busy {above:.0}% of the time, natively {below:.0}%: it waits for requests."));
    }
    Some(text)
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
            "HANDLE_KILLPRIV_V2, so that security.capability is not asked for at each write"
        }
        "OPEN" | "OPENDIR" => "answering open with ENOSYS (zero-message open)",
        "FLUSH" => "FOPEN_NOFLUSH, or answering flush with ENOSYS",
        "RELEASE" | "RELEASEDIR" => "zero-message open, which ends the release too",
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
