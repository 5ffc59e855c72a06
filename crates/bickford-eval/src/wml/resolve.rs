//! Statements to a typed workload: names resolved, numbers read, attributes checked.

use std::collections::BTreeMap;

use super::parse::{Attribute, File, Item, Value, list};
use super::{Position, WmlError, check};

/// A set of files of one size in a tree of directories of one width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSet {
    /// Its name, also that of its directory under the directory under test.
    pub name: String,
    /// Number of files.
    pub entries: u64,
    /// Defined as a `file`, so one at every scale.
    pub single: bool,
    /// Size of each file in bytes.
    pub size: u64,
    /// Entries per directory.
    pub dirwidth: u64,
    /// Percentage of the files that exist before the run.
    pub prealloc_pct: u64,
}

impl FileSet {
    /// Files that exist before the run.
    #[must_use]
    pub fn existing(&self) -> u64 {
        self.entries.saturating_mul(self.prealloc_pct) / 100
    }
}

/// A process of the workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// How many of it run.
    pub instances: u64,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// A thread: a loop over flow operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// How many of it run.
    pub instances: u64,
    /// What it does in each turn.
    pub flowops: Vec<FlowOp>,
}

impl Thread {
    /// True where it ends by itself: after a count, or when its set has no more files to make, or to remove.
    pub(super) fn ends(&self) -> bool {
        let any = |of: fn(&Op) -> bool| self.flowops.iter().any(|f| of(&f.op));
        any(|op| matches!(op, Op::FinishOnCount { .. }))
            || any(|op| op.creates().is_some()) != any(|op| op.deletes().is_some())
    }
}

/// One flow operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowOp {
    /// What it does.
    pub op: Op,
    /// How often in each turn.
    pub iters: u64,
}

/// What a flow operation does. `fileset` is an index into [`Workload::filesets`], `fd` a slot of the
/// thread's descriptor table, `iosize` in bytes (0: the whole file at once).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    /// Creates a file of the set that does not exist.
    CreateFile { fileset: usize, fd: usize },
    /// Opens a file of the set that exists.
    OpenFile { fileset: usize, fd: usize },
    /// Writes the file from start to its set's size.
    WriteWholeFile { fd: usize, iosize: u64 },
    /// Reads the file from start to end.
    ReadWholeFile { fd: usize, iosize: u64 },
    /// Appends `iosize` bytes, or with `random` between 1 and `iosize`. With a set and a closed slot,
    /// a file of the set is opened first and stays open.
    Append {
        fd: usize,
        iosize: u64,
        fileset: Option<usize>,
        random: bool,
    },
    /// Closes the file.
    CloseFile { fd: usize },
    /// Removes a file of the set that exists and that nobody has open.
    DeleteFile { fileset: usize },
    /// Asks for the attributes of a file of the set that exists.
    StatFile { fileset: usize },
    /// fsync(2).
    Fsync { fd: usize },
    /// Ends the run when all threads together have done `value` flow operations.
    FinishOnCount { value: u64 },
    /// No limit, since there is no event generator.
    OpsLimit,
}

impl Op {
    /// The set that it makes a file of.
    pub(crate) fn creates(&self) -> Option<usize> {
        match self {
            Self::CreateFile { fileset, .. } => Some(*fileset),
            _ => None,
        }
    }

    /// The set that it removes a file of.
    pub(crate) fn deletes(&self) -> Option<usize> {
        match self {
            Self::DeleteFile { fileset } => Some(*fileset),
            _ => None,
        }
    }
}

/// A workload that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its sets of files; a `file` is a set of one.
    pub filesets: Vec<FileSet>,
    /// Its processes.
    pub processes: Vec<Process>,
    /// True where the run ends with the first thread that is done.
    pub quit_first_done: bool,
    /// When it ends, where nothing else ends it.
    pub seconds: Option<u64>,
    /// What was accepted without effect, and why.
    pub notes: Vec<String>,
}

impl Workload {
    /// Multiplies the number of files and of operations by `factor`; sizes, widths and threads stay.
    /// A set of many files keeps eight for each thread, so that no thread ends for want of one.
    pub fn scale(&mut self, factor: f64) {
        let scaled = |n: u64, least: u64| ((n as f64 * factor).round() as u64).max(least.min(n));
        let least = self.threads().saturating_mul(8).max(32);
        for set in self.filesets.iter_mut().filter(|set| !set.single) {
            set.entries = scaled(set.entries, least);
        }
        let threads = self.processes.iter_mut().flat_map(|p| &mut p.threads);
        for flowop in threads.flat_map(|t| &mut t.flowops) {
            if let Op::FinishOnCount { value } = &mut flowop.op {
                *value = scaled(*value, least);
            }
        }
    }

    /// True where no flow operation changes a file.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        let threads = self.processes.iter().flat_map(|p| &p.threads);
        threads.flat_map(|t| &t.flowops).all(|f| {
            !matches!(
                f.op,
                Op::CreateFile { .. }
                    | Op::WriteWholeFile { .. }
                    | Op::Append { .. }
                    | Op::DeleteFile { .. }
            )
        })
    }

    /// Threads of all processes.
    #[must_use]
    pub fn threads(&self) -> u64 {
        let of = |p: &Process| p.instances * p.threads.iter().map(|t| t.instances).sum::<u64>();
        self.processes.iter().map(of).sum()
    }

    /// Bytes of all files when every file exists.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.filesets
            .iter()
            .map(|s| s.entries.saturating_mul(s.size))
            .fold(0, u64::saturating_add)
    }

    /// Files of all sets.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.filesets
            .iter()
            .map(|s| s.entries)
            .fold(0, u64::saturating_add)
    }
}

/// A day: what lasts longer is a mistake.
const MAX_SECONDS: u64 = 86_400;

/// The highest descriptor slot a thread may use.
const MAX_FD: u64 = 63;
/// The most threads a workload may start, over all of its processes.
const MAX_INSTANCES: u64 = 4096;

/// Indices of the sets by their names.
type Sets = BTreeMap<String, usize>;

struct Attributes<'a> {
    item: &'a Item,
}

impl<'a> Attributes<'a> {
    fn new(item: &'a Item, known: &[&str]) -> Result<Self, WmlError> {
        for (index, attribute) in item.attributes.iter().enumerate() {
            let found = format!("`{}`", attribute.name);
            if !known.contains(&attribute.name.as_str()) {
                let expected = format!("an attribute of `{}`: {}", item.kind, list(known));
                return Err(WmlError::unknown(
                    attribute.at,
                    expected,
                    &attribute.name,
                    known,
                ));
            }
            if item
                .attributes
                .iter()
                .take(index)
                .any(|a| a.name == attribute.name)
            {
                return Err(WmlError::new(
                    attribute.at,
                    "each attribute once",
                    format!("{found} again"),
                ));
            }
        }
        Ok(Self { item })
    }

    fn find(&self, name: &str) -> Option<&'a Attribute> {
        self.item.attributes.iter().find(|a| a.name == name)
    }

    fn value(&self, name: &str) -> Result<Option<&'a Value>, WmlError> {
        let Some(attribute) = self.find(name) else {
            return Ok(None);
        };
        match &attribute.value {
            Some(value) => Ok(Some(value)),
            None => Err(WmlError::new(
                attribute.at,
                format!("`{name}=value`"),
                "no value",
            )),
        }
    }

    fn need(&self, name: &str) -> Result<&'a Value, WmlError> {
        let missing = || {
            let expected = format!("attribute `{name}` of `{}`", self.item.kind);
            WmlError::new(self.item.at, expected, "none")
        };
        self.value(name)?.ok_or_else(missing)
    }

    fn number(&self, name: &str, default: u64, most: u64) -> Result<u64, WmlError> {
        self.value(name)?
            .map_or(Ok(default), |value| number(value, most))
    }

    /// A number of what there is at least one of, also where nothing is said.
    fn count(&self, name: &str, default: u64, most: u64) -> Result<u64, WmlError> {
        self.value(name)?
            .map_or(Ok(default), |value| number_from(value, 1, most))
    }

    fn name(&self) -> Result<String, WmlError> {
        Ok(self.need("name")?.text.clone())
    }
}

fn number(value: &Value, most: u64) -> Result<u64, WmlError> {
    number_from(value, 0, most)
}

fn number_from(value: &Value, least: u64, most: u64) -> Result<u64, WmlError> {
    let wrong = || {
        let from = if least > 0 {
            format!("from {least} ")
        } else {
            String::new()
        };
        let expected = format!("a number {from}up to {most}, optionally with k, m, g or t");
        WmlError::new(value.at, expected, format!("`{}`", value.text))
    };
    let digits = value
        .text
        .trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match value.text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1_u64 << 40,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count
        .checked_mul(unit)
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(wrong)
}

pub(super) fn resolve(file: &File) -> Result<Workload, WmlError> {
    let mut workload = Workload {
        filesets: Vec::new(),
        processes: Vec::new(),
        quit_first_done: file.quit_first_done,
        seconds: None,
        notes: Vec::new(),
    };
    let mut sets = Sets::new();
    for item in file.items.iter().filter(|i| i.kind != "process") {
        let set = fileset(item)?;
        let index = workload.filesets.len();
        if sets.insert(set.name.clone(), index).is_some() {
            let found = format!("`{}` again", set.name);
            return Err(WmlError::new(
                item.at,
                "a name of its own for each set",
                found,
            ));
        }
        workload.filesets.push(set);
    }
    for item in file.items.iter().filter(|i| i.kind == "process") {
        let process = process(item, &sets, &mut workload.notes)?;
        workload.processes.push(process);
        if workload.threads() > MAX_INSTANCES {
            return Err(WmlError::new(
                item.at,
                format!("at most {MAX_INSTANCES} threads in all processes"),
                workload.threads().to_string(),
            ));
        }
    }
    if workload.processes.is_empty() {
        let start = Position { line: 1, column: 1 };
        return Err(WmlError::new(
            start,
            "a `define process` in the file",
            "none",
        ));
    }
    check::files(file, &workload)?;
    if let Some(endless) = check::endless(file, &workload) {
        let Some(seconds) = &file.seconds else {
            let expected = "`flowop finishoncount`, or `run SECONDS` after the processes, since nothing else ends this thread";
            return Err(WmlError::new(endless.at, expected, "neither"));
        };
        workload.seconds = Some(number(seconds, MAX_SECONDS)?.max(1));
    }
    Ok(workload)
}

fn fileset(item: &Item) -> Result<FileSet, WmlError> {
    let single = item.kind == "file";
    let known: &[&str] = if single {
        &["name", "path", "size", "prealloc"]
    } else {
        &[
            "name",
            "path",
            "entries",
            "size",
            "dirwidth",
            "prealloc",
            "dirgamma",
            "filesizegamma",
        ]
    };
    let attributes = Attributes::new(item, known)?;
    for gamma in ["dirgamma", "filesizegamma"] {
        if let Some(value) = attributes.value(gamma)?
            && number(value, u64::MAX)? != 0
        {
            let expected =
                format!("`{gamma}=0` (spread around the mean is not part of the subset)");
            return Err(WmlError::new(
                value.at,
                expected,
                format!("`{}`", value.text),
            ));
        }
    }
    let prealloc_pct = match attributes.find("prealloc") {
        None => 0,
        Some(Attribute { value: None, .. }) => 100,
        Some(Attribute {
            value: Some(value), ..
        }) => number(value, 100)?,
    };
    let name = attributes.name()?;
    if name.contains('/') || name.starts_with('.') {
        let at = attributes.need("name")?.at;
        return Err(WmlError::new(
            at,
            "a name that can be a directory's",
            format!("`{name}`"),
        ));
    }
    let entries = if single {
        1
    } else {
        number_from(attributes.need("entries")?, 1, 1 << 32)?
    };
    Ok(FileSet {
        name,
        entries,
        single,
        size: attributes.number("size", 0, 1 << 44)?,
        dirwidth: attributes.count("dirwidth", 1 << 32, 1 << 32)?,
        prealloc_pct,
    })
}

fn process(item: &Item, sets: &Sets, notes: &mut Vec<String>) -> Result<Process, WmlError> {
    let attributes = Attributes::new(item, &["name", "instances"])?;
    let mut threads = Vec::new();
    for child in &item.children {
        let attributes = Attributes::new(child, &["name", "instances", "memsize"])?;
        if let Some(memsize) = attributes.find("memsize") {
            notes.push(format!(
                "line {}: memsize has no effect, a thread's buffer is as large as its largest I/O",
                memsize.at.line
            ));
        }
        let flowops: Result<Vec<FlowOp>, WmlError> =
            child.children.iter().map(|op| flowop(op, sets)).collect();
        let flowops = flowops?;
        if flowops
            .iter()
            .all(|f| matches!(f.op, Op::FinishOnCount { .. } | Op::OpsLimit))
        {
            return Err(WmlError::new(
                child.at,
                "at least one flowop that does something",
                "none",
            ));
        }
        threads.push(Thread {
            name: attributes.name()?,
            instances: attributes.count("instances", 1, MAX_INSTANCES)?,
            flowops,
        });
    }
    if threads.is_empty() {
        return Err(WmlError::new(
            item.at,
            "at least one `thread` in the process",
            "none",
        ));
    }
    Ok(Process {
        name: attributes.name()?,
        instances: attributes.count("instances", 1, MAX_INSTANCES)?,
        threads,
    })
}

const KINDS: [&str; 12] = [
    "createfile",
    "openfile",
    "writewholefile",
    "readwholefile",
    "appendfile",
    "appendfilerand",
    "closefile",
    "deletefile",
    "statfile",
    "fsync",
    "finishoncount",
    "opslimit",
];

fn flowop(item: &Item, sets: &Sets) -> Result<FlowOp, WmlError> {
    let known: &[&str] = match item.kind.as_str() {
        "createfile" | "openfile" => &["name", "filesetname", "fd", "iters"],
        "deletefile" | "statfile" => &["name", "filesetname", "iters"],
        "writewholefile" | "readwholefile" => &["name", "fd", "iosize", "iters"],
        "appendfile" | "appendfilerand" => &["name", "fd", "iosize", "filesetname", "iters"],
        "closefile" | "fsync" => &["name", "fd", "iters"],
        "finishoncount" => &["name", "value"],
        "opslimit" => &["name"],
        other => {
            let expected = format!("a flowop of the subset: {}", list(&KINDS));
            return Err(WmlError::unknown(item.at, expected, other, &KINDS));
        }
    };
    let attributes = Attributes::new(item, known)?;
    attributes.name()?;
    let fd = attributes.number("fd", 0, MAX_FD)? as usize;
    let iosize = attributes.number("iosize", 0, 1 << 30)?;
    let set = |value: &Value| {
        sets.get(&value.text).copied().ok_or_else(|| {
            let names: Vec<&str> = sets.keys().map(String::as_str).collect();
            let expected = format!("the name of a defined set: {}", list(&names));
            WmlError::unknown(value.at, expected, &value.text, &names)
        })
    };
    let needed_set = || attributes.need("filesetname").and_then(set);
    let op = match item.kind.as_str() {
        "createfile" => Op::CreateFile {
            fileset: needed_set()?,
            fd,
        },
        "openfile" => Op::OpenFile {
            fileset: needed_set()?,
            fd,
        },
        "deletefile" => Op::DeleteFile {
            fileset: needed_set()?,
        },
        "statfile" => Op::StatFile {
            fileset: needed_set()?,
        },
        "writewholefile" => Op::WriteWholeFile { fd, iosize },
        "readwholefile" => Op::ReadWholeFile { fd, iosize },
        "closefile" => Op::CloseFile { fd },
        "fsync" => Op::Fsync { fd },
        "finishoncount" => Op::FinishOnCount {
            value: number_from(attributes.need("value")?, 1, 1 << 48)?,
        },
        "opslimit" => Op::OpsLimit,
        _ => {
            let iosize = number(attributes.need("iosize")?, 1 << 30)?;
            let fileset = attributes.value("filesetname")?.map(set).transpose()?;
            Op::Append {
                fd,
                iosize,
                fileset,
                random: item.kind == "appendfilerand",
            }
        }
    };
    // A thread of which nothing is done would never come to its end.
    let iters = attributes.count("iters", 1, 1 << 32)?;
    Ok(FlowOp { op, iters })
}
