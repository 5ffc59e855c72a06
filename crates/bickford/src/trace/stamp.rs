//! Moments, taken several times in each request.
//!
//! Where the kernel's own clock is the processor's counter, which it then has found to run evenly and
//! alike on all processors, the counter is read, which takes less than half of what the kernel's clock
//! takes. Elsewhere a moment is the kernel's monotonic clock. This is decided once in a process.

use std::sync::OnceLock;
use std::time::Duration;

use crate::sys::ticks::{THERE, ticks};

/// Which clock the kernel uses.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// How long the counter is held against the kernel's clock.
const COMPARED: Duration = Duration::from_millis(2);
/// Both clocks are read this close together, or again, for so many times.
const CLOSE_NS: u64 = 300;
const TRIES: u32 = 64;
/// A comparison with readings further apart than this is worth nothing.
const FAR_NS: u64 = 2_000;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

/// Nanoseconds in 2^32 ticks of the counter; `None` where it is not used.
static RATE: OnceLock<Option<u64>> = OnceLock::new();

fn rate() -> Option<u64> {
    *RATE.get_or_init(compare)
}

fn in_nanoseconds(ticks: u64, rate: u64) -> u64 {
    let nanoseconds = (u128::from(ticks) * u128::from(rate)) >> 32;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// Nanoseconds of the monotonic clock, as the kernel's tracepoints with clock `mono` have them.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// One moment on the counter and on the kernel's clock, and how far apart they were read: a thread may
/// be held up between the one and the other.
fn both() -> (u64, u64, u64) {
    let read = || {
        let before = monotonic();
        let counter = ticks();
        let apart = monotonic().saturating_sub(before);
        (counter, before + apart / 2, apart)
    };
    let mut best = read();
    for _ in 0..TRIES {
        if best.2 <= CLOSE_NS {
            break;
        }
        let next = read();
        if next.2 < best.2 {
            best = next;
        }
    }
    best
}

fn compare() -> Option<u64> {
    if !THERE || std::fs::read_to_string(CLOCK_SOURCE).ok()?.trim() != "tsc" {
        return None;
    }
    let (first, begun, apart) = both();
    std::thread::sleep(COMPARED);
    let (last, ended, apart_too) = both();
    if apart.max(apart_too) > FAR_NS {
        return None;
    }
    let nanoseconds = u128::from(ended.checked_sub(begun)?) << 32;
    let rate = nanoseconds.checked_div(u128::from(last.checked_sub(first)?))?;
    // A counter of less than 100 MHz would be too coarse.
    u64::try_from(rate)
        .ok()
        .filter(|rate| (1..=10 << 32).contains(rate))
}

impl Stamp {
    /// Decides which clock is used, which takes two milliseconds once.
    pub(crate) fn prepare() {
        rate();
    }

    /// The clock's own figure, to be kept where only a number can be.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self(if rate().is_some() {
            ticks()
        } else {
            monotonic()
        })
    }

    /// Nanoseconds since an earlier moment; none where it was not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        let passed = self.0.saturating_sub(earlier.0);
        rate().map_or(passed, |rate| in_nanoseconds(passed, rate))
    }
}

/// A moment just now on both clocks, from which earlier ones are told on the kernel's.
#[derive(Debug)]
pub(crate) struct Anchor {
    stamp: Stamp,
    at_ns: u64,
}

impl Anchor {
    pub(crate) fn now() -> Self {
        if rate().is_none() {
            let at_ns = monotonic();
            return Self {
                stamp: Stamp(at_ns),
                at_ns,
            };
        }
        let (counter, at_ns, _) = both();
        Self {
            stamp: Stamp(counter),
            at_ns,
        }
    }

    /// Nanoseconds of the monotonic clock. From a moment nearby, because the rates of both clocks are
    /// not quite the same for long: the kernel corrects its own.
    pub(crate) fn time_of(&self, stamp: Stamp) -> u64 {
        self.at_ns.saturating_sub(self.stamp.since(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_on_the_kernels_clock() {
        // However long this thread is held up, the moment is between its neighbours. They are not exact:
        // the readings of an anchor may be as far apart as a thread is held up.
        let slack = 1_000_000_000;
        let before = monotonic();
        let stamp = Stamp::now();
        let after = monotonic();
        std::thread::sleep(Duration::from_millis(20));
        let time = Anchor::now().time_of(stamp);
        assert!(
            time + slack > before && time < after + slack,
            "{before} {time} {after}"
        );
    }

    #[test]
    fn time_passes_at_the_kernels_rate() {
        let first = (monotonic(), Stamp::now(), monotonic());
        std::thread::sleep(Duration::from_millis(100));
        let last = (monotonic(), Stamp::now(), monotonic());
        let passed = last.1.since(first.1);
        let (least, most) = (last.0 - first.2, last.2 - first.0);
        // A thousandth more or less: the comparison itself is that exact, however busy the machine is.
        let thousandth = most / 500;
        assert!(
            passed + thousandth >= least && passed <= most + thousandth,
            "{least} {passed} {most}"
        );
        assert_eq!(first.1.since(last.1), 0);
    }

    #[test]
    fn ticks_become_nanoseconds() {
        assert_eq!(in_nanoseconds(3_000, 1 << 32), 3_000);
        assert_eq!(in_nanoseconds(3_000, 1 << 31), 1_500);
        assert_eq!(in_nanoseconds(u64::MAX, 10 << 32), u64::MAX);
    }
}
