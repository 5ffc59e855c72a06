//! `log`: writes down each operation with its path, as text or JSON.
//!
//! | option | meaning |
//! |---|---|
//! | `file=PATH` | where to, for the daemon's user alone where it is new; standard error by default, which a daemon in the background has not |
//! | `format=text` or `format=json` | one line of text, or one JSON object, for each operation; text by default |
//! | `ops=A\|B` | which operations; all by default |
//! | `paths=false` | node ids alone; saves the table of names |
//! | `data=true` | READ and WRITE are to come here: turns kernel pass-through off |
//! | `size=SIZE` | a regular file of this size is renamed to PATH.1 and a new one begun; 64M by default |
//! | `keep=N` | how many such files are kept; 5 by default |
//! | `buffer=N` | lines that may wait to be written; 8192 by default |
//!
//! A line is written when the operation has been answered. Writing is done by a thread of its own:
//! an operation never waits for the log. When more lines wait than `buffer`, further ones are
//! dropped, and the next line that is written says how many. At the end of the session everything
//! that waits is written, but to a FIFO that is full then. Devices and FIFOs are not rotated; a file that
//! logrotate(8) renamed is gone on with until it is full, and the one of its name then.
//!
//! # Format
//! Text: `TIME unique=N uid=N gid=N pid=N OPERATION PATH [-> NEW_PATH] [key=value ...] = RESULT in N us`.
//! JSON has the keys `time`, `unique`, `uid`, `gid`, `pid`, `op`, `node`, and as far as they apply
//! `path`, `new_path`, `name`, `xattr`, `handle`, `offset`, `length`, `flags`, `entry`, `opened`,
//! `bytes`, `error`, and `us`. Where a path is not known, `node` and `name` say what is meant; the
//! known path is the last one by which the node was found. In paths and names, control characters,
//! Unicode's separators of lines and paragraphs and what turns the direction of text ([`misleads`]),
//! backslashes, and bytes that are not UTF-8, are written as `\xNN`, so that no name can forge a
//! line.

mod output;
mod record;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use bickford::layer::{
    About, Done, Interest, Layer, Needs, OperationSet, Outcome, PostCalls, PreCalls,
};
use bickford::ops::{Directory, Forget, Readdirplus};
use bickford::{Errno, Negotiation};

use crate::LayerError;
use crate::names::{NAMING, Names};
use crate::registry::{Built, Entry, stack};
use crate::spec::{Options, parse_size};
use output::Rotation;
use record::Record;
pub use record::misleads;
use writer::Writer;

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "log",
    about: "writes down each operation with its path",
    options: &[
        (
            "file=PATH",
            "where to [standard error; needed in the background]",
        ),
        ("format=text|json", "lines of text or JSON objects [text]"),
        ("ops=A|B", "which operations [all]"),
        ("paths=false", "node ids alone"),
        (
            "data=true",
            "READ and WRITE must come here: no kernel pass-through",
        ),
        ("size=SIZE", "when a file is rotated [64M]"),
        ("keep=N", "how many rotated files are kept [5]"),
        ("buffer=N", "lines that may wait to be written [8192]"),
    ],
    constructor: construct,
};

#[derive(Debug)]
struct Log {
    operations: OperationSet,
    json: bool,
    data: bool,
    names: Option<Names>,
    writer: Arc<Writer>,
}

fn parse_full(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("each line would be a file; for a single one name a size that is never reached, such as 1000000G".to_owned()),
        size => Ok(size),
    }
}

fn construct(
    options: &mut Options<'_>,
    below: Box<dyn bickford::FileSystem>,
) -> Result<Built, LayerError> {
    let file = options.text("file")?.map(PathBuf::from);
    let rotation = Rotation {
        size: options.read("size", parse_full)?.unwrap_or(64 << 20),
        keep: options.number("keep")?.unwrap_or(5).min(10_000),
    };
    let buffer = options.number("buffer")?.unwrap_or(8192).clamp(1, 1 << 24);
    let json = options.word("format", ["text", "json"])? == "json";
    let about = format!(
        "{} to {}",
        if json { "JSON" } else { "text" },
        file.as_ref()
            .map_or("standard error".to_owned(), |path| path
                .display()
                .to_string())
    );
    let writer = Writer::new(file, rotation, usize::try_from(buffer).unwrap_or(1));
    let writer = Arc::new(writer.map_err(|error| options.error(error))?);
    let layer = Log {
        operations: options.operations("ops")?.unwrap_or(OperationSet::ALL),
        json,
        data: options.flag("data")?.unwrap_or(false),
        names: options.flag("paths")?.unwrap_or(true).then(Names::default),
        writer: Arc::clone(&writer),
    };
    stack(options, layer, below, about, Some(writer))
}

impl Log {
    fn write(&self, done: &Done, about: &About<'_>, outcome: &Outcome) {
        if !self.operations.contains(about.kind) {
            return;
        }
        let record = Record::new(done, about, outcome, self.names.as_ref());
        let line = if self.json {
            record.json()
        } else {
            record.text()
        };
        self.writer.put(line);
    }
}

impl PreCalls for Log {}

impl PostCalls for Log {
    fn every(&self, done: &Done, about: &About<'_>, outcome: &Outcome) -> Option<Errno> {
        // Removed and renamed names are written as they were.
        self.write(done, about, outcome);
        if let Some(names) = &self.names {
            names.observe(about, outcome);
        }
        None
    }

    fn readdirplus(&self, done: &Done, op: &Readdirplus, result: &mut Result<Directory, Errno>) {
        let outcome = bickford::layer::outcome(result);
        self.write(done, &bickford::layer::about(op), &outcome);
        if let (Some(names), Ok(listing)) = (&self.names, result) {
            names.observe_listing(op.node, listing);
        }
    }
}

impl Layer for Log {
    fn name(&self) -> &str {
        "log"
    }

    fn interest(&self) -> Interest {
        let naming = if self.names.is_some() {
            NAMING
        } else {
            OperationSet::NONE
        };
        Interest {
            timed: true,
            post: self.operations.with(naming),
            forget: self.names.is_some(),
            ..Interest::default()
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            data: self.data,
            because: "data=true".to_owned(),
            ..Needs::default()
        }
    }

    fn init(&self, _: &mut Negotiation) -> Result<(), Errno> {
        self.writer.start().map_err(|error| {
            tracing::error!(layer = "log", "no thread for the log: {error}");
            Errno::AGAIN
        })
    }

    fn destroy(&self) {
        self.writer.end();
    }

    fn forget(&self, forgets: &[Forget]) {
        if let Some(names) = &self.names {
            names.forget(forgets);
        }
    }
}
