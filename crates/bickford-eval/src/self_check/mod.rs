//! `bickford eval --self-check`: is the evaluation to be believed on this machine?
//!
//! Three questions: do fio, PostMark and the engine agree where they do the same; what does the engine
//! take for itself; do the stages of a request add up to what its caller waited, and within 10%.

mod agreement;
mod stages;
mod sum;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::args::{EvalArgs, Ui};
use crate::command::INTERRUPTED;
use crate::error::EvalError;
use crate::host::Machine;
use crate::host::device::Device;
use crate::host::work::WorkDirectory;
use crate::report::{date, figure};
use crate::room::Room;
use crate::stats::{Comparison, Interval, ROUNDS_FOR_SPREAD, Summary};
use crate::terminal::{say, warn};

use sum::{StageSum, TOLERANCE_PCT};

/// Everything that was found, as it is kept.
#[derive(Debug, Serialize)]
struct Findings {
    machine: Machine,
    device: String,
    rounds: u32,
    started: String,
    agreement: Vec<Agreement>,
    engine: Vec<EngineCost>,
    stages: Vec<StageSum>,
    problems: Vec<String>,
}

/// Two programs that did the same work.
#[derive(Debug, Serialize)]
struct Agreement {
    work: String,
    unit: &'static str,
    other: &'static str,
    of_other: Summary,
    of_engine: Summary,
    /// The engine's median over the other's.
    ratio: f64,
    /// What drawing the rounds again makes of the ratio.
    interval: Interval,
    verdict: Verdict,
}

/// Whether two programs agree: their ratio is to be 1, within [`TOLERANCE_PCT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Agree,
    /// The rounds scatter so much that the ratio may be within the tolerance or outside it.
    Undecided,
    Differ,
}

impl Agreement {
    /// `None` where one of them has no round.
    fn of(
        work: &str,
        unit: &'static str,
        other: &'static str,
        theirs: &[f64],
        ours: &[f64],
    ) -> Option<Self> {
        let compared = Comparison::of(theirs, ours)?;
        let [low, high] =
            [compared.interval_pct.low, compared.interval_pct.high].map(|pct| 1.0 + pct / 100.0);
        let tolerance = TOLERANCE_PCT / 100.0;
        let (least, most) = (1.0 / (1.0 + tolerance), 1.0 + tolerance);
        let verdict = if compared.rounds < ROUNDS_FOR_SPREAD {
            Verdict::Undecided
        } else if low >= least && high <= most {
            Verdict::Agree
        } else if high < least || low > most {
            Verdict::Differ
        } else {
            Verdict::Undecided
        };
        Some(Self {
            work: work.to_owned(),
            unit,
            other,
            of_other: Summary::of(theirs)?,
            of_engine: Summary::of(ours)?,
            ratio: compared.ratio,
            interval: Interval { low, high },
            verdict,
        })
    }

    fn failure(&self) -> Option<String> {
        (self.verdict == Verdict::Differ).then(|| {
            format!(
                "{}: {} and the engine differ by more than {TOLERANCE_PCT}%: ratio {:.2} ({:.2} to {:.2})",
                self.work, self.other, self.ratio, self.interval.low, self.interval.high
            )
        })
    }
}

/// What of an operation's time natively is the engine's own.
#[derive(Debug, Serialize)]
struct EngineCost {
    workload: String,
    own_ns: f64,
    native_ns: f64,
}

/// Checks and prints; keeps `self-check.json` where `--out` says.
pub(crate) fn run(args: &EvalArgs, ui: &Ui) -> Result<ExitCode, EvalError> {
    let parent = fs::canonicalize(&args.dir).map_err(EvalError::io(&args.dir))?;
    let work = WorkDirectory::new(&parent)?;
    let stop = crate::signals::catch()?;
    let room = Room {
        bytes: agreement::BYTES * 2,
        inodes: 0,
    };
    let device = match Device::set_up(&args.device, work.path(), room, &stop) {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(ExitCode::from(INTERRUPTED)),
        device => device.map_err(EvalError::SetUp)?,
    };
    // What is in the way of it is told with each check.
    if let Ok(Some(told)) = device.remake().and_then(|()| device.drop_caches()) {
        warn(&told);
    }
    let check = Check {
        device: &device,
        work: work.path(),
        bickford: args.bickford.clone().unwrap_or_else(|| ui.bickford.clone()),
        rounds: args.rounds.max(1),
        stop: &stop,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut findings = Findings {
        machine: Machine::probe(),
        device: args.device.to_string(),
        rounds: check.rounds,
        started: date(now.map_or(0, |d| d.as_secs())),
        agreement: Vec::new(),
        engine: Vec::new(),
        stages: Vec::new(),
        problems: Vec::new(),
    };
    agreement::check(&check, &mut findings);
    stages::check(&check, &mut findings);
    let interrupted = check.stopped();
    drop(device);
    drop(work);
    say(&text(&findings))?;
    if let Some(out) = &args.out {
        keep(out.clone(), &findings)?;
    }
    let failures: Vec<String> = findings
        .stages
        .iter()
        .filter_map(StageSum::failure)
        .chain(findings.agreement.iter().filter_map(Agreement::failure))
        .collect();
    for failure in &failures {
        warn(failure);
    }
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else if findings.problems.is_empty() && failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn keep(directory: PathBuf, findings: &Findings) -> Result<(), EvalError> {
    fs::create_dir_all(&directory).map_err(EvalError::io(&directory))?;
    let path = directory.join("self-check.json");
    let json = serde_json::to_string_pretty(findings).map_err(EvalError::json(&path))?;
    fs::write(&path, json).map_err(EvalError::io(&path))?;
    say(&format!("\nkept: {}\n", path.display()))
}

/// What the checks share.
struct Check<'a> {
    device: &'a Device,
    work: &'a std::path::Path,
    bickford: PathBuf,
    rounds: u32,
    stop: &'a AtomicBool,
}

impl Check<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn text(findings: &Findings) -> String {
    use std::fmt::Write as _;
    let mut out = String::from("Programs that do the same work, on the native file system:\n");
    // Writing to a String cannot fail.
    for a in &findings.agreement {
        let of = |s: &Summary| {
            format!(
                "{} ({} to {})",
                figure(s.median),
                figure(s.min),
                figure(s.max)
            )
        };
        let _ = writeln!(
            out,
            "  {}: {} {}, engine {} {}; ratio {:.2} ({:.2} to {:.2}), {}",
            a.work,
            a.other,
            of(&a.of_other),
            of(&a.of_engine),
            a.unit,
            a.ratio,
            a.interval.low,
            a.interval.high,
            match a.verdict {
                Verdict::Agree => "they agree",
                Verdict::Undecided =>
                    "undecided: the rounds are few or scatter; more --rounds narrow it",
                Verdict::Differ => "THEY DIFFER",
            }
        );
    }
    out.push_str("The engine's own time per operation, and an operation natively:\n");
    for cost in &findings.engine {
        let _ = writeln!(
            out,
            "  {:<14} {:>6} ns of {:>8} ns ({:.1}%)",
            cost.workload,
            figure(cost.own_ns),
            figure(cost.native_ns),
            100.0 * cost.own_ns / cost.native_ns.max(1e-9)
        );
    }
    out.push_str("Stages of an operation and its requests against what its caller waited, us:\n");
    for s in &findings.stages {
        let _ = writeln!(
            out,
            "  {:<5} {:<22} {:.2} requests: call {:.1} + queued {:.1} + decode {:.1} + handler {:.1} + reply {:.1} + waking {:.1} + preempted {:.1} = {:.1}; waited {:.1} ({:+.1}%, {} {TOLERANCE_PCT}%)",
            s.config,
            s.operation,
            s.requests_per_operation,
            s.calling_us,
            s.queued_us,
            s.decode_us,
            s.handler_us,
            s.reply_us,
            s.waking_us,
            s.preempted_us,
            s.sum_us,
            s.waited_us,
            s.off_pct,
            if s.within { "within" } else { "NOT within" }
        );
    }
    for problem in &findings.problems {
        let _ = writeln!(out, "not checked: {problem}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(theirs: &[f64], ours: &[f64]) -> Verdict {
        Agreement::of("w", "u", "fio", theirs, ours)
            .unwrap()
            .verdict
    }

    #[test]
    fn programs_agree_when_their_ratio_is_surely_near_one() {
        assert_eq!(
            verdict(&[100.0, 101.0, 99.0], &[102.0, 103.0, 101.0]),
            Verdict::Agree
        );
        // The ranges of the rounds overlap, and nothing follows from it.
        assert_eq!(
            verdict(&[50.0, 120.0, 440.0], &[300.0, 407.0, 430.0]),
            Verdict::Undecided
        );
        assert_eq!(
            verdict(&[100.0, 101.0, 99.0], &[130.0, 133.0, 131.0]),
            Verdict::Differ
        );
    }

    #[test]
    fn only_a_difference_fails() {
        let of = |ours: &[f64]| Agreement::of("w", "u", "fio", &[100.0; 3], ours).unwrap();
        assert!(of(&[150.0; 3]).failure().unwrap().contains("1.50"));
        assert!(of(&[100.0, 150.0, 150.0]).failure().is_none());
        assert!(
            of(&[150.0; 2]).failure().is_none(),
            "two rounds tell no spread"
        );
        assert!(Agreement::of("w", "u", "fio", &[], &[1.0]).is_none());
    }
}
