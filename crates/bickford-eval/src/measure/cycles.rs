//! CPU cycles of the whole machine, from its performance counters.

use std::fs;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

/// Counts cycles of every CPU, user space and kernel, idling left out, until it is dropped.
#[derive(Debug)]
pub struct Cycles(Vec<Counter>);

impl Cycles {
    /// Begins to count.
    ///
    /// # Errors
    /// Why cycles cannot be counted here: no counters, as on many virtual machines, or no permission.
    pub fn start() -> Result<Self, String> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let of_cpu = |cpu: usize| {
            let mut builder = Builder::new(Hardware::CPU_CYCLES);
            builder.any_pid().one_cpu(cpu);
            builder.include_kernel().exclude_hv(true).enabled(true);
            builder.build().map_err(|error| {
                format!("the processor's counter of cycles cannot be had: {error}")
            })
        };
        let counters: Result<Vec<Counter>, String> = cpus(&online).map(of_cpu).collect();
        match counters {
            Ok(counters) if counters.is_empty() => {
                Err("/sys/devices/system/cpu/online names no CPU".into())
            }
            other => other.map(Self),
        }
    }

    /// Cycles since the start.
    #[must_use]
    pub fn count(&mut self) -> Option<u64> {
        self.0
            .iter_mut()
            .map(|counter| counter.read().ok())
            .sum::<Option<u64>>()
    }
}

/// The CPUs of a list such as `0-3,8`.
fn cpus(list: &str) -> impl Iterator<Item = usize> + '_ {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        let list = |text: &str| cpus(text).collect::<Vec<_>>();
        assert_eq!(list("0\n"), [0]);
        assert_eq!(list("0-2,5"), [0, 1, 2, 5]);
        assert!(list("").is_empty() && list("nonsense").is_empty());
    }

    /// Either there are counters and they count, or it is told why not.
    #[test]
    fn cycles_are_counted_or_the_reason_is_told() {
        match Cycles::start() {
            Ok(mut cycles) => assert!(cycles.count().is_some_and(|count| count > 0)),
            Err(reason) => assert!(reason.contains("counter of cycles"), "{reason}"),
        }
    }
}
