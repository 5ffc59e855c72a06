//! Distributions of durations.

use std::fmt;
use std::time::Duration;

use crate::spec::parse_duration;

/// A distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    /// Always the same: `5ms`.
    Fixed(Duration),
    /// Anything between, equally often: `1ms..10ms`.
    Uniform(Duration, Duration),
    /// Exponential with a mean: `exp(5ms)`.
    Exponential(Duration),
    /// Normal with a mean and a standard deviation, not below zero: `normal(5ms/1ms)`.
    Normal(Duration, Duration),
}

/// Longer than anybody waits; bounds what the tail of a distribution can give.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Distribution {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let inner = |name: &str| {
            text.strip_prefix(name)?
                .strip_prefix('(')?
                .strip_suffix(')')
        };
        if let Some(mean) = inner("exp") {
            return Ok(Self::Exponential(parse_duration(mean)?));
        }
        if let Some(arguments) = inner("normal") {
            let (mean, deviation) = arguments
                .split_once('/')
                .ok_or("normal(MEAN/DEVIATION) is meant, such as normal(5ms/1ms)")?;
            return Ok(Self::Normal(
                parse_duration(mean)?,
                parse_duration(deviation)?,
            ));
        }
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (parse_duration(from)?, parse_duration(to)?);
            if from > to {
                return Err("the range ends before it begins".to_owned());
            }
            return Ok(Self::Uniform(from, to));
        }
        parse_duration(text).map(Self::Fixed).map_err(|_| {
            "5ms, 1ms..10ms, exp(5ms) or normal(5ms/1ms) is meant, with ns, us, ms or s".to_owned()
        })
    }

    pub(crate) fn sample(&self, random: &mut fastrand::Rng) -> Duration {
        let seconds = match self {
            Self::Fixed(duration) => return (*duration).min(LONGEST),
            Self::Uniform(from, to) => {
                from.as_secs_f64() + random.f64() * (to.as_secs_f64() - from.as_secs_f64())
            }
            Self::Exponential(mean) => -mean.as_secs_f64() * (1.0 - random.f64()).ln(),
            Self::Normal(mean, deviation) => {
                let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
                let angle = std::f64::consts::TAU * random.f64();
                mean.as_secs_f64() + deviation.as_secs_f64() * radius * angle.cos()
            }
        };
        Duration::try_from_secs_f64(seconds.max(0.0))
            .unwrap_or(LONGEST)
            .min(LONGEST)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(duration) => write!(f, "{duration:?}"),
            Self::Uniform(from, to) => write!(f, "{from:?}..{to:?}"),
            Self::Exponential(mean) => write!(f, "exp({mean:?})"),
            Self::Normal(mean, deviation) => write!(f, "normal({mean:?}/{deviation:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_where_they_should() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut mean = |text: &str| {
            let distribution = Distribution::parse(text).unwrap();
            let sum: Duration = (0..10_000).map(|_| distribution.sample(&mut random)).sum();
            sum.as_secs_f64() / 10_000.0
        };
        assert!((mean("5ms") - 0.005).abs() < 1e-9);
        for text in ["0ms..10ms", "exp(5ms)", "normal(5ms/1ms)"] {
            let mean = mean(text);
            assert!((mean - 0.005).abs() < 0.000_25, "{text}: {mean}");
        }
        let range = Distribution::parse("2ms..3ms").unwrap();
        for _ in 0..1000 {
            let sample = range.sample(&mut random);
            assert!(sample >= Duration::from_millis(2) && sample <= Duration::from_millis(3));
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for text in ["", "5", "3ms..1ms", "exp(5)", "normal(5ms)", "exp(1ms"] {
            assert!(Distribution::parse(text).is_err(), "{text}");
        }
        let endless = Distribution::parse("99999999999s").unwrap();
        assert_eq!(endless.sample(&mut fastrand::Rng::with_seed(1)), LONGEST);
    }
}
