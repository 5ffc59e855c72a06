//! Watches over the threads of the queues: adds some where handlers take long, has those that yield to
//! callers yield no more, and notices those that die.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use super::kick::{self, Kicker};
use super::queue::{Member, Queue};
use super::schedule::{self, Schedule};
use super::signals;
use super::spawn::{Role, Starting};
use super::yielding::QUIET;
use super::{Part, Shared, pages, spawn};
use crate::dispatch;
use crate::parked::Parked;

/// A thread that is in the same handler after this time is stuck.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 400_000,
};

/// The same where no further thread may be started: a receiver may still be.
const FULL_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// How often threads that yield are looked at.
const YIELDING_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: QUIET.subsec_nanos() as i64,
};

/// How often signals of callers are looked at while requests wait for their interrupt.
const SIGNALS_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// How old such requests are then at least: most are answered before.
const SIGNALS_AGE: Duration = Duration::from_millis(10);

/// How long to wait after a thread could not be started.
const RETRY: Duration = Duration::from_secs(1);

/// The same, where nothing else is to be looked at.
const RETRY_TICK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

struct Watcher {
    shared: Arc<Shared>,
    dispatcher: Arc<dispatch::Server>,
    /// Readable once a thread has ended. An epoll(7), for there may be many threads, and many looks.
    ends: OwnedFd,
    /// Where each thread was at the last tick.
    before: HashMap<Pid, Seen>,
    /// What each thread that yields had begun when it was last seen to begin something, and when.
    quiet: HashMap<Pid, (u64, Instant)>,
    gave_up: bool,
    /// Queues that have all the threads that they may have, and keep them.
    full: HashSet<u16>,
    /// Whether one of the queues that are out of entries may have a further thread.
    may_grow: bool,
    /// When a thread could not be started.
    failed: Option<Instant>,
    /// Since when a kick is owed.
    owed: Option<Instant>,
}

/// What was seen of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    turns: u64,
    /// Nanoseconds that it has run in all, where it was looked at so closely.
    run: Option<u64>,
}

/// Starts a watcher over `threads` and those that follow them, which begins once it is given its part of the session.
pub(super) fn prepare(threads: &[Starting]) -> io::Result<Parked<Part>> {
    let ends = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for thread in threads {
        follow(&ends, thread.ended())?;
    }
    Parked::new("bickford-watch".into(), move |word: &Receiver<Part>| {
        let Ok(part) = word.recv() else { return };
        let watcher = Watcher {
            shared: Arc::clone(&part.shared),
            dispatcher: Arc::clone(&part.dispatcher),
            ends,
            before: HashMap::new(),
            quiet: HashMap::new(),
            gave_up: false,
            full: HashSet::new(),
            may_grow: false,
            failed: None,
            owed: None,
        };
        watcher.run();
    })
}

/// Has the watcher told of signals that are to be looked for.
pub(super) fn seek_signals(shared: &Arc<Shared>, dispatcher: &dispatch::Server) {
    let bell = Arc::downgrade(shared);
    dispatcher.in_flight().seek_signals(move || {
        if let Some(shared) = bell.upgrade() {
            shared.ring_bell();
        }
    });
}

/// Has `ends` tell of the end of a thread.
fn follow(ends: &OwnedFd, ended: &OwnedFd) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    match epoll::add(ends, ended, data, epoll::EventFlags::IN) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Watcher {
    fn run(mut self) {
        self.follow();
        while self.look_for_dead() {
            while !self.sleep() {
                // First: a thread that yields may hold what the others look at.
                if self.shared.yielding.is_on() {
                    self.look_for_quiet();
                }
                if self.shared.watching.load(Ordering::SeqCst) {
                    self.look_for_stuck();
                }
                self.look_for_kicks();
                if self.shared.pages.is_asked() {
                    pages::start(&self.shared, &self.dispatcher);
                }
                // Linux 6.18 tells of no signal that a caller got before its request was handed over.
                let in_flight = self.dispatcher.in_flight();
                if in_flight.seeks_signals() {
                    in_flight.look_at_signals(SIGNALS_AGE, signals::has_signal);
                }
            }
        }
    }

    /// Has `ends` tell of every thread that there is.
    fn follow(&self) {
        for queue in &self.shared.queues {
            for member in queue.members().iter() {
                if let Err(error) = follow(&self.ends, &member.ended) {
                    tracing::error!("watching a thread of io_uring: {error}");
                }
            }
        }
    }

    /// Until a thread ends, somebody rings the bell, or the next tick. Answers whether one ended.
    fn sleep(&self) -> bool {
        let watching = self.shared.watching.load(Ordering::SeqCst);
        let yielding = self.shared.yielding.is_on();
        let tick = (watching && self.may_grow).then_some(&TICK);
        let tick = tick.or(yielding.then_some(&YIELDING_TICK));
        let tick = tick.or(watching.then_some(&FULL_TICK));
        let signals = self.dispatcher.in_flight().seeks_signals();
        let tick = tick.or(signals.then_some(&SIGNALS_TICK));
        let tick = tick.or(self.owed.map(|_| &RETRY_TICK));
        let mut fds = [
            PollFd::new(&self.shared.bell, PollFlags::IN),
            PollFd::new(&self.ends, PollFlags::IN),
        ];
        if let Err(error) = poll(&mut fds, tick) {
            tracing::debug!("watching the queues: {error}");
            return true;
        }
        let [rung, ended] = fds.map(|fd| !fd.revents().is_empty());
        if rung {
            let mut count = [0; 8];
            // EAGAIN where nobody rang.
            let _ = rustix::io::read(&self.shared.bell, &mut count);
        }
        ended
    }

    /// Removes threads that have ended; `false` when none is left.
    fn look_for_dead(&mut self) -> bool {
        let mut left = 0;
        let mut died = None;
        for queue in &self.shared.queues {
            let mut members = queue.members();
            members.retain(|member| {
                if !has_ended(member) {
                    return true;
                }
                if !member.finished.load(Ordering::SeqCst) {
                    died = Some(queue.number);
                }
                // Others may hold its descriptor open.
                let _ = epoll::delete(&self.ends, &member.ended);
                false
            });
            left += members.len();
        }
        if let Some(queue) = died
            && !self.gave_up
        {
            self.gave_up = true;
            tracing::error!(
                queue,
                "a thread that serves requests died; aborting the connection"
            );
            self.shared.give_up();
            self.shared.stop();
        }
        left > 0
    }

    /// Adds a thread to queues that are out of entries with all threads but one in handlers that
    /// take long, or with all that a receiver passes requests to. Nobody needs to look again once no
    /// queue is out of entries.
    ///
    /// Where there is more work than CPUs, a thread may be in a quick handler for long because others
    /// run: further threads would only cost more switches between them.
    fn look_for_stuck(&mut self) {
        let mut exhausted = false;
        self.may_grow = false;
        let mut now = HashMap::new();
        for queue in self.shared.queues.clone() {
            let mut stuck = 0;
            let members = queue.members().clone();
            if !is_short(&queue) {
                continue;
            }
            exhausted = true;
            if self.needs_receiver(&queue, &members) {
                // Those that keep an entry beside it do not count from then on.
                self.full.remove(&queue.number);
                self.may_grow = true;
                self.start(&queue, Role::Receiver);
                continue;
            }
            if self.full.contains(&queue.number) {
                continue;
            }
            self.may_grow = true;
            for member in &members {
                let turns = member.turns.load(Ordering::Relaxed);
                let mut seen = Seen { turns, run: None };
                let busy = turns % 2 == 1;
                if let Some(before) = self.before.get(&member.thread)
                    && busy
                    && before.turns == turns
                {
                    let of = schedule::of(member.thread);
                    seen.run = of.map(|of| of.run);
                    stuck += usize::from(takes_long(of, before.run));
                }
                now.insert(member.thread, seen);
            }
            let apart = apart(&queue, &members);
            if stuck + apart.max(1) >= members.len() {
                self.grow(&queue, members.len() - apart);
            }
        }
        self.before = now;
        if !exhausted {
            self.before.clear();
            self.shared.watching.store(false, Ordering::SeqCst);
            // Whoever came in between found the watch still on.
            if self.shared.queues.iter().any(|queue| is_short(queue)) {
                self.shared.watching.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Has threads yield no more that have begun no request for a while.
    fn look_for_quiet(&mut self) {
        let yielding = self.shared.yielding.threads();
        self.quiet
            .retain(|thread, _| yielding.iter().any(|member| member.thread == *thread));
        for member in yielding {
            let now = Instant::now();
            let turns = member.turns.load(Ordering::Relaxed);
            let (seen, at) = self.quiet.entry(member.thread).or_insert((turns, now));
            if *seen != turns {
                (*seen, *at) = (turns, now);
            }
            if now.duration_since(*at) < QUIET {
                continue;
            }
            // The number of a thread that has ended may be another's by now.
            let ended = has_ended(&member);
            let starved = !ended && schedule::of(member.thread).is_some_and(|of| of.runnable);
            self.shared.yielding.quiet(&member, ended, starved);
        }
    }

    /// Has queues kicked that could not be.
    fn look_for_kicks(&mut self) {
        if !self.shared.kickers.iter().any(Kicker::is_owed) {
            self.owed = None;
        } else if self.owed.get_or_insert_with(Instant::now).elapsed() >= RETRY {
            self.owed = None;
            kick::kick_owed(&self.shared);
        }
    }

    fn grow(&mut self, queue: &Arc<Queue>, threads: usize) {
        if threads >= self.shared.threads_max {
            if self.full.is_empty() {
                tracing::warn!(
                    queue = queue.number,
                    threads,
                    "every thread is in a handler that takes long; further requests wait"
                );
            }
            self.full.insert(queue.number);
            return;
        }
        self.start(queue, Role::Further);
    }

    /// Whether there is no entry left while a thread has nothing to do, which replies that are due later
    /// keep from getting any.
    fn needs_receiver(&self, queue: &Queue, members: &[Arc<Member>]) -> bool {
        let rests = |member: &Arc<Member>| {
            !member.is_busy()
                && member.waiting.load(Ordering::Relaxed) == 0
                && schedule::of(member.thread).is_some_and(|of| !of.runnable)
        };
        let handover = &queue.handover;
        !self.dispatcher.is_prompt() && !handover.has_receiver() && members.iter().any(rests)
    }

    fn start(&mut self, queue: &Arc<Queue>, role: Role) {
        if self.failed.is_some_and(|at| at.elapsed() < RETRY) {
            return;
        }
        let started = spawn::spawn(&self.shared, queue)
            .and_then(|starting| starting.go(&self.dispatcher, role));
        match started {
            Ok(()) => {
                tracing::debug!(queue = queue.number, ?role, "a further thread");
                self.follow();
            }
            Err(error) => {
                spawn::say_no_thread(queue, &error);
                self.failed = Some(Instant::now());
            }
        }
    }
}

/// Whether a thread that is in the same handler as at the last tick is held up by it: it sleeps, or
/// has run for long, and does not just wait for its CPU. Where that is not known, it counts as held up.
fn takes_long(schedule: Option<Schedule>, run_before: Option<u64>) -> bool {
    let Some(schedule) = schedule else {
        return true;
    };
    let ran = run_before.is_some_and(|before| schedule.run > before);
    !schedule.runnable || ran
}

/// How many threads a receiver, where there is one, passes nothing to: itself, and those that have an entry with the kernel
/// from before. As the kernel takes the entry that was given back last, hardly a request comes to these.
fn apart(queue: &Queue, members: &[Arc<Member>]) -> usize {
    let Some(receiver) = queue.handover.receiver() else {
        return 0;
    };
    let is_apart = |member: &&Arc<Member>| {
        let has_entry = !member.is_busy() && member.waiting.load(Ordering::Relaxed) > 0;
        has_entry || Arc::ptr_eq(&member.port, &receiver)
    };
    members.iter().filter(is_apart).count()
}

/// Whether requests may wait in a queue although somebody could handle them.
fn is_short(queue: &Queue) -> bool {
    queue.is_exhausted() || queue.handover.keeps()
}

fn has_ended(member: &Member) -> bool {
    let mut fds = [PollFd::new(&member.ended, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_cpu_is_not_held_up() {
        let schedule = |runnable, run| Some(Schedule { runnable, run });
        assert!(takes_long(schedule(false, 5), None), "sleeps");
        assert!(!takes_long(schedule(true, 5), None), "not known yet");
        assert!(!takes_long(schedule(true, 5), Some(5)), "has not run");
        assert!(takes_long(schedule(true, 6), Some(5)), "has run");
        assert!(takes_long(None, Some(5)), "nothing is known");
    }
}
