//! What a run was asked to do, and on what.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::cgroup::MemoryLimit;
use crate::host::device::Choice;
use crate::host::{self, Machine};
use crate::rows::Row;
use crate::target::Config;

/// What a run was asked to do, and where. Kept so that it can be resumed and repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the tool.
    pub version: String,
    /// Name of the suite.
    pub suite: String,
    /// 1 is the papers' size.
    pub scale: f64,
    /// Where the lower file system lives.
    pub device: Choice,
    /// Directory for the loop device's file and the mount points.
    pub directory: PathBuf,
    /// Counted rounds.
    pub rounds: u32,
    /// Longest time of one run of a row, in seconds.
    pub deadline_s: u64,
    /// What is compared, native first.
    pub configs: Vec<Config>,
    /// What is run.
    pub rows: Vec<Row>,
    /// The machine.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// The command line that repeats it.
    pub command: String,
    /// The programs that ran, this one and those that the configurations' commands begin with, each with its
    /// [`super::fingerprint`]. Records of older versions have none.
    #[serde(default)]
    pub programs: BTreeMap<PathBuf, String>,
    /// CPUs of the machine that the run might use, where not all. Records of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_cpus: Option<usize>,
    /// [`host::enable_uring`] when it began. Records of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_uring: Option<String>,
    /// Whether it ran as root, who drops caches. Records of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<bool>,
    /// Whether a memory limit could be had. Records of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<bool>,
    /// [`Choice::file_system`] when it began. Records of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
}

/// Memory of a machine that differs by less than this part of it is the same: kernels keep some for
/// themselves, not always as much.
const SAME_MEMORY: f64 = 0.01;

/// What makes two machines different ones, and of which kind it is in each.
pub(crate) fn differences(a: &Machine, b: &Machine) -> Vec<(&'static str, String, String)> {
    let cpus = |m: &Machine| format!("with {} CPUs", m.cpus);
    let memory = |m: &Machine| format!("with {} MB of memory", m.memory_bytes >> 20);
    let mut pairs = vec![
        ("the processor", a.cpu.clone(), b.cpu.clone()),
        ("the kernel", a.kernel.clone(), b.kernel.clone()),
        ("the machine", cpus(a), cpus(b)),
    ];
    let more = a.memory_bytes.max(b.memory_bytes);
    if a.memory_bytes.abs_diff(b.memory_bytes) as f64 > SAME_MEMORY * more as f64 {
        pairs.push(("the machine", memory(a), memory(b)));
    }
    pairs.retain(|(_, a, b)| a != b);
    pairs
}

impl Settings {
    /// CPUs that the run might use.
    pub(crate) fn cpus(&self) -> usize {
        self.usable_cpus.unwrap_or(self.machine.cpus)
    }

    /// What is not as it was when the run began, so that samples of now do not belong to it.
    #[must_use]
    pub fn changes(&self, now: &Machine) -> Vec<String> {
        let mut pairs = differences(&self.machine, now);
        let version = env!("CARGO_PKG_VERSION");
        pairs.push(("bickford-eval", self.version.clone(), version.to_owned()));
        let usable = host::usable_cpus();
        if self.usable_cpus.is_some() || usable < now.cpus {
            let (then, now) = (self.cpus().to_string(), usable.to_string());
            pairs.push(("the number of CPUs that may be used", then, now));
        }
        if let Some(then) = &self.enable_uring {
            let now = host::enable_uring().unwrap_or_else(|| "not there".to_owned());
            pairs.push(("enable_uring of the module fuse", then.clone(), now));
        }
        if let Some(then) = self.root {
            let user = |root| if root { "root" } else { "not root" }.to_owned();
            pairs.push(("the user", user(then), user(host::is_root())));
        }
        if let Some(then) = self.limited {
            let limit = |had| if had { "possible" } else { "not possible" }.to_owned();
            let now = MemoryLimit::probe().is_ok();
            pairs.push(("a memory limit", limit(then), limit(now)));
        }
        if let Some(then) = &self.file_system {
            let now = self.device.file_system(&self.directory);
            let now = now.unwrap_or_else(|| "not there".to_owned());
            pairs.push(("the file system below", then.clone(), now));
        }
        let mut changes: Vec<String> = pairs
            .into_iter()
            .filter(|(_, then, now)| then != now)
            .map(|(what, then, now)| format!("{what} was {then} and is {now}"))
            .collect();
        for (path, then) in &self.programs {
            match super::fingerprint(path) {
                Ok(now) if now == *then => {}
                Ok(_) => changes.push(format!("{} is another program now", path.display())),
                Err(error) => changes.push(format!("{}: {error}", path.display())),
            }
        }
        let gone = self.configs.iter().filter_map(|c| c.directory.as_ref());
        changes.extend(
            gone.filter(|d| !d.is_dir())
                .map(|d| format!("{}, where commands start, is no directory now", d.display())),
        );
        changes
    }
}
