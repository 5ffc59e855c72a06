//! Threads that yield to their callers, so that a caller stays on its CPU.
//!
//! Linux wakes a task on another CPU when the one that it ran on is busy and another is idle. Whoever
//! commits an answer is what keeps the caller's CPU busy: on a machine that has nothing else to do
//! every answer sends the caller to another CPU, which has to be woken first, and from there comes the
//! next request. A CPU that runs nothing but tasks of SCHED_IDLE counts as idle (sched(7)): who answers
//! under that policy leaves the caller where it is, and runs again when the caller waits.
//!
//! Beside other work a task of SCHED_IDLE hardly runs. So a thread takes the policy only after callers
//! were seen to come from other CPUs, and the watcher of the queues takes it back from whoever has begun
//! no request for a while, be it that none came or that it did not get to run. If it did not, nobody
//! takes the policy for a time, which doubles as long as that happens again; likewise where callers go
//! on to move, as those do that a device's answers send about.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::gettid;

use super::queue::Member;
use crate::sys::thread::{Policy, policy, set_policy};
use crate::trace::Stamp;
use crate::transport::Yielding;

/// A thread that yields has it taken back after so long without a request.
pub(super) const QUIET: Duration = Duration::from_millis(1);

/// How many callers are remembered at a time.
const CALLERS: usize = 256;

/// A thread yields after it was sent so many more requests by callers that had come from another CPU
/// than by others.
const MOVED: u8 = 4;

/// What the threads of a session share.
#[derive(Debug)]
pub(super) struct Common {
    allowed: AtomicBool,
    /// Those that yield.
    threads: Mutex<Vec<Arc<Member>>>,
    /// `on`, `off`, or `off: ...`.
    said: String,
    /// Where each caller was, by its thread's number: the number, and the queue.
    callers: Box<[AtomicU64]>,
    caution: Caution,
}

impl Common {
    pub(super) fn new(wanted: Yielding) -> Self {
        let said = match wanted {
            Yielding::Off => "off".into(),
            Yielding::Auto => {
                yielding_obstacle().map_or_else(|| "on".into(), |why| format!("off: {why}"))
            }
        };
        Self {
            allowed: AtomicBool::new(said == "on"),
            threads: Mutex::default(),
            said,
            callers: (0..CALLERS).map(|_| AtomicU64::new(0)).collect(),
            caution: Caution::default(),
        }
    }

    pub(super) fn said(&self) -> &str {
        &self.said
    }

    /// Whether a caller's last request came by another queue.
    fn has_moved(&self, caller: u32, queue: u16) -> bool {
        let Some(place) = self.callers.get(caller as usize % CALLERS) else {
            return false;
        };
        let now = u64::from(caller) << 32 | u64::from(queue);
        let before = place.load(Ordering::Relaxed);
        // Most callers stay, and then no CPU writes what others read.
        if before == now {
            return false;
        }
        place.store(now, Ordering::Relaxed);
        before >> 32 == u64::from(caller)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The threads that yield.
    pub(super) fn threads(&self) -> Vec<Arc<Member>> {
        self.lock().clone()
    }

    /// Whether any does.
    pub(super) fn is_on(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Callers were sent from one CPU to another. If the calling thread yields, that did not help.
    pub(super) fn moved_about(&self, member: &Arc<Member>, now: Stamp, tell: impl FnOnce()) {
        if !member.yields.load(Ordering::SeqCst) {
            return self.begin(member, now, tell);
        }
        // In this order: it must not hold the lock while it may not get to run.
        self.restore(member);
        self.remove(member);
        self.caution.more(now);
    }

    /// Has the calling thread yield from now on. `tell` wakes the watcher, which then looks as long as
    /// any thread yields.
    ///
    /// All but the change itself is done before it: afterwards the thread may not get to run.
    fn begin(&self, member: &Arc<Member>, now: Stamp, tell: impl FnOnce()) {
        let off = !self.allowed.load(Ordering::Relaxed) || self.caution.is_on(now);
        if off || member.yields.swap(true, Ordering::SeqCst) {
            return;
        }
        let first = {
            let mut threads = self.lock();
            threads.push(Arc::clone(member));
            threads.len() == 1
        };
        if first {
            tell();
        }
        if let Err(error) = set_policy(member.thread, Policy::Idle) {
            self.remove(member);
            return self.give_up("does not yield to callers", &error);
        }
        if !member.yields.load(Ordering::SeqCst) {
            // The watcher was here in between.
            self.restore(member);
        }
    }

    /// Has a thread yield no more that has begun no request for a while; `starved` when it was ready to
    /// run and did not. Only the watcher calls this.
    pub(super) fn quiet(&self, member: &Arc<Member>, ended: bool, starved: bool) {
        // In this order: the thread may be beginning, and looks afterwards whether it still yields.
        self.remove(member);
        if !ended {
            self.restore(member);
        }
        if starved {
            self.caution.more(Stamp::now());
        }
    }

    /// In this order: a thread begins again only when it is not there any more.
    fn remove(&self, member: &Arc<Member>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, member));
        member.yields.store(false, Ordering::SeqCst);
    }

    fn restore(&self, member: &Member) {
        if let Err(error) = set_policy(member.thread, Policy::Other) {
            self.give_up("stays behind all others of its CPU", &error);
        }
    }

    fn give_up(&self, what: &str, error: &io::Error) {
        if self.allowed.swap(false, Ordering::SeqCst) {
            tracing::warn!("a thread that serves requests {what}: sched_setscheduler: {error}");
        }
    }
}

/// When nobody yields, because a thread that did so did not get to run, or to no avail.
#[derive(Debug, Default)]
struct Caution {
    /// When that was seen.
    seen: AtomicU64,
    /// Nanoseconds after it in which nobody yields.
    lasts: AtomicU64,
}

impl Caution {
    /// The first time, in nanoseconds: others run for some milliseconds now and then.
    const SHORTEST: u64 = 8_000_000;
    const LONGEST: u64 = 128_000_000;
    /// What comes so long after the end is a first time again, in nanoseconds.
    const FORGIVEN: u64 = 4_000_000;

    fn is_on(&self, now: Stamp) -> bool {
        let lasts = self.lasts.load(Ordering::Relaxed);
        lasts > 0 && now.since(Stamp::from_bits(self.seen.load(Ordering::Relaxed))) < lasts
    }

    fn more(&self, now: Stamp) {
        let seen = Stamp::from_bits(self.seen.load(Ordering::Relaxed));
        let lasted = self.lasts.load(Ordering::Relaxed);
        let again = now.since(seen) < lasted + Self::FORGIVEN;
        let lasts = if again {
            (2 * lasted).min(Self::LONGEST)
        } else {
            Self::SHORTEST
        };
        self.seen.store(now.to_bits(), Ordering::Relaxed);
        self.lasts.store(lasts, Ordering::Relaxed);
    }
}

/// What one thread has seen of its callers.
#[derive(Debug, Default)]
pub(super) struct Callers {
    moved: u8,
}

impl Callers {
    /// A request came. Its caller is 0 where nobody waits for it.
    pub(super) fn saw(&mut self, common: &Common, caller: u32, queue: u16) {
        if caller == 0 {
            return;
        }
        self.moved = if common.has_moved(caller, queue) {
            (self.moved + 1).min(MOVED)
        } else {
            self.moved.saturating_sub(1)
        };
    }

    /// Whether callers are sent from one CPU to another; asked once, they have to be seen anew.
    pub(super) fn move_about(&mut self) -> bool {
        let moved = self.moved == MOVED;
        if moved {
            self.moved = 0;
        }
        moved
    }
}

/// Why threads of this process cannot yield; `None` when they can.
///
/// Who takes the policy must be able to give it back, which needs `CAP_SYS_NICE` or a limit
/// (`RLIMIT_NICE`) that allows it: a thread that ends right after is asked.
#[must_use]
pub fn yielding_obstacle() -> Option<String> {
    let asked = thread::Builder::new()
        .name("bickford-probe".into())
        .spawn(try_it)
        .map(thread::JoinHandle::join);
    match asked {
        Ok(Ok(obstacle)) => obstacle,
        Ok(Err(_)) => Some("the thread that was to try it panicked".into()),
        Err(error) => Some(format!("no thread to try it: {error}")),
    }
}

fn try_it() -> Option<String> {
    let own = gettid();
    match policy(own) {
        Ok(Some(Policy::Other)) => {}
        Ok(_) => return Some("the process has another scheduling policy than SCHED_OTHER".into()),
        Err(error) => return Some(format!("sched_getscheduler: {error}")),
    }
    let tried = set_policy(own, Policy::Idle).and_then(|()| set_policy(own, Policy::Other));
    let error = tried.err()?;
    Some(format!(
        "sched_setscheduler: {error}; run with CAP_SYS_NICE, or with `ulimit -e 20` (LimitNICE=+0)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_come_from_elsewhere_are_seen() {
        let common = Common::new(Yielding::Off);
        let mut callers = [Callers::default(), Callers::default()];
        for turn in 0..6_usize {
            let queue = turn % 2;
            callers[queue].saw(&common, 7, u16::try_from(queue).unwrap());
        }
        assert!(
            !callers[1].move_about(),
            "three times, and the first of all"
        );
        for turn in 6..9_usize {
            let queue = turn % 2;
            callers[queue].saw(&common, 7, u16::try_from(queue).unwrap());
        }
        assert!(callers[0].move_about());
        assert!(!callers[0].move_about(), "once");
    }

    #[test]
    fn callers_that_mostly_stay_are_left_alone() {
        let common = Common::new(Yielding::Off);
        let mut callers = Callers::default();
        for _ in 0..100 {
            common.has_moved(7, 1);
            // The first of these has moved.
            callers.saw(&common, 7, 0);
            callers.saw(&common, 7, 0);
        }
        assert!(!callers.move_about());
        for turn in 0..100 {
            callers.saw(&common, 1 + turn % 50, 0);
            // Nobody waits for these.
            common.has_moved(0, 1);
            callers.saw(&common, 0, 0);
        }
        assert!(!callers.move_about());
    }

    #[test]
    fn what_fails_again_is_left_for_longer() {
        let caution = Caution::default();
        let now = Stamp::now();
        assert!(!caution.is_on(now));
        let mut lasts = Vec::new();
        for _ in 0..6 {
            caution.more(now);
            assert!(caution.is_on(now));
            lasts.push(caution.lasts.load(Ordering::Relaxed) / 1_000_000);
        }
        assert_eq!(lasts, [8, 16, 32, 64, 128, 128]);
        // Long ago.
        caution.lasts.store(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(5));
        assert!(!caution.is_on(Stamp::now()));
        caution.more(Stamp::now());
        assert_eq!(caution.lasts.load(Ordering::Relaxed), Caution::SHORTEST);
    }

    #[test]
    fn two_that_share_a_place_are_not_taken_for_one() {
        let common = Common::new(Yielding::Off);
        let other = 7 + u32::try_from(CALLERS).unwrap();
        for _ in 0..4 {
            assert!(!common.has_moved(7, 0));
            assert!(!common.has_moved(other, 1));
        }
    }
}
