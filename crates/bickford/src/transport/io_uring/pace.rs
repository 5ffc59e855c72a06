//! Whether threads may take several requests at a time.
//!
//! A request that a thread has taken cannot be given to another one before the thread is out of the
//! method that it is in. So several are taken only where the file system says that no method waits for
//! another request, and not for a time after a method was seen to wait for something else, such as the
//! disk: so much longer than the method took that few requests meet one that waits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::thread;
use crate::trace::Stamp;

/// A method that waits and takes this long holds up others, in nanoseconds.
const LONG_NS: u64 = 100_000;
/// How many times longer than such a method threads take one request at a time.
const CAUTION: u64 = 128;

/// What was seen of all threads.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When a method that waited was seen.
    seen: AtomicU64,
    /// Nanoseconds after it in which requests are taken one at a time.
    lasts: AtomicU64,
}

impl Pace {
    /// Whether a thread takes one request at a time.
    pub(super) fn is_cautious(&self, now: Stamp) -> bool {
        let lasts = self.lasts.load(Ordering::Relaxed);
        lasts > 0 && now.since(Stamp::from_bits(self.seen.load(Ordering::Relaxed))) < lasts
    }

    fn waited(&self, now: Stamp, took_ns: u64) {
        let seen = Stamp::from_bits(self.seen.load(Ordering::Relaxed));
        let left = self.lasts.load(Ordering::Relaxed);
        let left = left.saturating_sub(now.since(seen));
        let lasts = took_ns.saturating_mul(CAUTION).max(left);
        self.seen.store(now.to_bits(), Ordering::Relaxed);
        self.lasts.store(lasts, Ordering::Relaxed);
    }
}

/// Watches the methods of one thread.
///
/// A thread may be in a quick method for long because others run. Whether it waited is known only where
/// its waits were counted before, which takes too long for every request: they are counted for a time
/// after a method took long.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When a method took long, and nanoseconds after it in which waits are counted.
    long: Option<(Stamp, u64)>,
}

/// A method that began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Stamp,
    waits: Option<u64>,
}

impl Watch {
    pub(super) fn begin(&mut self, at: Stamp) -> Begun {
        self.long = self.long.filter(|(when, lasts)| at.since(*when) < *lasts);
        let waits = self.long.map(|_| thread::waits());
        Begun { at, waits }
    }

    /// The method has returned. Answers whether it took long.
    pub(super) fn end(&mut self, begun: Begun, pace: &Pace) -> bool {
        let now = Stamp::now();
        let took = now.since(begun.at);
        if took < LONG_NS {
            return false;
        }
        if begun.waits.is_some_and(|before| thread::waits() > before) {
            pace.waited(now, took);
        }
        self.long = Some((now, took.saturating_mul(CAUTION)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    fn run(watch: &mut Watch, pace: &Pace, method: impl Fn()) {
        let begun = watch.begin(Stamp::now());
        method();
        watch.end(begun, pace);
    }

    #[test]
    fn a_second_method_that_waits_makes_cautious_for_a_while() {
        let (mut watch, pace) = (Watch::default(), Pace::default());
        let wait = thread::sleep_and_wait;
        run(&mut watch, &pace, wait);
        assert!(!pace.is_cautious(Stamp::now()), "not known yet");
        run(&mut watch, &pace, wait);
        assert!(pace.is_cautious(Stamp::now()));
        sleep(Duration::from_millis(10));
        assert!(pace.is_cautious(Stamp::now()), "for longer than it took");
        let end = Instant::now() + Duration::from_secs(20);
        while pace.is_cautious(Stamp::now()) {
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn quick_methods_and_such_that_only_compute_do_not() {
        let (mut watch, pace) = (Watch::default(), Pace::default());
        for _ in 0..3 {
            run(&mut watch, &pace, || ());
            run(&mut watch, &pace, || {
                let end = Instant::now() + Duration::from_micros(150);
                while Instant::now() < end {}
            });
        }
        assert!(!pace.is_cautious(Stamp::now()));
    }

    #[test]
    fn a_short_wait_does_not_end_the_caution_of_a_long_one() {
        let pace = Pace::default();
        let now = Stamp::now();
        pace.waited(now, 1_000_000_000);
        pace.waited(now, LONG_NS);
        sleep(Duration::from_millis(30));
        assert!(pace.is_cautious(Stamp::now()));
    }
}
