//! The rows of the suites: what is run, and in which class of workloads it counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine;
use crate::fio::{self, Access, FioSpec};
use crate::measure::Work;
use crate::postmark::TRANSACTIONS_MIN;
use crate::wml;

/// The workloads in WML that come with the crate, by name.
pub const WORKLOADS: [(&str, &str); 9] = [
    ("files-cr-1th", include_str!("../workloads/files-cr-1th.f")),
    (
        "files-cr-32th",
        include_str!("../workloads/files-cr-32th.f"),
    ),
    ("files-rd-1th", include_str!("../workloads/files-rd-1th.f")),
    (
        "files-rd-32th",
        include_str!("../workloads/files-rd-32th.f"),
    ),
    (
        "files-del-1th",
        include_str!("../workloads/files-del-1th.f"),
    ),
    (
        "files-del-32th",
        include_str!("../workloads/files-del-32th.f"),
    ),
    ("file-server", include_str!("../workloads/file-server.f")),
    ("mail-server", include_str!("../workloads/mail-server.f")),
    ("web-server", include_str!("../workloads/web-server.f")),
];

/// What a row stands for in the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadClass {
    /// Large files read from start to end.
    SequentialRead,
    /// Large files read at random.
    RandomRead,
    /// Large files written from start to end.
    SequentialWrite,
    /// Large files written at random.
    RandomWrite,
    /// Many small files: names and attributes more than data.
    Metadata,
    /// Mixed work like a server's.
    Server,
    /// A workload of the user's.
    Own,
}

impl WorkloadClass {
    /// Every class, in the order of the paper's table.
    pub const ALL: [Self; 7] = [
        Self::SequentialRead,
        Self::RandomRead,
        Self::SequentialWrite,
        Self::RandomWrite,
        Self::Metadata,
        Self::Server,
        Self::Own,
    ];

    /// What a reader calls it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::SequentialRead => "Sequential reads",
            Self::RandomRead => "Random reads",
            Self::SequentialWrite => "Sequential writes",
            Self::RandomWrite => "Random writes",
            Self::Metadata => "Many small files",
            Self::Server => "Servers and mixed work",
            Self::Own => "Own workloads",
        }
    }
}

/// One of Bonnie's six phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Phase {
    PutChar,
    WriteBlock,
    GetCharWarm,
    ReadBlockWarm,
    GetCharCold,
    ReadBlockCold,
}

impl Phase {
    /// Every phase with its figure in SAC'10.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::PutChar, "3a"),
        (Self::WriteBlock, "3b"),
        (Self::GetCharWarm, "3c"),
        (Self::ReadBlockWarm, "3d"),
        (Self::GetCharCold, "3e"),
        (Self::ReadBlockCold, "3f"),
    ];

    /// True where the phase reads a file that must exist.
    #[must_use]
    pub fn reads(self) -> bool {
        !matches!(self, Self::PutChar | Self::WriteBlock)
    }

    /// True where the file has been read before.
    pub(crate) fn warm(self) -> bool {
        matches!(self, Self::GetCharWarm | Self::ReadBlockWarm)
    }

    fn title(self) -> &'static str {
        match self {
            Self::PutChar => "putc",
            Self::WriteBlock => "write 16 KiB blocks",
            Self::GetCharWarm => "getc, warm",
            Self::ReadBlockWarm => "read 16 KiB blocks, warm",
            Self::GetCharCold => "getc, cold",
            Self::ReadBlockCold => "read 16 KiB blocks, cold",
        }
    }
}

/// What a row runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A job of fio.
    Fio(FioSpec),
    /// A workload in WML.
    Wml {
        /// Its text.
        text: String,
        /// What its files and operations are multiplied by.
        scale: f64,
    },
    /// The real PostMark.
    Postmark {
        /// Files at the start.
        files: u64,
        /// Transactions.
        transactions: u64,
    },
    /// cp(1) of one file.
    Copy {
        /// Its size.
        bytes: u64,
    },
    /// A phase of Bonnie.
    Bonnie {
        /// Which.
        phase: Phase,
        /// The file's size.
        bytes: u64,
    },
    /// Figure 2 of SAC'10: a file written over and over with one buffer size.
    BufferWrite {
        /// The buffer's size.
        buffer: u64,
        /// The file's size.
        bytes: u64,
        /// How often.
        times: u64,
    },
}

impl Kind {
    /// The unit of the row's throughput.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Fio(_) | Self::Wml { .. } => "ops/s",
            Self::Postmark { .. } => "transactions/s",
            Self::Copy { .. } | Self::Bonnie { .. } | Self::BufferWrite { .. } => "MB/s",
        }
    }

    /// The throughput of `work` in [`Kind::unit`].
    #[must_use]
    pub fn throughput(&self, work: &Work) -> f64 {
        let amount = if self.unit() == "MB/s" {
            work.bytes as f64 / 1e6
        } else {
            work.operations as f64
        };
        if work.elapsed_s > 0.0 {
            amount / work.elapsed_s
        } else {
            0.0
        }
    }

    /// The part of the time of `work` that its clock does not tell, where it matters; else 0.
    #[must_use]
    pub fn coarseness(&self, work: &Work) -> f64 {
        match self {
            Self::Fio(_) => fio::coarseness(work),
            _ => 0.0,
        }
    }

    /// True where the run leaves its files as they were, so that they serve the next run too.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        match self {
            Self::Fio(spec) => spec.reads(),
            Self::Bonnie { phase, .. } => phase.reads(),
            Self::Wml { text, .. } => {
                // A workload that opens and reads only; anything that is not known to be that changes files.
                wml::parse(text, &BTreeMap::new()).is_ok_and(|w| w.reads_only())
            }
            Self::Postmark { .. } | Self::Copy { .. } | Self::BufferWrite { .. } => false,
        }
    }
}

/// A row of a suite, at the size it is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Short and unique: `f01` to `f45` for FAST'17's rows, `s3b-100` for SAC'10's figures.
    pub id: String,
    /// FAST'17's row, where it is one.
    pub fast17: Option<u32>,
    /// SAC'10's figure, where it belongs to one.
    pub figure: Option<String>,
    /// Where the row stands on its figure's horizontal axis: MB, or KB for figure 2.
    pub x: Option<f64>,
    /// Name for people.
    pub name: String,
    /// Class of workloads.
    pub class: WorkloadClass,
    /// What is run.
    pub kind: Kind,
    /// Memory the paper had for the whole machine, scaled, in bytes.
    pub memory: u64,
}

impl Row {
    /// Bytes that the threads of the workload read into and write from: next to nothing beside the
    /// papers' memory, but much of a small fraction of it.
    #[must_use]
    pub fn buffers(&self) -> u64 {
        match &self.kind {
            Kind::Fio(spec) => spec.threads * spec.io_kib * 1024,
            Kind::Wml { text, scale } => {
                wml::scaled(text, *scale).map_or(0, |workload| engine::buffers(&workload))
            }
            _ => 0,
        }
    }
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// The memory of FAST'17's machine.
const FAST17_MEMORY: u64 = 4 * GIB;

/// `bytes * factor` in whole MiB, at least one.
fn scaled_bytes(bytes: u64, factor: f64) -> u64 {
    let mib = (bytes as f64 * factor / MIB as f64).round();
    (mib as u64).max(1).saturating_mul(MIB)
}

fn scaled_count(count: u64, factor: f64) -> u64 {
    ((count as f64 * factor).round() as u64).max(1)
}

/// All 45 rows of FAST'17 at `scale` (1 is the paper's size).
#[must_use]
pub fn fast17(scale: f64) -> Vec<Row> {
    use Access::{RandRead, RandWrite, SeqRead, SeqWrite};
    use WorkloadClass as C;
    let groups = [
        (SeqRead, 1, 1, C::SequentialRead),
        (SeqRead, 32, 1, C::SequentialRead),
        (SeqRead, 32, 32, C::SequentialRead),
        (RandRead, 1, 1, C::RandomRead),
        (RandRead, 32, 1, C::RandomRead),
        (SeqWrite, 1, 1, C::SequentialWrite),
        (SeqWrite, 32, 32, C::SequentialWrite),
        (RandWrite, 1, 1, C::RandomWrite),
        (RandWrite, 32, 1, C::RandomWrite),
    ];
    let mut rows = Vec::new();
    for (access, threads, files, class) in groups {
        for io_kib in [4, 32, 128, 1024] {
            let total = if files == 1 { 60 * GIB } else { 64 * GIB };
            // A whole number of MiB per file, so that every I/O size divides it.
            let bytes = scaled_bytes(total / files, scale).saturating_mul(files);
            let spec = FioSpec {
                access,
                threads,
                files,
                io_kib,
                bytes,
            };
            rows.push(Row {
                id: format!("f{:02}", rows.len() + 1),
                fast17: Some(rows.len() as u32 + 1),
                figure: None,
                x: None,
                name: format!("{} {}", spec.name(), size_name(io_kib)),
                class,
                kind: Kind::Fio(spec),
                memory: (FAST17_MEMORY as f64 * scale) as u64,
            });
        }
    }
    for (name, text) in WORKLOADS {
        let server = name.ends_with("server");
        rows.push(Row {
            id: format!("f{:02}", rows.len() + 1),
            fast17: Some(rows.len() as u32 + 1),
            figure: None,
            x: None,
            name: name.to_owned(),
            class: if server { C::Server } else { C::Metadata },
            kind: Kind::Wml {
                text: text.to_owned(),
                scale,
            },
            memory: (FAST17_MEMORY as f64 * scale) as u64,
        });
    }
    rows
}

fn size_name(kib: u64) -> String {
    if kib >= 1024 {
        format!("{}MB", kib / 1024)
    } else {
        format!("{kib}KB")
    }
}

/// The experiments of SAC'10 at `scale` (1 is the paper's size).
#[must_use]
pub fn sac10(scale: f64) -> Vec<Row> {
    let files = scaled_count(5_000, scale);
    let transactions = scaled_count(50_000, scale).max(TRANSACTIONS_MIN);
    let postmark = Kind::Postmark {
        files,
        transactions,
    };
    let copy = Kind::Copy {
        bytes: scaled_bytes(1_126 * MIB, scale),
    };
    let macros = [
        ("s4", "4", "PostMark", WorkloadClass::Server, postmark),
        (
            "s5",
            "5",
            "cp of 1.1 GB",
            WorkloadClass::SequentialWrite,
            copy,
        ),
    ];
    let mut rows: Vec<Row> = buffer_rows(scale).collect();
    rows.extend(bonnie_rows(scale));
    rows.extend(macros.map(|(id, figure, name, class, kind)| {
        let memory = (2.0 * GIB as f64 * scale) as u64;
        sac10_row(id.into(), figure, None, name.into(), class, kind, memory)
    }));
    rows
}

fn sac10_row(
    id: String,
    figure: &str,
    x: Option<f64>,
    name: String,
    class: WorkloadClass,
    kind: Kind,
    memory: u64,
) -> Row {
    Row {
        id,
        fast17: None,
        figure: Some(figure.to_owned()),
        x,
        name,
        class,
        kind,
        memory,
    }
}

/// The memory of SAC'10's machine for figures 2 and 3.
fn sac10_memory(scale: f64) -> u64 {
    (512.0 * MIB as f64 * scale) as u64
}

fn buffer_rows(scale: f64) -> impl Iterator<Item = Row> {
    [4_u64, 8, 16, 32, 64, 128].into_iter().map(move |kib| {
        // A 16 MB file is written in milliseconds: it is the number of times that is scaled.
        let times = scaled_count(16, scale);
        let kind = Kind::BufferWrite {
            buffer: kib << 10,
            bytes: 16 * MIB,
            times,
        };
        let name = format!("write 16 MB, {kib} KB buffer");
        let class = WorkloadClass::SequentialWrite;
        sac10_row(
            format!("s2-{kib}"),
            "2",
            Some(kib as f64),
            name,
            class,
            kind,
            sac10_memory(scale),
        )
    })
}

fn bonnie_rows(scale: f64) -> impl Iterator<Item = Row> {
    Phase::ALL.into_iter().flat_map(move |(phase, figure)| {
        let reads = phase.reads();
        let class = if reads {
            WorkloadClass::SequentialRead
        } else {
            WorkloadClass::SequentialWrite
        };
        [25_u64, 50, 100, 200, 300, 400, 500]
            .into_iter()
            .map(move |mb| {
                let kind = Kind::Bonnie {
                    phase,
                    bytes: scaled_bytes(mb * MIB, scale),
                };
                let name = format!("Bonnie {}, {mb} MB", phase.title());
                let id = format!("s{figure}-{mb}");
                sac10_row(
                    id,
                    figure,
                    Some(mb as f64),
                    name,
                    class,
                    kind,
                    sac10_memory(scale),
                )
            })
    })
}

/// `quick` runs FAST'17's rows of data at one part in this many of their size.
pub const QUICK_DATA: f64 = 400.0;
/// `quick` runs FAST'17's rows of files, each of which costs a mount many times what it costs natively,
/// at one part in this many of their size.
pub const QUICK_FILES: f64 = 1200.0;
/// `quick` runs SAC'10's rows at one part in this many of their size.
pub const QUICK_SAC10: f64 = 16.0;
/// But for PostMark, for the same reason as rows of files.
pub const QUICK_POSTMARK: f64 = 64.0;

/// One row of each kind, small.
#[must_use]
pub fn quick(scale: f64) -> Vec<Row> {
    let data = (
        fast17(scale / QUICK_DATA),
        &["f01", "f11", "f17", "f21", "f29"][..],
    );
    let files = (
        fast17(scale / QUICK_FILES),
        &["f37", "f40", "f41", "f43", "f44", "f45"][..],
    );
    let figures = (
        sac10(scale / QUICK_SAC10),
        &["s2-32", "s3a-100", "s3f-100", "s5"][..],
    );
    let postmark = (sac10(scale / QUICK_POSTMARK), &["s4"][..]);
    let wanted = [data, files, figures, postmark].map(|(mut rows, wanted)| {
        rows.retain(|row| wanted.contains(&row.id.as_str()));
        rows
    });
    wanted.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cgroup;

    #[test]
    fn rows_are_those_of_the_paper() {
        let rows = fast17(1.0);
        let paper = crate::reference::fast17();
        assert_eq!(rows.len(), paper.len());
        for (row, paper) in rows.iter().zip(&paper) {
            assert_eq!(row.fast17, Some(paper.row));
            assert!(
                row.name.starts_with(&paper.workload),
                "{} {}",
                row.name,
                paper.workload
            );
            if let Kind::Fio(spec) = &row.kind {
                assert_eq!(Some(spec.io_kib as u32), paper.io_kib);
            }
        }
    }

    #[test]
    fn postmark_gets_as_many_transactions_as_it_needs() {
        let fewest = sac10(1e-9).into_iter().find_map(|row| match row.kind {
            Kind::Postmark { transactions, .. } => Some(transactions),
            _ => None,
        });
        assert_eq!(fewest, Some(TRANSACTIONS_MIN));
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        let place = directory.path().display();
        let text = format!(
            "set location {place}\nset number 10\nset transactions {TRANSACTIONS_MIN}\nrun\nquit\n"
        );
        std::fs::write(&script, text).unwrap();
        match std::process::Command::new("postmark").arg(&script).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => crate::terminal::warn(&format!("left out: postmark: {error}")),
        }
    }

    #[test]
    fn identifiers_are_unique() {
        for rows in [fast17(0.01), sac10(0.1), quick(1.0)] {
            let mut ids: Vec<&str> = rows.iter().map(|r| r.id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), rows.len());
        }
    }

    #[test]
    fn buffers_of_all_threads_come_on_top() {
        let rows = fast17(0.01);
        let buffers = |id: &str| rows.iter().find(|row| row.id == id).unwrap().buffers();
        assert_eq!(buffers("f01"), 4 << 10);
        assert_eq!(buffers("f12"), 32 << 20);
        assert_eq!(buffers("f37"), 4 << 10);
        assert_eq!(buffers("f38"), 32 * (4 << 10));
        assert_eq!(buffers("f43"), 50 * (128 << 10));
    }

    #[test]
    fn rows_of_any_scale_have_a_size() {
        for scale in [f64::MIN_POSITIVE, f64::MAX] {
            for row in [fast17(scale), sac10(scale), quick(scale)].concat() {
                assert!(row.kind.bytes() > 0 && row.kind.inodes() > 0, "{}", row.id);
            }
        }
    }

    #[test]
    fn data_rows_keep_the_ratio_of_data_to_memory() {
        for row in fast17(0.016) {
            if let Kind::Fio(spec) = &row.kind {
                let ratio = spec.bytes as f64 / row.memory.max(cgroup::LEAST) as f64;
                assert!((14.0..17.0).contains(&ratio), "{}: {ratio}", row.name);
            }
        }
    }
}
