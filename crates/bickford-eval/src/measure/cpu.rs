//! CPU time, from /proc.

use std::fs;

use serde::{Deserialize, Serialize};

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// CPU time of a process with all its threads and the children it has waited for, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessTime {
    /// In user space.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
}

impl ProcessTime {
    /// Both together.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.user_s + self.system_s
    }
}

fn parse_process(stat: &str) -> Option<ProcessTime> {
    // The name is in parentheses and may hold anything; the third field follows the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<f64> = rest
        .split_whitespace()
        .map(|f| f.parse().unwrap_or(0.0))
        .collect();
    let seconds = |own: usize, children: usize| -> Option<f64> {
        Some((fields.get(own)? + fields.get(children)?) / ticks_per_second())
    };
    Some(ProcessTime {
        user_s: seconds(11, 13)?,
        system_s: seconds(12, 14)?,
    })
}

/// The time of process `pid`; `None` when it is gone.
#[must_use]
pub fn process(pid: u32) -> Option<ProcessTime> {
    parse_process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The time of several processes together.
#[must_use]
pub fn processes(pids: &[u32]) -> ProcessTime {
    pids.iter()
        .filter_map(|p| process(*p))
        .fold(ProcessTime::default(), |sum, one| ProcessTime {
            user_s: sum.user_s + one.user_s,
            system_s: sum.system_s + one.system_s,
        })
}

/// CPU time of the whole machine since it started, in seconds over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemTime {
    /// In user space.
    pub user_s: f64,
    /// In the kernel, interrupts included.
    pub system_s: f64,
    /// Idle while I/O was under way.
    pub iowait_s: f64,
    /// Idle.
    pub idle_s: f64,
}

impl SystemTime {
    /// The machine now.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<f64> = line
            .split_whitespace()
            .map(|f| f.parse().unwrap_or(0.0) / ticks_per_second())
            .collect();
        let at = |n: usize| fields.get(n).copied().unwrap_or(0.0);
        Some(Self {
            user_s: at(0) + at(1),
            system_s: at(2) + at(5) + at(6),
            iowait_s: at(4),
            idle_s: at(3),
        })
    }

    /// What passed since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
            iowait_s: self.iowait_s - earlier.iowait_s,
            idle_s: self.idle_s - earlier.idle_s,
        }
    }

    /// Time the CPUs worked.
    #[must_use]
    pub fn busy_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_fields() {
        let hz = ticks_per_second();
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 100 200 300 400 20 0 1 0 5 6 7";
        let time = parse_process(line).unwrap();
        assert!((time.user_s - 400.0 / hz).abs() < 1e-9);
        assert!((time.system_s - 600.0 / hz).abs() < 1e-9);
        assert_eq!(parse_process("7 (short) S 1"), None);
    }

    #[test]
    fn interrupts_count_as_the_kernels_time() {
        let hz = ticks_per_second();
        let time = SystemTime::parse("cpu  10 20 30 400 50 6 7 0 0 0\ncpu0 1 2\n").unwrap();
        assert!((time.system_s * hz - 43.0).abs() < 1e-9);
        assert!((time.busy_s() * hz - 73.0).abs() < 1e-9);
        assert!((time.iowait_s * hz - 50.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_and_machine_have_accounts() {
        assert!(process(std::process::id()).is_some());
        assert!(SystemTime::now().idle_s >= 0.0);
        assert_eq!(process(0), None);
    }
}
