//! What one thread did, told by the scheduler's and the system calls' tracepoints.

use std::collections::VecDeque;

use super::format::{Format, kind};

/// Events of a watched thread, in the order of [`Watch`]'s formats.
pub(super) const EVENTS: [&str; 3] = [
    "sched/sched_switch",
    "raw_syscalls/sys_enter",
    "raw_syscalls/sys_exit",
];

/// Steps that are kept until somebody takes them; those beyond count as lost.
const STEPS_MAX: usize = 1 << 20;

/// States of a thread that sleeps, in `prev_state`. Without one of them it still wants to run: it was
/// preempted, or gave its turn away.
const ASLEEP: u64 = 0xff;

/// What a watched thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It entered the kernel for a system call.
    Entered,
    /// It is about to return from a system call.
    Left,
    /// It went to sleep, and somebody has to wake it.
    Slept,
    /// Another thread got its processor, though it could go on.
    Preempted,
    /// It has a processor again.
    Resumed,
}

/// One step, and when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStep {
    /// Nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// What it did.
    pub step: Step,
}

/// A thread that is watched, and its steps that nobody has taken.
#[derive(Debug)]
pub(super) struct Watch {
    thread: u32,
    formats: [Format; 3],
    steps: VecDeque<ThreadStep>,
    pub(super) lost: u64,
}

impl Watch {
    pub(super) fn new(thread: u32, formats: [Format; 3]) -> Self {
        Self {
            thread,
            formats,
            steps: VecDeque::new(),
            lost: 0,
        }
    }

    /// Each event with the condition under which it is this thread's.
    pub(super) fn filters(thread: u32) -> [(&'static str, String); 3] {
        let [switch, enter, exit] = EVENTS;
        [
            (
                switch,
                format!("prev_pid == {thread} || next_pid == {thread}"),
            ),
            (enter, format!("common_pid == {thread}")),
            (exit, format!("common_pid == {thread}")),
        ]
    }

    /// Keeps the step if the event is one.
    pub(super) fn follow(&mut self, payload: &[u8], at_ns: u64) {
        let Some(step) = self.step(payload) else {
            return;
        };
        if self.steps.len() < STEPS_MAX {
            self.steps.push_back(ThreadStep { at_ns, step });
        } else {
            self.lost += 1;
        }
    }

    fn step(&self, payload: &[u8]) -> Option<Step> {
        let event = kind(payload)?;
        let [switch, enter, exit] = &self.formats;
        if event == switch.id {
            if switch.word(payload, "next_pid")? == self.thread {
                return Some(Step::Resumed);
            }
            if switch.word(payload, "prev_pid")? != self.thread {
                return None;
            }
            let asleep = switch.long(payload, "prev_state")? & ASLEEP != 0;
            return Some(if asleep { Step::Slept } else { Step::Preempted });
        }
        let mine = |format: &Format| format.word(payload, "common_pid") == Some(self.thread);
        if event == enter.id && mine(enter) {
            Some(Step::Entered)
        } else if event == exit.id && mine(exit) {
            Some(Step::Left)
        } else {
            None
        }
    }

    /// The steps so far, in order: each processor has a buffer of its own, and they are read in turn.
    pub(super) fn take(&mut self) -> Vec<ThreadStep> {
        let mut steps = Vec::from(std::mem::take(&mut self.steps));
        steps.sort_by_key(|step| step.at_ns);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "ID: 7
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;
\tfield:pid_t next_pid;\toffset:16;\tsize:4;\tsigned:1;
";

    fn call(id: u16) -> Format {
        Format::parse(&format!(
            "ID: {id}\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;"
        ))
    }

    fn payload(id: u16, words: [u32; 4]) -> Vec<u8> {
        let mut bytes = id.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    /// `prev_state` as two words in the order of the machine.
    fn switch(prev: u32, state: u64, next: u32) -> Vec<u8> {
        let mut bytes = payload(7, [prev, 0, 0, next]);
        bytes[8..16].copy_from_slice(&state.to_ne_bytes());
        bytes
    }

    #[test]
    fn steps_of_the_watched_thread_are_kept_in_order() {
        let mut watch = Watch::new(5, [Format::parse(SWITCH), call(8), call(9)]);
        watch.follow(&switch(9, 0, 5), 40);
        watch.follow(&payload(9, [5, 0, 0, 0]), 50);
        // The other processor's buffer.
        watch.follow(&payload(8, [5, 0, 0, 0]), 10);
        watch.follow(&switch(5, 0x100, 9), 20);
        watch.follow(&switch(9, 1, 5), 25);
        watch.follow(&switch(5, 2, 9), 30);
        // Of others.
        watch.follow(&switch(9, 1, 0), 31);
        watch.follow(&payload(8, [6, 0, 0, 0]), 32);
        watch.follow(&payload(3, [5, 0, 0, 0]), 33);
        let steps: Vec<(u64, Step)> = watch
            .take()
            .iter()
            .map(|step| (step.at_ns, step.step))
            .collect();
        assert_eq!(
            steps,
            [
                (10, Step::Entered),
                (20, Step::Preempted),
                (25, Step::Resumed),
                (30, Step::Slept),
                (40, Step::Resumed),
                (50, Step::Left),
            ]
        );
        assert!(watch.take().is_empty());
    }

    #[test]
    fn an_event_that_is_cut_off_is_no_step() {
        let mut watch = Watch::new(5, [Format::parse(SWITCH), call(8), call(9)]);
        let whole = switch(5, 1, 9);
        for length in 0..whole.len() {
            watch.follow(whole.get(..length).unwrap_or_default(), 1);
        }
        assert_eq!((watch.take().len(), watch.lost), (0, 0));
    }
}
