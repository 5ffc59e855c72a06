//! Adds up the stages of operations and compares them with what their caller waited.
//!
//! No stage is what is left over. Each has a beginning and an end that were told by somebody: the
//! kernel's tracepoints of requests, the daemon's own times, and the scheduler's and the system calls'
//! tracepoints of the caller's thread. What nobody told of is missing from the sum. What the caller
//! waited is told by its own clock, around its system call.

use std::collections::HashMap;

use bickford::trace::kernel::{Step, ThreadStep};
use serde::Serialize;

/// How far the sum may be from what the caller waited, in percent.
pub(super) const TOLERANCE_PCT: f64 = 10.0;

/// A request of the caller as the kernel told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) unique: u64,
    pub(super) sent_ns: u64,
    pub(super) ended_ns: u64,
}

/// The daemon's times of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) received_ns: u64,
    pub(super) decoded_ns: u64,
    pub(super) handled_ns: u64,
}

/// All that was told of some operations.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// When each began and was over, by the caller's clock.
    pub(super) spans: Vec<(u64, u64)>,
    pub(super) requests: Vec<Request>,
    /// By number of the request.
    pub(super) served: HashMap<u64, Served>,
    /// What the caller's thread did, by the kernel.
    pub(super) steps: Vec<ThreadStep>,
}

/// The stages of one kind of operation against what its caller waited, means in microseconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct StageSum {
    pub(super) config: String,
    pub(super) operation: &'static str,
    pub(super) requests_per_operation: f64,
    /// The caller ran in the kernel: from its system call to the first request, between requests, and
    /// from being awake to its return.
    pub(super) calling_us: f64,
    /// From the kernel's sending a request until the daemon had it.
    pub(super) queued_us: f64,
    pub(super) decode_us: f64,
    pub(super) handler_us: f64,
    /// Until the kernel had the answer.
    pub(super) reply_us: f64,
    /// From the kernel's having the answer until the caller ran again; where the scheduler did not tell
    /// of that, until its next step.
    pub(super) waking_us: f64,
    /// The caller could run and another thread had its processor.
    pub(super) preempted_us: f64,
    pub(super) sum_us: f64,
    /// What the caller waited by its own clock.
    pub(super) waited_us: f64,
    pub(super) off_pct: f64,
    pub(super) within: bool,
}

impl StageSum {
    fn settle(&mut self) {
        self.sum_us = self.calling_us
            + self.queued_us
            + self.decode_us
            + self.handler_us
            + self.reply_us
            + self.waking_us
            + self.preempted_us;
        self.off_pct = 100.0 * (self.sum_us / self.waited_us.max(1e-9) - 1.0);
        self.within = self.off_pct.abs() <= TOLERANCE_PCT;
    }

    /// What is wrong with it, for a user.
    pub(super) fn failure(&self) -> Option<String> {
        (!self.within).then(|| {
            format!(
                "stages of {}, {}: they add up to {:.1} us, but the caller waited {:.1} us by its own clock ({:+.1}%, allowed are {TOLERANCE_PCT}%): what the stages tell of this machine is not the whole; see `docs/evaluation.md`, and run again with nothing else beside",
                self.operation, self.config, self.sum_us, self.waited_us, self.off_pct
            )
        })
    }
}

/// A piece of the caller's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// It ran, outside of system calls.
    Own,
    /// It ran in a system call.
    Calling,
    Preempted,
    Asleep,
}

/// Cuts a span at the steps in it, and calls `piece` with each piece. Kernels leave out some switches
/// from the idle task, so that a thread without a processor has one again at its next step at the latest.
fn cut(span: (u64, u64), steps: &[ThreadStep], mut piece: impl FnMut(Piece, u64, u64)) {
    let (mut from, over) = span;
    let (mut called, mut off) = (false, None);
    let running = |called| if called { Piece::Calling } else { Piece::Own };
    for step in steps {
        piece(off.unwrap_or(running(called)), from, step.at_ns);
        from = step.at_ns;
        off = None;
        match step.step {
            Step::Entered => called = true,
            Step::Left => called = false,
            Step::Slept => off = Some(Piece::Asleep),
            Step::Preempted => off = Some(Piece::Preempted),
            Step::Resumed => {}
        }
    }
    piece(off.unwrap_or(running(called)), from, over);
}

/// How much of `from..to` is not within a request.
fn outside(from: u64, to: u64, requests: &[&Request]) -> u64 {
    let within: u64 = requests
        .iter()
        .map(|request| {
            let begin = request.sent_ns.max(from);
            request.ended_ns.min(to).saturating_sub(begin)
        })
        .sum();
    (to - from).saturating_sub(within)
}

/// Of a sleep, what came after the answer that ended it; nothing if no answer did.
fn waking(from: u64, to: u64, requests: &[&Request]) -> u64 {
    let ends = requests.iter().map(|request| request.ended_ns);
    ends.filter(|ended| (from..=to).contains(ended))
        .min()
        .map_or(0, |ended| outside(ended, to, requests))
}

/// Gives each request and each step to the operation it came in, and adds up.
pub(super) fn add_up(
    config: &str,
    operation: &'static str,
    mut told: Told,
) -> Result<StageSum, String> {
    told.requests.sort_by_key(|request| request.sent_ns);
    let count = told.spans.len().max(1) as f64;
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3 / count;
    let mut sum = StageSum {
        config: config.to_owned(),
        operation,
        ..StageSum::default()
    };
    for span in &told.spans {
        let (begun, over) = *span;
        // Those nobody waits for, such as a RELEASE, end after or begin before.
        let first = told.requests.partition_point(|r| r.sent_ns < begun);
        let sent = told.requests.iter().skip(first);
        let requests: Vec<&Request> = sent
            .take_while(|request| request.sent_ns < over)
            .filter(|request| request.ended_ns <= over)
            .collect();
        for request in &requests {
            let served = told
                .served
                .get(&request.unique)
                .ok_or("the daemon did not tell of every request")?;
            let part = |from: u64, to: u64| us(to.saturating_sub(from));
            sum.requests_per_operation += 1.0 / count;
            sum.queued_us += part(request.sent_ns, served.received_ns);
            sum.decode_us += part(served.received_ns, served.decoded_ns);
            sum.handler_us += part(served.decoded_ns, served.handled_ns);
            sum.reply_us += part(served.handled_ns, request.ended_ns);
        }
        let first = told.steps.partition_point(|step| step.at_ns < begun);
        let steps = told.steps.get(first..).unwrap_or_default();
        let steps = steps.get(..steps.partition_point(|step| step.at_ns <= over));
        cut(
            *span,
            steps.unwrap_or_default(),
            |piece, from, to| match piece {
                Piece::Own => {}
                Piece::Calling => sum.calling_us += us(outside(from, to, &requests)),
                Piece::Preempted => sum.preempted_us += us(outside(from, to, &requests)),
                Piece::Asleep => sum.waking_us += us(waking(from, to, &requests)),
            },
        );
        sum.waited_us += us(over.saturating_sub(begun));
    }
    if sum.requests_per_operation == 0.0 {
        return Err("no request was seen".into());
    }
    sum.settle();
    Ok(sum)
}

#[cfg(test)]
mod tests;
