//! What is measured: the rows, their work and the configurations that take part.

use serde::{Deserialize, Serialize};

/// What one client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// The first stat of a name that exists.
    Lookup,
    /// The first stat of a name that does not.
    LookupMissing,
    /// Stat of a few files, again and again.
    Stat,
    /// Stat of one missing name, again and again.
    StatMissing,
    /// Create, write 4 KiB, close.
    Create,
    /// Unlink.
    Unlink,
    /// Mkdir, rmdir.
    Mkdir,
    /// Rename to a new name in the same directory.
    Rename,
    /// Symlink, readlink.
    Symlink,
    /// List a directory, perhaps with a stat of each entry.
    List { stat: bool },
    /// Open, read 4 KiB, close; each file once, or a few files again and again.
    OpenRead { again: bool },
    /// Read files from start to end.
    ReadAll { block: usize },
    /// Write over files from start to end.
    WriteAll { block: usize },
    /// Read 4 KiB anywhere.
    ReadRandom,
    /// Write 4 KiB anywhere.
    WriteRandom,
    /// Append 4 KiB, fsync.
    AppendSync,
    /// Touch the pages of a shared mapping in turn.
    Fault,
}

/// Which files a row works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// Small files, shared by all that only read.
    Names,
    /// One directory of many entries.
    List,
    /// Large files.
    Large,
    /// A fresh directory for each configuration.
    Fresh,
    /// The same with small files in it.
    FreshFiles,
}

/// How a configuration handles opens and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// What a file system does that asks for nothing.
    Plain,
    /// Page cache, written through; every open is a request. Bickford's `fast` as it comes.
    Usual,
    /// Page cache, written back; opening costs no request where the library offers that.
    Cached,
    /// The kernel reads and writes the lower file.
    PassThrough,
    /// The same over `/dev/fuse`, for a library that has io_uring and serves each of its queues by one thread.
    DevFuse,
    /// No page cache.
    Direct,
    /// Bickford's `fast` without what the peers do not do either: extended attributes, and the kernel's
    /// checks of permissions.
    #[serde(alias = "WithoutXattr")]
    AsPeers,
    /// By the interface over paths, with names, attributes and contents cached for good, extended attributes, and the kernel's
    /// checks of permissions: each side gets the same requests.
    Paths,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) work: Work,
    pub(crate) set: Set,
    /// The lower file system is mounted anew for each configuration.
    pub(crate) cold: bool,
    pub(crate) clients: &'static [usize],
    /// Operations of all clients together; 0 where the files say how many.
    pub(crate) ops: u64,
    pub(crate) modes: &'static [Mode],
    /// The mode in which Bickford is judged.
    pub(crate) ours: Mode,
}

/// Small files that rows share, for each number of clients. So many that what happens once after mounting
/// does not show.
const FILES: u64 = 12_000;
/// Numbers of clients for which there are files.
pub(crate) const CLIENTS: &[usize] = &[1, 2, 8, 32];
const ONE: &[usize] = &[1];

const fn names(id: &'static str, title: &'static str, work: Work, set: Set, ops: u64) -> Row {
    Row {
        id,
        title,
        work,
        set,
        cold: false,
        clients: CLIENTS,
        ops,
        modes: &[Mode::Plain, Mode::Usual, Mode::AsPeers, Mode::Paths],
        ours: Mode::Usual,
    }
}

const fn files(id: &'static str, title: &'static str, work: Work, set: Set, ops: u64) -> Row {
    Row {
        modes: &[
            Mode::Plain,
            Mode::Usual,
            Mode::DevFuse,
            Mode::Cached,
            Mode::PassThrough,
            Mode::AsPeers,
            Mode::Paths,
        ],
        ..names(id, title, work, set, ops)
    }
}

const fn data(id: &'static str, title: &'static str, work: Work, ops: u64) -> Row {
    Row {
        modes: &[Mode::Plain, Mode::Cached, Mode::PassThrough, Mode::Paths],
        ours: Mode::PassThrough,
        ..names(id, title, work, Set::Large, ops)
    }
}

const fn direct(id: &'static str, title: &'static str, work: Work) -> Row {
    Row {
        modes: &[Mode::Direct],
        ours: Mode::Direct,
        ..names(id, title, work, Set::Large, 0)
    }
}

const fn once(row: Row) -> Row {
    Row {
        clients: ONE,
        ..row
    }
}

const fn opened(row: Row) -> Row {
    Row {
        modes: &[Mode::Plain, Mode::Usual, Mode::Cached],
        ours: Mode::Cached,
        ..row
    }
}

const fn from_cold(row: Row) -> Row {
    Row { cold: true, ..row }
}

const OPEN_AGAIN: Work = Work::OpenRead { again: true };
const OPEN_ONCE: Work = Work::OpenRead { again: false };

/// All rows, in the order in which they are measured.
pub(crate) const ROWS: &[Row] = &[
    names(
        "lookup",
        "LOOKUP, uncached",
        Work::Lookup,
        Set::Names,
        FILES,
    ),
    names(
        "lookup-missing",
        "LOOKUP of a missing name, uncached",
        Work::LookupMissing,
        Set::Names,
        FILES,
    ),
    names("stat", "stat, cached", Work::Stat, Set::Names, 200_000),
    names(
        "stat-missing",
        "stat of a missing name, cached",
        Work::StatMissing,
        Set::Names,
        200_000,
    ),
    files(
        "create",
        "create + write 4 KiB + close",
        Work::Create,
        Set::Fresh,
        8000,
    ),
    names("unlink", "unlink", Work::Unlink, Set::FreshFiles, 8000),
    names("mkdir", "mkdir + rmdir", Work::Mkdir, Set::Fresh, 6000),
    names("rename", "rename", Work::Rename, Set::FreshFiles, 8000),
    names(
        "symlink",
        "symlink + readlink",
        Work::Symlink,
        Set::Fresh,
        8000,
    ),
    names(
        "list",
        "readdir of 10,000 entries, again",
        Work::List { stat: false },
        Set::List,
        0,
    ),
    names(
        "list-stat",
        "readdir + stat of 10,000 entries, again",
        Work::List { stat: true },
        Set::List,
        0,
    ),
    once(names(
        "list-first",
        "readdir of 10,000 entries, first time",
        Work::List { stat: false },
        Set::List,
        1,
    )),
    once(names(
        "list-stat-first",
        "readdir + stat of 10,000 entries, first time",
        Work::List { stat: true },
        Set::List,
        1,
    )),
    opened(names(
        "open",
        "open + read 4 KiB + close, cached",
        OPEN_AGAIN,
        Set::Names,
        20_000,
    )),
    files(
        "append-fsync",
        "append 4 KiB + fsync",
        Work::AppendSync,
        Set::Fresh,
        320,
    ),
    data(
        "read-4k",
        "sequential read, 4 KiB",
        Work::ReadAll { block: 4 << 10 },
        0,
    ),
    data(
        "read-128k",
        "sequential read, 128 KiB",
        Work::ReadAll { block: 128 << 10 },
        0,
    ),
    data(
        "read-1m",
        "sequential read, 1 MiB",
        Work::ReadAll { block: 1 << 20 },
        0,
    ),
    data(
        "write-4k",
        "sequential write, 4 KiB",
        Work::WriteAll { block: 4 << 10 },
        0,
    ),
    data(
        "write-128k",
        "sequential write, 128 KiB",
        Work::WriteAll { block: 128 << 10 },
        0,
    ),
    data(
        "write-1m",
        "sequential write, 1 MiB",
        Work::WriteAll { block: 1 << 20 },
        0,
    ),
    data(
        "read-random",
        "random read, 4 KiB",
        Work::ReadRandom,
        40_000,
    ),
    data(
        "write-random",
        "random write, 4 KiB",
        Work::WriteRandom,
        20_000,
    ),
    data("fault", "page fault of a shared mapping", Work::Fault, 0),
    direct(
        "direct-read-1m",
        "read 1 MiB through the daemon",
        Work::ReadAll { block: 1 << 20 },
    ),
    direct(
        "direct-write-1m",
        "write 1 MiB through the daemon",
        Work::WriteAll { block: 1 << 20 },
    ),
    from_cold(opened(names(
        "open-cold",
        "open + read 4 KiB + close, nothing cached",
        OPEN_ONCE,
        Set::Names,
        600,
    ))),
];

impl Row {
    /// Whether each number of clients finds the file system mounted anew. Most peers need a descriptor for
    /// each inode that was seen, and have no more than the system's limit.
    pub(crate) fn mounts_anew(&self) -> bool {
        !matches!(self.set, Set::List | Set::Large)
    }
}

/// How much work a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scale {
    /// Divides the operations of a row.
    pub(crate) less: u64,
    /// Entries of the listed directory.
    pub(crate) entries: u64,
    /// Bytes of large files for each number of clients.
    pub(crate) large: u64,
}

impl Scale {
    pub(crate) const FULL: Self = Self {
        less: 1,
        entries: 10_000,
        large: 256 << 20,
    };
    /// For a look whether everything works; its figures are worth nothing.
    pub(crate) const QUICK: Self = Self {
        less: 10,
        entries: 1000,
        large: 32 << 20,
    };

    /// Operations of one of `clients` clients; at least one.
    pub(crate) fn share(&self, ops: u64, clients: usize) -> u64 {
        (ops / self.less / clients as u64).max(1)
    }

    /// Small files that each of `clients` clients finds.
    pub(crate) fn files(&self, clients: usize) -> u64 {
        self.share(FILES, clients)
    }

    /// Bytes of the large file of each of `clients` clients.
    pub(crate) fn bytes(&self, clients: usize) -> u64 {
        (self.large / clients as u64).max(1 << 20)
    }
}

/// The row called `id`.
pub(crate) fn find(id: &str) -> Result<&'static Row, String> {
    ROWS.iter().find(|row| row.id == id).ok_or_else(|| {
        let known: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        format!("`{id}` is no row; there are: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_judges_a_mode_that_takes_part() {
        for row in ROWS {
            let fast = row.ours == Mode::Usual;
            assert!(row.modes.contains(&row.ours) || fast, "{}", row.id);
            assert_eq!(ROWS.iter().filter(|other| other.id == row.id).count(), 1);
        }
        assert!(find("lookup").is_ok() && find("nothing").is_err());
    }
}
