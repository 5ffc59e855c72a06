//! How large a device must be for what is run on it.

use std::collections::BTreeMap;

use crate::rows::Kind;
use crate::wml::{self, Op, Thread, Workload};

/// What must fit on a device at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Room {
    /// What all of these need, one after the other.
    pub(crate) fn of<'a>(kinds: impl Iterator<Item = &'a Kind>) -> Self {
        kinds.fold(Self::default(), |room, kind| Self {
            bytes: room.bytes.max(kind.bytes()),
            inodes: room.inodes.max(kind.inodes()),
        })
    }

    /// Bytes that the files may come to: with some for what the figures leave out.
    pub(crate) fn grown(self) -> u64 {
        self.bytes.saturating_add(self.bytes / 4)
    }

    /// Bytes of the device: with room for ext4's own tables and journal.
    pub(crate) fn length(self) -> u64 {
        self.grown().saturating_add(512 << 20)
    }

    /// `-N` of mke2fs(8); `None` where what it makes by itself, an inode for 16 KiB in its present
    /// configuration, is enough.
    pub(crate) fn more_inodes(self) -> Option<u64> {
        // Some for what ext4 keeps to itself.
        let needed = self
            .inodes
            .saturating_add(self.inodes / 16)
            .saturating_add(1024);
        (needed > self.length() / (16 << 10)).then_some(needed)
    }
}

impl Kind {
    /// Bytes of the largest state of the files, for the size of the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Fio(spec) => spec.bytes,
            Self::Wml { text, scale } => wml::scaled(text, *scale).map_or(0, |w| {
                // A file takes whole blocks, an inode and its share of a directory.
                let sets = w.filesets.iter().map(|s| {
                    let blocks = s.size.div_ceil(4096).saturating_mul(4096);
                    s.entries.saturating_mul(blocks.saturating_add(1024))
                });
                let files = sets.fold(0, u64::saturating_add);
                let grown = files.saturating_add(appended(&w).unwrap_or(0));
                grown.max(files.saturating_mul(3) / 2)
            }),
            Self::Postmark {
                files,
                transactions,
            } => files
                .saturating_add(transactions / 2)
                .saturating_mul(64 << 10),
            Self::Copy { bytes } => bytes.saturating_mul(2),
            Self::Bonnie { bytes, .. } | Self::BufferWrite { bytes, .. } => *bytes,
        }
    }

    /// True where it appends to files until its time is over, to what size nobody knows beforehand.
    pub(crate) fn grows_by_time(&self) -> bool {
        let Self::Wml { text, scale } = self else {
            return false;
        };
        wml::scaled(text, *scale).is_ok_and(|w| appended(&w).is_none())
    }

    /// Files and directories of the largest state, for the inodes of the device.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        match self {
            Self::Fio(spec) => spec.files,
            Self::Wml { text, scale } => wml::scaled(text, *scale).map_or(0, |w| {
                w.filesets
                    .iter()
                    // Each level of directories has at most half as many as the one below, and one.
                    .map(|s| {
                        let leaves = s.entries.div_ceil(s.dirwidth.max(1));
                        s.entries.saturating_add(leaves.saturating_mul(2))
                    })
                    .fold(0, u64::saturating_add)
            }),
            Self::Postmark {
                files,
                transactions,
            } => files.saturating_add(*transactions),
            Self::Copy { .. } | Self::Bonnie { .. } | Self::BufferWrite { .. } => 2,
        }
    }
}

/// The most that a workload appends to files that stay; `None` where only its time bounds it.
fn appended(workload: &Workload) -> Option<u64> {
    let mut sum = 0_u64;
    for process in &workload.processes {
        for thread in &process.threads {
            let turns = turns(workload, thread, process.instances);
            let removed = times_by_set(thread, Op::deletes);
            // The set of what was opened last in each slot.
            let mut opened = BTreeMap::new();
            for flowop in &thread.flowops {
                if let Some((slot, set)) = opens(&flowop.op) {
                    opened.insert(slot, set);
                }
                let Op::Append { fd, iosize, .. } = flowop.op else {
                    continue;
                };
                let set = opened.get(&fd);
                let alive = set.and_then(|set| lifetime(workload, *set, &removed));
                let turns = match (turns, alive) {
                    (Some(turns), Some(alive)) => turns.min(alive),
                    (turns, alive) => turns.or(alive)?,
                };
                let bytes = iosize.saturating_mul(flowop.iters).saturating_mul(turns);
                sum = sum.saturating_add(bytes);
            }
        }
    }
    Some(sum)
}

/// Turns of all instances of a thread together; `None` where only time bounds them.
fn turns(workload: &Workload, thread: &Thread, processes: u64) -> Option<u64> {
    let count = |thread: &Thread| {
        let limits = thread.flowops.iter().filter_map(|f| match f.op {
            Op::FinishOnCount { value } => Some(value),
            _ => None,
        });
        limits.min()
    };
    let all = workload.processes.iter().flat_map(|p| &p.threads);
    // All threads count together, and where the first that is done ends the run its count is that of all.
    let first = || all.filter_map(count).min();
    let first = workload.quit_first_done.then(first).flatten();
    let count = count(thread).or(first);
    let operations = times(thread, |op| {
        !matches!(op, Op::FinishOnCount { .. } | Op::OpsLimit)
    });
    let by_count = count.map(|count| count / operations.max(1));
    let all_made = times_by_set(thread, Op::creates);
    let all_removed = times_by_set(thread, Op::deletes);
    let sets = workload.filesets.iter().enumerate();
    let by_files = sets.filter_map(|(index, set)| {
        let of = |times: &BTreeMap<usize, u64>| times.get(&index).copied().unwrap_or(0);
        let (made, removed) = (of(&all_made), of(&all_removed));
        // It ends when there are no more to make, or to remove.
        let runs_out = (made == 0) != (removed == 0);
        runs_out.then(|| set.entries / made.max(removed))
    });
    let turns = by_count.into_iter().chain(by_files).min()?;
    // Each may be in the middle of one more.
    Some(turns.saturating_add(thread.instances.saturating_mul(processes)))
}

/// Turns of a thread until files of `set` that it appends to have been removed again, and twice as many, for which is
/// removed next is left to chance; `None` where it removes none of that set.
fn lifetime(workload: &Workload, set: usize, removed: &BTreeMap<usize, u64>) -> Option<u64> {
    let entries = workload.filesets.get(set)?.entries;
    entries.saturating_mul(2).checked_div(*removed.get(&set)?)
}

/// How many of some operations a thread does in each turn.
fn times(thread: &Thread, which: impl Fn(&Op) -> bool) -> u64 {
    let flowops = thread.flowops.iter().filter(|f| which(&f.op));
    flowops.map(|f| f.iters).fold(0, u64::saturating_add)
}

/// How many of some operations a thread does on each set in each turn.
fn times_by_set(thread: &Thread, set: impl Fn(&Op) -> Option<usize>) -> BTreeMap<usize, u64> {
    let mut times = BTreeMap::<_, u64>::new();
    for flowop in &thread.flowops {
        if let Some(set) = set(&flowop.op) {
            let count = times.entry(set).or_default();
            *count = count.saturating_add(flowop.iters);
        }
    }
    times
}

/// The slot that it opens a file in, and the set that it is of.
fn opens(op: &Op) -> Option<(usize, usize)> {
    match *op {
        Op::CreateFile { fileset, fd } | Op::OpenFile { fileset, fd } => Some((fd, fileset)),
        Op::Append { fileset, fd, .. } => Some((fd, fileset?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_of_any_size_has_a_size() {
        let text = "define fileset name=a,path=/x,entries=4294967295,size=17592186044416,prealloc\n\
                    define process name=p { thread name=t { flowop deletefile name=d,filesetname=a } }\n";
        let kind = Kind::Wml {
            text: text.to_owned(),
            scale: 1.0,
        };
        assert!(kind.bytes() >= u64::MAX / 2);
    }

    /// A set of 1,000 files of 4 KiB, and a file; `more` follows the flow operations.
    fn appending(mode: &str, flowops: &str, more: &str) -> Kind {
        let text = format!(
            "set mode quit {mode}\ndefine fileset name=s,path=/t,size=4k,entries=1000,prealloc=80\n\
             define file name=log,path=/t,size=0,prealloc\n\
             define process name=p,instances=2 {{ thread name=t,instances=5 {{ {flowops} }} {more}"
        );
        crate::wml::parse(&text, &std::collections::BTreeMap::new()).unwrap();
        Kind::Wml { text, scale: 1.0 }
    }

    #[test]
    fn what_is_appended_needs_room() {
        const FILES: u64 = 1000 * 5120 + 1024;
        let bytes = |mode, flowops: &str, more| {
            let kind = appending(mode, flowops, more);
            assert!(!kind.grows_by_time());
            kind.bytes() - FILES
        };
        let append = "flowop appendfile name=a,filesetname=log,iosize=1m,fd=1\n";
        let count = "flowop finishoncount name=f,value=20000\n";
        let once = format!("{append}{count}");
        assert_eq!(bytes("alldone", &once, "}"), 20_010 << 20);
        let third = format!("{append}flowop statfile name=x,filesetname=log,iters=2\n{count}");
        assert_eq!(bytes("alldone", &third, "}"), (6_666 + 10) << 20);
        // Another thread ends it, or there are no more files to make.
        let other = format!("thread name=u {{ flowop statfile name=s,filesetname=s {count} }} }}");
        assert_eq!(bytes("firstdone", append, &other), 20_010 << 20);
        let made = format!("flowop createfile name=c,filesetname=s,fd=2 {append}");
        assert_eq!(bytes("alldone", &made, "}"), (1_000 + 10) << 20);
        // What is removed again takes no more room.
        let mail = "flowop deletefile name=d,filesetname=s flowop createfile name=c,filesetname=s,fd=2\n\
                    flowop appendfilerand name=a,iosize=16k,fd=2 flowop closefile name=x,fd=2\n";
        let mail = format!("{mail}{count}");
        assert_eq!(bytes("alldone", &mail, "}"), (2_000 * 16) << 10);
    }

    #[test]
    fn what_is_appended_until_time_is_over_has_no_size() {
        let append = "flowop appendfile name=a,filesetname=log,iosize=1m,fd=1\n";
        let kind = appending("alldone", append, "}\nrun 60\n");
        assert!(kind.grows_by_time());
        assert_eq!(kind.bytes(), (1000 * 5120 + 1024) * 3 / 2);
    }

    /// Devices of the papers' rows are as large as in earlier runs.
    #[test]
    fn rows_of_the_papers_need_no_more_for_their_appends() {
        for (name, text) in crate::rows::WORKLOADS {
            let workload = wml::scaled(text, 1.0 / 60.0).unwrap();
            let half = workload.bytes() / 2;
            assert!(
                appended(&workload).is_some_and(|bytes| bytes <= half),
                "{name}"
            );
        }
    }

    #[test]
    fn many_small_files_get_an_inode_each() {
        let text = "define fileset name=s,path=/t,size=4k,entries=200000,dirwidth=20,prealloc\n\
                    define process name=p { thread name=t { flowop deletefile name=d,filesetname=s } }";
        let kind = Kind::Wml {
            text: text.to_owned(),
            scale: 1.0,
        };
        let room = Room::of(std::iter::once(&kind));
        assert!(
            room.length() / (16 << 10) < 200_000,
            "what is tested is needed"
        );
        assert!(room.more_inodes().unwrap() >= 210_000);
        let few = Room {
            bytes: 4 << 30,
            inodes: 1_000,
        };
        assert_eq!(few.more_inodes(), None);
    }
}
