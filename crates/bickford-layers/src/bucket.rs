//! A token bucket that may go into debt.

use std::time::Duration;

/// Tokens that come at a rate, up to a burst. Whoever takes more than there are waits until the
/// debt is paid; so a request larger than the burst still gets through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was right, since the beginning of the session.
    at: Duration,
}

impl Bucket {
    /// A full bucket of `rate` tokens a second that holds as many as come within `burst`.
    pub(crate) fn new(rate: u64, burst: Duration, now: Duration) -> Self {
        let rate = rate.max(1) as f64;
        let burst = rate * burst.as_secs_f64();
        Self {
            rate,
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes tokens; how long to wait for them.
    pub(crate) fn take(&mut self, tokens: u64, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.burst);
        self.tokens -= tokens as f64;
        Duration::try_from_secs_f64((-self.tokens / self.rate).max(0.0))
            .unwrap_or(Duration::from_secs(24 * 3600))
    }

    /// Whether nothing was taken that has not come again.
    pub(crate) fn is_full(&self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at);
        self.tokens + passed.as_secs_f64() * self.rate >= self.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_free_and_the_rate_holds_after_it() {
        let mut bucket = Bucket::new(100, SECOND, Duration::ZERO);
        assert_eq!(bucket.take(100, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take(50, Duration::ZERO), SECOND / 2);
        assert_eq!(bucket.take(50, Duration::ZERO), SECOND);
        assert_eq!(bucket.take(100, SECOND), SECOND);
        assert!(!bucket.is_full(2 * SECOND));
        assert!(bucket.is_full(3 * SECOND));
        assert_eq!(bucket.take(100, 100 * SECOND), Duration::ZERO);
        assert!(bucket.take(1, 100 * SECOND) > Duration::ZERO);
    }

    #[test]
    fn whatever_is_taken_the_rate_is_kept() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut bucket = Bucket::new(1000, SECOND, Duration::ZERO);
        let (mut now, mut taken) = (Duration::ZERO, 0);
        for _ in 0..1000 {
            let tokens = random.u64(1..500);
            taken += tokens;
            now += bucket.take(tokens, now);
            let allowed = 1000.0 * now.as_secs_f64() + 1000.0;
            assert!(taken as f64 <= allowed + 1.0, "{taken} at {now:?}");
        }
    }
}
