//! Medians, spread, the interval of a ratio, and the four classes of FAST'17.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How often the bootstrap draws again; 2,000 draws put the 95% bounds within their own noise.
const RESAMPLES: usize = 2000;

/// So many rounds tell how much they scatter.
pub const ROUNDS_FOR_SPREAD: usize = 3;

/// From so many rounds on an interval can be one of 95%: the true median lies outside of all of `n` rounds
/// with a probability of 2 to the power of `1 - n`, which is 6% of five rounds and 3% of six.
pub const ROUNDS_FOR_95: usize = 6;

/// What an interval over `rounds` rounds is, for people.
#[must_use]
pub fn interval_name(rounds: usize) -> &'static str {
    if rounds < ROUNDS_FOR_95 {
        "range of the resampled medians"
    } else {
        "95% bootstrap interval"
    }
}

/// [`interval_name`] for the head of a column.
#[must_use]
pub fn interval_label(rounds: usize) -> &'static str {
    if rounds < ROUNDS_FOR_95 {
        "range"
    } else {
        "95%"
    }
}

/// The median of `values`, or `None` when there are none. Values that are not finite are left out.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile `q` (0 to 1) of `values` with linear interpolation between neighbours.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let low = sorted.get(position.floor() as usize)?;
    let high = sorted.get(position.ceil() as usize)?;
    Some(low + (high - low) * position.fract())
}

/// Median and spread of the counted rounds of one row in one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many rounds were counted.
    pub rounds: usize,
    /// The median.
    pub median: f64,
    /// The median absolute deviation from the median, in the unit of the values.
    pub mad: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Summary {
    /// Sums up `values`; `None` when there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let centre = median(values)?;
        let deviations: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
        Some(Self {
            rounds: values.len(),
            median: centre,
            mad: median(&deviations)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// The spread as a percentage of the median (0 when the median is 0).
    #[must_use]
    pub fn spread_pct(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            100.0 * self.mad / self.median.abs()
        }
    }
}

/// An interval, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The percentile-bootstrap interval, 2.5% to 97.5%, of `median(other) / median(native)`.
///
/// Both groups are drawn again with replacement, from a fixed seed, so that the same samples always
/// give the same interval. It can be no wider than the extremes seen, so that below [`ROUNDS_FOR_95`] rounds it
/// holds the true ratio less often than in 95% of cases: there it is the range of the resampled medians. It
/// tells of the spread in this run, not of other machines or days.
#[must_use]
pub fn bootstrap_ratio(native: &[f64], other: &[f64]) -> Option<Interval> {
    bootstrap(&[native], &[other])
}

/// The interval of the product of the medians of `over` by that of the medians of `under`.
fn bootstrap(under: &[&[f64]], over: &[&[f64]]) -> Option<Interval> {
    if under.iter().chain(over).any(|group| group.is_empty()) {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let mut product = |groups: &[&[f64]]| {
        groups.iter().try_fold(1.0, |product, group| {
            Some(product * median(&draw(group, &mut random))?)
        })
    };
    let mut ratios = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let (below, above) = (product(under)?, product(over)?);
        if below > 0.0 {
            ratios.push(above / below);
        }
    }
    Some(Interval {
        low: quantile(&ratios, 0.025)?,
        high: quantile(&ratios, 0.975)?,
    })
}

fn draw(values: &[f64], random: &mut fastrand::Rng) -> Vec<f64> {
    values
        .iter()
        .filter_map(|_| values.get(random.usize(..values.len())).copied())
        .collect()
}

/// The classes of FAST'17 for the difference to the native file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Under 5% slower, or faster.
    Green,
    /// 5% to under 25% slower.
    Yellow,
    /// 25% to 50% slower.
    Orange,
    /// More than 50% slower.
    Red,
}

impl Class {
    /// Every class, best first.
    pub const ALL: [Self; 4] = [Self::Green, Self::Yellow, Self::Orange, Self::Red];

    /// The class of a throughput difference in percent; negative means slower than native.
    #[must_use]
    pub fn of_difference(percent: f64) -> Self {
        let slower = -percent;
        if slower < 5.0 {
            Self::Green
        } else if slower < 25.0 {
            Self::Yellow
        } else if slower <= 50.0 {
            Self::Orange
        } else {
            Self::Red
        }
    }

    /// The name in lower case, as used in reports and style sheets.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Orange => "orange",
            Self::Red => "red",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One configuration against another (in the report: against native) on one row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Median throughput over the reference's median throughput.
    pub ratio: f64,
    /// The difference in percent; negative is slower.
    pub difference_pct: f64,
    /// The interval of the difference in percent; [`interval_name`] of `rounds` says what it is.
    pub interval_pct: Interval,
    /// Rounds of the side that has fewer.
    pub rounds: usize,
    /// The class of `difference_pct`.
    pub class: Class,
    /// Best and worst class the interval reaches; both equal `class` where the class is certain.
    pub class_range: (Class, Class),
}

impl Comparison {
    /// Compares throughputs (more is better); `None` when a group is empty or the reference is 0.
    #[must_use]
    pub fn of(reference: &[f64], other: &[f64]) -> Option<Self> {
        let below = median(reference).filter(|v| *v > 0.0)?;
        let ratio = median(other)? / below;
        let bounds = bootstrap_ratio(reference, other)?;
        let difference_pct = percent(ratio);
        let interval_pct = bounds.in_percent();
        Some(Self {
            ratio,
            difference_pct,
            interval_pct,
            rounds: reference.len().min(other.len()),
            class: Class::of_difference(difference_pct),
            class_range: interval_pct.classes(),
        })
    }

    /// The same where the times of both together may be off by this part of them.
    #[must_use]
    pub fn widened(mut self, by: f64) -> Self {
        self.interval_pct = self.interval_pct.widened(by);
        self.class_range = self.interval_pct.classes();
        self
    }

    /// True where the spread crosses the border of a class, and where too few rounds tell no spread.
    #[must_use]
    pub fn uncertain(&self) -> bool {
        self.rounds < ROUNDS_FOR_SPREAD || self.class_range.0 != self.class_range.1
    }
}

/// How a ratio to native changed from one run to another: the ratio of the two ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// In percent; negative is slower, with native's own change taken out.
    pub difference_pct: f64,
    /// Its interval, of the same bootstrap; [`interval_name`] of `rounds` says what it is.
    pub interval_pct: Interval,
    /// Rounds of the group that has fewest.
    pub rounds: usize,
}

impl Change {
    /// From throughputs of native and of the other, in the first run and in the second; `None` when a group
    /// is empty or a reference is 0.
    #[must_use]
    pub fn of(before: (&[f64], &[f64]), after: (&[f64], &[f64])) -> Option<Self> {
        let ratio = |(native, other): (&[f64], &[f64])| {
            Some(median(other)? / median(native).filter(|v| *v > 0.0)?)
        };
        let first = ratio(before).filter(|v| *v > 0.0)?;
        let bounds = bootstrap(&[before.1, after.0], &[before.0, after.1])?;
        let groups = [before.0, before.1, after.0, after.1];
        Some(Self {
            difference_pct: percent(ratio(after)? / first),
            interval_pct: bounds.in_percent(),
            rounds: groups.iter().map(|g| g.len()).min()?,
        })
    }
}

/// What a ratio is as a difference in percent.
fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

impl Interval {
    /// The interval of a difference in percent, of that of a ratio.
    fn in_percent(self) -> Self {
        Self {
            low: percent(self.low),
            high: percent(self.high),
        }
    }

    /// That of a difference in percent, where the ratio may be off by this part of it, too.
    #[must_use]
    pub fn widened(self, by: f64) -> Self {
        let ratio = |difference: f64| 1.0 + difference / 100.0;
        let less = (1.0 - by).max(0.0);
        let [low, high] = [ratio(self.low) * less, ratio(self.high) * (1.0 + by)];
        Self { low, high }.in_percent()
    }

    /// Best and worst class that a difference in percent in it has.
    fn classes(self) -> (Class, Class) {
        (
            Class::of_difference(self.high),
            Class::of_difference(self.low),
        )
    }

    /// True where it holds 0: for an interval of a difference, nothing may have changed.
    #[must_use]
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_nothing() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 7.0]), Some(7.0));
    }

    #[test]
    fn spread_is_the_median_absolute_deviation() {
        let s = Summary::of(&[10.0, 12.0, 11.0, 100.0, 9.0]).unwrap();
        assert_eq!((s.median, s.mad, s.min, s.max), (11.0, 1.0, 9.0, 100.0));
        assert!((s.spread_pct() - 100.0 / 11.0).abs() < 1e-9);
    }

    #[test]
    fn borders_of_the_classes() {
        for (percent, class) in [
            (6.2, Class::Green),
            (-4.999, Class::Green),
            (-5.0, Class::Yellow),
            (-24.999, Class::Yellow),
            (-25.0, Class::Orange),
            (-50.0, Class::Orange),
            (-50.001, Class::Red),
            (-83.3, Class::Red),
        ] {
            assert_eq!(Class::of_difference(percent), class, "{percent}");
        }
    }

    #[test]
    fn bootstrap_holds_the_true_ratio_and_is_repeatable() {
        let native = [100.0, 101.0, 99.0, 100.5, 99.5];
        let half: Vec<f64> = native.iter().map(|v| v / 2.0).collect();
        let bounds = bootstrap_ratio(&native, &half).unwrap();
        assert!(bounds.low <= 0.5 && 0.5 <= bounds.high);
        assert!(bounds.low > 0.48 && bounds.high < 0.52, "{bounds:?}");
        assert_eq!(bootstrap_ratio(&native, &half), Some(bounds));
        assert_eq!(bootstrap_ratio(&[], &half), None);
    }

    #[test]
    fn a_change_against_native_leaves_out_what_the_machine_gained() {
        let (slow, fast) = ([100.0, 101.0, 99.0], [200.0, 202.0, 198.0]);
        let (half, same_half) = ([50.0, 50.5, 49.5], [100.0, 101.0, 99.0]);
        let none = Change::of((&slow, &half), (&fast, &same_half)).unwrap();
        assert!(none.difference_pct.abs() < 1e-9, "{none:?}");
        assert!(none.interval_pct.holds_zero(), "{none:?}");
        let twice = Change::of((&slow, &half), (&slow, &slow)).unwrap();
        assert!((twice.difference_pct - 100.0).abs() < 1e-9, "{twice:?}");
        assert!(!twice.interval_pct.holds_zero() && twice.interval_pct.low > 90.0);
        assert_eq!(twice.rounds, 3);
        assert_eq!(Change::of((&slow, &[]), (&slow, &slow)), None);
        assert_eq!(Change::of((&slow, &[0.0]), (&slow, &slow)), None);
    }

    #[test]
    fn only_six_rounds_and_more_give_an_interval_of_95_percent() {
        let values: Vec<f64> = (0..6).map(|n| 100.0 + f64::from(n)).collect();
        let compared = Comparison::of(&values, &values[..5]).unwrap();
        assert_eq!(compared.rounds, 5);
        assert!(!interval_name(compared.rounds).contains("95%"));
        assert!(!interval_label(compared.rounds).contains("95%"));
        let six = Comparison::of(&values, &values).unwrap().rounds;
        assert!(interval_name(six).contains("95%") && interval_label(six).contains("95%"));
        // Three rounds: the interval is the extremes, which is why it has another name.
        let three = bootstrap_ratio(&[1.0; 3], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((three.low, three.high), (1.0, 3.0));
    }

    #[test]
    fn a_coarse_clock_makes_the_interval_wider_and_the_class_unsure() {
        // Rounds that all took as many ticks.
        let exact = Comparison::of(&[100.0; 3], &[96.0; 3]).unwrap();
        assert!(!exact.uncertain() && exact.interval_pct.low == exact.interval_pct.high);
        let coarse = exact.widened(0.05);
        assert!(coarse.uncertain(), "{coarse:?}");
        assert!((coarse.interval_pct.low + 8.8).abs() < 1e-9, "{coarse:?}");
        assert!((coarse.interval_pct.high - 0.8).abs() < 1e-9, "{coarse:?}");
        assert_eq!(coarse.class_range, (Class::Green, Class::Yellow));
        assert_eq!((coarse.class, coarse.ratio), (exact.class, exact.ratio));
        assert!(!exact.widened(0.005).uncertain());
        // Nothing is slower than what does not move: two sides may be off by all of their time.
        assert!((exact.widened(2.0).interval_pct.low + 100.0).abs() < 1e-9);
    }

    #[test]
    fn warns_only_where_the_spread_crosses_a_border() {
        let native = [100.0, 100.0, 100.0];
        let sure = Comparison::of(&native, &[90.0, 90.5, 89.5]).unwrap();
        assert_eq!(sure.class, Class::Yellow);
        assert!(!sure.uncertain());
        let unsure = Comparison::of(&native, &[94.0, 96.0, 98.0]).unwrap();
        assert_eq!(unsure.class, Class::Green);
        assert!(unsure.uncertain());
        assert_eq!(unsure.class_range, (Class::Green, Class::Yellow));
        assert!(Comparison::of(&[0.0], &[1.0]).is_none());
        let few = Comparison::of(&native[..2], &[90.0, 90.5]).unwrap();
        assert!(few.uncertain() && few.class_range == (Class::Yellow, Class::Yellow));
    }
}
