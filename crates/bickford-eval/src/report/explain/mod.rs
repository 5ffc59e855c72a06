//! Why a row is as it is, derived from what was measured of it.

pub(super) mod remedies;
#[cfg(test)]
mod tests;

use crate::measure::OpLatency;
use crate::measure::cpu::ProcessTime;
use crate::measure::tracepoints::Requests;
use crate::results::Measured;
use crate::rows::{Kind, Row};
use crate::stats::{Class, Comparison, ROUNDS_FOR_SPREAD, interval_name};
use crate::target::MARK;

use super::analysis::{Cell, Usage};
use super::figure;
use remedies::remedies;

/// Requests below this many per operation do not explain a row.
const FEW: f64 = 0.01;

/// Requests that are less than this share of the time the workload waited do not explain a row either.
const SMALL_SHARE: f64 = 0.05;

/// Where the whole row takes so many times more of native's time than its operations do, they do not explain it.
const BESIDE: f64 = 1.25;

/// FSYNC is told of from this share of a row's time on.
const FSYNC_SHARE: f64 = 0.1;

/// CPU time of a process is counted in hundredths of a second: below five of them it says nothing of
/// a single request.
const COUNTABLE_CPU_S: f64 = 0.05;

/// Less CPU time of other programs is that of the clock's ticks in several accounts, or disturbs nothing.
const OTHERS_S: f64 = 0.2;
/// The same as a share of all CPUs.
const OTHERS_SHARE: f64 = 0.1;

/// Requests take at most this share of the time the workload waited, where it waits for each: clocks are not
/// the same.
const OVERLAP: f64 = 1.1;

/// CPU time up to this share of the round trips is less than they are, whatever its clock.
const CLEARLY_BELOW: f64 = 0.9;

/// Fewer bytes than this share of native's are fewer than natively.
const ABOUT_AS_MUCH: f64 = 0.85;

/// What is said of a row in one configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// To be read on its own.
    pub full: String,
    /// The figures alone, for a page whose head says what they are.
    pub brief: String,
}

impl Sentence {
    /// One that has nothing to be left away.
    fn whole(text: String) -> Self {
        Self {
            brief: text.clone(),
            full: text,
        }
    }
}

/// Sentences in full, one after the other.
#[cfg(test)]
pub(super) fn full(sentences: &[Sentence]) -> String {
    let full: Vec<&str> = sentences.iter().map(|s| s.full.as_str()).collect();
    full.join(" ")
}

/// CPUs of a machine, and how many of them the run might use.
#[derive(Clone, Copy)]
pub(super) struct Cpus {
    pub(super) all: usize,
    pub(super) usable: usize,
}

/// Sentences on one configuration, most important first.
pub(super) fn row(row: &Row, native: &Cell<'_>, cell: &Cell<'_>, cpus: Cpus) -> Vec<Sentence> {
    if let Some(error) = cell.error {
        let error = error.trim_end_matches('.');
        return vec![Sentence::whole(format!(
            "The row ended with an error: {error}."
        ))];
    }
    let Some(comparison) = cell.comparison else {
        return Vec::new();
    };
    let mut sentences = doubts(cell, &comparison);
    sentences.extend(time_per_operation(native, cell));
    sentences.extend(time_beside_operations(&native.usage, &cell.usage));
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

/// What makes the class uncertain.
fn doubts(cell: &Cell<'_>, comparison: &Comparison) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let (best, worst) = comparison.class_range;
    let interval = comparison.interval_pct;
    if comparison.rounds < ROUNDS_FOR_SPREAD {
        sentences.push(Sentence {
            full: format!(
                "The class is uncertain: {} of at least {ROUNDS_FOR_SPREAD} rounds were counted.",
                comparison.rounds
            ),
            brief: format!(
                "{} of at least {ROUNDS_FOR_SPREAD} rounds counted.",
                comparison.rounds
            ),
        });
    } else if best != worst {
        sentences.push(Sentence {
            full: format!(
                "The class is uncertain: the {} is {:+.1}% to {:+.1}%, {best} to {worst}; more --rounds make it surer.",
                interval_name(comparison.rounds),
                interval.low,
                interval.high
            ),
            brief: format!(
                "Range {:+.1} to {:+.1}, {best} to {worst}.",
                interval.low, interval.high
            ),
        });
    }
    if cell.coarseness > 0.0 {
        let percent = format!("{:.1}%", 100.0 * cell.coarseness);
        sentences.push(Sentence {
            full: format!(
                "fio tells times in whole milliseconds: for these short rounds the {} is {percent} wider to both sides; a larger --scale makes it surer.",
                interval_name(comparison.rounds)
            ),
            brief: format!("fio's clock is in it with {percent} to both sides."),
        });
    }
    if let Some(doubt) = &cell.doubt {
        let doubt = doubt.trim_end_matches('.');
        sentences.push(Sentence {
            full: format!("The comparison is uncertain: {doubt}."),
            brief: format!("Uncertain: {doubt}."),
        });
    }
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

fn time_per_operation(native: &Cell<'_>, cell: &Cell<'_>) -> Option<Sentence> {
    let latency = |c: &Cell<'_>| c.usage.mean_us;
    if let (Some(below), Some(above)) = (latency(native), latency(cell)) {
        let (below, above) = (figure(below), figure(above));
        let operation = cell.operation.unwrap_or("it");
        let slowest = |c: &Cell<'_>| figure(c.usage.p99_us.unwrap_or(0.0));
        let (slow_below, slow_above) = (slowest(native), slowest(cell));
        return Some(Sentence {
            full: format!(
                "An operation takes {above} us on average, natively {below} us; p99 of {operation} {slow_above} against {slow_below} us.",
            ),
            brief: format!(
                "{above} us an operation (native {below}); p99 of {operation} {slow_above} ({slow_below})."
            ),
        });
    }
    let below = figure(native.usage.elapsed_s?);
    let above = figure(cell.usage.elapsed_s?);
    Some(Sentence {
        full: format!("The work takes {above} s, natively {below} s."),
        brief: format!("{above} s (native {below})."),
    })
}

/// The time of the whole row, where its operations do not show it: files are made and closed beside them, which waits for
/// what is written back, and some threads have ended long before others.
fn time_beside_operations(native: &Usage, usage: &Usage) -> Option<Sentence> {
    let operations = usage.mean_us? / native.mean_us?;
    let (below, above) = (native.elapsed_s?, usage.elapsed_s?);
    (above / below > BESIDE * operations).then(|| {
        let (below, above) = (figure(below), figure(above));
        Sentence {
            full: format!(
                "All of the work, to the end of the last thread and with what lies beside these operations (making and closing files), takes {above} s, natively {below} s."
            ),
            brief: format!("All of the work {above} s (native {below})."),
        }
    })
}

/// Whether the kernel answers nearly all by itself.
fn hardly_any(requests: &Requests, units: f64) -> bool {
    (requests.total() as f64) < FEW * units
}

fn requests_per_operation(row: &Row, measured: &Measured, requests: &Requests) -> Option<Sentence> {
    let (units, name) = unit(row, measured);
    if units <= 0.0 {
        return None;
    }
    if hardly_any(requests, units) {
        let few = format!(
            "{} for all {} {}",
            requests.total(),
            figure(units),
            plural(name)
        );
        return Some(Sentence {
            full: format!(
                "Hardly any request reaches the daemon ({few}): the kernel answers by itself."
            ),
            brief: format!("Hardly any request ({few})."),
        });
    }
    let per_unit = |count: u64| count as f64 / units;
    // Where no opcode alone is frequent, those that come most often stand for all.
    let frequent = requests.by_opcode.iter();
    let frequent = frequent.filter(|o| per_unit(o.count) >= FEW).count();
    let shown = requests.by_opcode.iter();
    let shown = shown.take(if frequent == 0 { 3 } else { frequent.min(8) });
    let list = |unit: &str| {
        let one = |o: &OpLatency| {
            let each = figure(per_unit(o.count));
            format!("{each} {} ({}{unit})", o.op, figure(o.mean_us))
        };
        shown.clone().map(one).collect::<Vec<_>>().join(", ")
    };
    let all = figure(per_unit(requests.total()));
    Some(Sentence {
        full: format!(
            "{all} requests per {name}, with their mean round trip: {}.",
            list(" us")
        ),
        brief: format!("{all} requests per {name}: {}.", list("")),
    })
}

/// Where the time of the round that was traced went.
fn stages(row: &Row, measured: &Measured, requests: &Requests) -> Vec<Sentence> {
    let count = requests.total();
    let (units, _) = unit(row, measured);
    if count == 0 || hardly_any(requests, units) {
        return Vec::new();
    }
    let mut sentences = Vec::new();
    match measured.daemon {
        Some(daemon) if daemon.total() >= COUNTABLE_CPU_S => {
            sentences.extend(cpu_per_request(measured, requests, daemon));
        }
        Some(_) => {}
        None => sentences.push(Sentence {
            full: format!(
                "The daemon's share of a request is not known: no process was found with {MARK} in its environment, which sudo(8) and the like reset."
            ),
            brief: "No process of the daemon was found.".to_owned(),
        }),
    }
    if let Some(share) = waited_for(measured, requests) {
        let percent = 100.0 * share;
        sentences.push(if share <= OVERLAP {
            Sentence {
                full: format!(
                    "Requests are {percent:.0}% of the time the workload waited in that round."
                ),
                brief: format!("Requests are {percent:.0}% of the wait."),
            }
        } else {
            let beside = figure(requests.total_s() / measured.work.elapsed_s.max(1e-9));
            Sentence {
                full: format!(
                    "Requests overlap (read-ahead, write-back, replies nobody waits for): {beside} were under way at once."
                ),
                brief: format!("{beside} requests at once."),
            }
        });
    }
    sentences
}

/// The daemon's CPU time by request, and what it leaves of a round trip where that can be told: it holds
/// work that is in no round trip (FORGET is not traced), so that what is left is a lower bound, and of
/// requests that overlap it is not one request's.
fn cpu_per_request(measured: &Measured, requests: &Requests, cpu: ProcessTime) -> Vec<Sentence> {
    let count = requests.total().max(1) as f64;
    let per_request = |seconds: f64| figure(seconds * 1e6 / count);
    let [all, user, kernel] = [cpu.total(), cpu.user_s, cpu.system_s].map(per_request);
    let mut sentences = vec![Sentence {
        full: format!(
            "The daemon's CPU takes {all} us per request ({user} in user space, {kernel} in the kernel: transport, lower file system), work that no caller waits for included."
        ),
        brief: format!("Daemon {all} us per request ({user} user, {kernel} kernel)."),
    }];
    let trips = requests.total_s();
    // Without a clock around each operation: of one thread, requests that overlap take more than all the time.
    let apart = waited_for(measured, requests)
        .map_or(trips <= measured.work.elapsed_s, |share| share <= OVERLAP);
    if apart && cpu.total() < CLEARLY_BELOW * trips {
        let (trip, rest) = (per_request(trips), per_request(trips - cpu.total()));
        sentences.push(Sentence {
            full: format!(
                "Of the {trip} us of a round trip at least {rest} us are queueing, waking up and waiting for the device."
            ),
            brief: format!("Of a round trip of {trip} at least {rest} us neither."),
        });
    }
    sentences
}

/// Where threads of one file each fsync it: in the kernel `fuse_fsync` holds the inode's lock until FSYNC is
/// answered.
fn fsync_in_turn(row: &Row, measured: &Measured, requests: &Requests) -> Option<Sentence> {
    match &row.kind {
        Kind::Fio(spec) if spec.threads > 1 && spec.files == 1 => {}
        _ => return None,
    }
    let fsync = requests.by_opcode.iter().find(|o| o.op == "FSYNC")?;
    let share = fsync.count as f64 * fsync.mean_us / 1e6 / measured.work.elapsed_s.max(1e-9);
    let (percent, count) = (100.0 * share.min(1.0), fsync.count);
    (share >= FSYNC_SHARE).then(|| Sentence {
        full: format!(
            "FSYNC is {percent:.0}% of the time from start to end: the kernel holds a file's lock until it is answered, so that the {count} follow one another and the file's writers wait; natively they run side by side."
        ),
        brief: format!("FSYNC is {percent:.0}% of the time, {count} in turn."),
    })
}

/// Round trips as a share of what the workload waited for its operations; over 1 where they overlap.
fn waited_for(measured: &Measured, requests: &Requests) -> Option<f64> {
    let latencies = measured.work.latencies.iter();
    let waited: f64 = latencies.map(|l| l.mean_us * l.count as f64 / 1e6).sum();
    (waited > 0.0).then(|| requests.total_s() / waited)
}

/// Bytes that the device read and wrote.
fn moved(usage: &Usage) -> Option<f64> {
    Some(usage.disk_read? + usage.disk_written?)
}

/// A device with less to do, as where the row is faster or files are cached, does not wait.
fn waiting_device(native: &Cell<'_>, cell: &Cell<'_>) -> Option<Sentence> {
    let slower = cell.comparison?.difference_pct < 0.0;
    let as_much = moved(&cell.usage)? >= ABOUT_AS_MUCH * moved(&native.usage)?;
    let (below, above) = (native.usage.disk_busy_pct?, cell.usage.disk_busy_pct?);
    (slower && as_much && above + 20.0 < below).then(|| Sentence {
        full: format!(
            "The device is busy {above:.0}% of the time, natively {below:.0}%: it waits for requests."
        ),
        brief: format!("Device busy {above:.0}% (native {below:.0}%)."),
    })
}

/// The share of all CPUs that other programs than workload and daemon had, where it is so much that the row was disturbed. It is a
/// lower bound: of workload and daemon the time in the kernel is taken off, too, while the kernel's own is left out.
fn others(usage: &Usage, cpus: usize) -> Option<f64> {
    let user = usage.machine_s? - usage.kernel_s?;
    let seconds = user - usage.workload_s? - usage.daemon_s.unwrap_or(0.0);
    let share = seconds / (usage.wall_s? * cpus as f64);
    (seconds > OTHERS_S && share > OTHERS_SHARE).then_some(share)
}

fn resources(native: &Cell<'_>, cell: &Cell<'_>, Cpus { all, usable }: Cpus) -> Option<Sentence> {
    let (mut full, mut brief) = (Vec::new(), Vec::new());
    let mut say = |long: String, short: String| {
        full.push(long);
        brief.push(short);
    };
    let (below, above) = (native.usage, cell.usage);
    if let Some(share) = others(&above, all) {
        let percent = format!("{:.0}%", 100.0 * share);
        say(
            format!(
                "other programs than workload and daemon took at least {percent} of the CPUs' time meanwhile: unless they served it, the row tells little"
            ),
            format!("other programs {percent} of the CPUs"),
        );
    } else if let (Some(busy), Some(wall)) = (above.machine_s, above.wall_s)
        && wall > 0.0
        && busy / (wall * usable as f64) > 0.9
    {
        say(
            format!("all CPUs ({usable}) are busy, so that CPU time bounds the row"),
            "all CPUs busy".to_owned(),
        );
    }
    if let (Some(a), Some(b)) = (below.machine_s, above.machine_s)
        && a > 0.05
        && b / a > 1.2
    {
        let times = format!("{:.1}", b / a);
        say(
            format!("the machine's CPUs work {times} times as long as natively"),
            format!("CPUs {times}x"),
        );
    }
    if let (Some(a), Some(b)) = (below.cycles, above.cycles)
        && a > 0.0
    {
        let (a, b, times) = (figure(a), figure(b), b / a);
        say(
            format!("an operation takes {b} cycles, natively {a} ({times:.1} times)"),
            format!("{b} cycles an operation (native {a})"),
        );
    }
    if let (Some(a), Some(b)) = (moved(&below), moved(&above))
        && a > 1e6
        && (b / a > 1.15 || b / a < ABOUT_AS_MUCH)
    {
        let times = format!("{:.2}", b / a);
        say(
            format!("the device moves {times} times the bytes"),
            format!("device's bytes {times}x"),
        );
    }
    if let (Some(lower), Some(upper)) = (above.cache_lower, above.cache_upper)
        && upper > 1e6
        && lower > 1e6
    {
        let (upper, lower) = (upper / 1e6, lower / 1e6);
        say(
            format!("{upper:.0} MB are cached above and {lower:.0} MB below"),
            format!("cached {upper:.0} and {lower:.0} MB"),
        );
    }
    Some(Sentence {
        full: capitalized(&full.join("; "))?,
        brief: capitalized(&brief.join("; "))?,
    })
}

/// As a sentence, unless it is empty.
fn capitalized(text: &str) -> Option<String> {
    let mut letters = text.chars();
    let first = letters.next()?;
    Some(format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
