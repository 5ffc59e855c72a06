//! Options that settle numbers with the kernel.

use std::fmt::Display;
use std::str::FromStr;

use bickford::Negotiation;
use bickford::dispatch::KernelLimits;

use crate::guard::Failure;

/// A number that is the value of an option, at least `least`.
pub(crate) fn number<T>(option: &str, value: &str, least: T) -> Result<T, Failure>
where
    T: FromStr<Err: Display> + PartialOrd + Display,
{
    let refused = |why: &dyn Display| Failure::argument(format!("{option}=\"{value}\": {why}"));
    let number = T::from_str(value).map_err(|error| refused(&error))?;
    if number < least {
        return Err(refused(&format_args!("{least} is the least")));
    }
    Ok(number)
}

/// What is to be settled; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub(crate) limits: KernelLimits,
    time_granularity: Option<u32>,
}

impl Tuning {
    pub(crate) const NAMES: [&str; 4] = [
        "max_background",
        "congestion_threshold",
        "request_timeout",
        "time_granularity",
    ];

    /// Takes an option; false where it is none of these.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, Failure> {
        match name {
            "max_background" => self.limits.max_background = Some(number(name, value, 1)?),
            "congestion_threshold" => {
                self.limits.congestion_threshold = Some(number(name, value, 1)?);
            }
            "request_timeout" => self.limits.request_timeout = Some(number(name, value, 0)?),
            "time_granularity" => {
                let nanoseconds = number(name, value, 1)?;
                if nanoseconds > 1_000_000_000 {
                    return Err(Failure::argument(format!(
                        "time_granularity=\"{value}\": 1000000000 nanoseconds are the most"
                    )));
                }
                self.time_granularity = Some(nanoseconds);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Settles what is no limit: these are the session's.
    pub(crate) fn apply(&self, negotiation: &mut Negotiation) {
        if let Some(nanoseconds) = self.time_granularity {
            negotiation.set_time_granularity(nanoseconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use bickford::abi::InitIn;

    use super::*;

    #[test]
    fn numbers_are_taken() {
        let mut tuning = Tuning::default();
        let options = [
            ("max_background", "8"),
            ("congestion_threshold", "2"),
            ("request_timeout", "0"),
            ("time_granularity", "100"),
        ];
        for (name, value) in options {
            assert!(tuning.set(name, value).unwrap(), "{name}");
        }
        let limits = KernelLimits {
            max_background: Some(8),
            congestion_threshold: Some(2),
            request_timeout: Some(0),
        };
        assert_eq!(tuning.limits, limits);
        let mut negotiation = Negotiation::new(&InitIn::default());
        tuning.apply(&mut negotiation);
        assert_eq!(negotiation.time_granularity(), 100);
    }

    #[test]
    fn what_is_no_such_number_is_refused() {
        let mut tuning = Tuning::default();
        let refused = [
            ("max_background", "0"),
            ("max_background", "70000"),
            ("congestion_threshold", "few"),
            ("request_timeout", "-1"),
            ("time_granularity", "1000000001"),
        ];
        for (name, value) in refused {
            assert!(tuning.set(name, value).is_err(), "{name}={value}");
        }
        assert_eq!(tuning, Tuning::default());
        assert!(!tuning.set("fsname", "x").unwrap());
    }
}
