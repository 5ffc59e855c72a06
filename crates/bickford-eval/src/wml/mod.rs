//! The subset of Filebench's Workload Model Language (WML) that the evaluation runs.
//!
//! ```text
//! file       = { statement }
//! statement  = "set" "$name" "=" value
//!            | "set" "mode" "quit" ( "alldone" | "firstdone" | "timeout" )
//!            | "define" ( "fileset" | "file" ) attributes
//!            | "define" "process" attributes "{" { thread } "}"
//!            | "echo" string | "run" [ seconds ] | "create" ( "files" | "fileset" | "filesets" )
//! thread     = "thread" attributes "{" { "flowop" kind attributes } "}"
//! attributes = attribute { "," attribute }
//! attribute  = name [ "=" value ]
//! value      = number [ "k" | "m" | "g" | "t" ] | "$name" | word | string
//! ```
//!
//! | item | attributes |
//! |---|---|
//! | fileset | `name` `path` `entries` `size` `dirwidth` `prealloc[=percent]`; `dirgamma=0`, `filesizegamma=0` |
//! | file | `name` `path` `size` `prealloc` |
//! | process | `name` `instances` |
//! | thread | `name` `instances` `memsize` (noted and ignored) |
//! | `createfile` `openfile` `deletefile` `statfile` | `name` `filesetname` `fd` (the first two) `iters` |
//! | `writewholefile` `readwholefile` | `name` `fd` `iosize` `iters` |
//! | `appendfile` `appendfilerand` | `name` `fd` `iosize` `filesetname` `iters` |
//! | `closefile` `fsync` | `name` `fd` `iters` |
//! | `finishoncount` | `name` `value` |
//! | `opslimit` | `name`; without an event generator it limits nothing, as in Filebench |
//!
//! What differs from Filebench: random variables (`cvar`, `eventgen`) are refused, so that all files
//! of a set have its size and all directories its width; every `path` is taken as the directory under
//! test; instances of a process are threads with descriptor tables of their own; the seconds
//! of `run` limit only work that would not end by itself, since work is fixed; `timeout` is as `alldone`; and a flow
//! operation on a set that can never have a file for it is refused.

mod check;
mod lex;
mod parse;
mod resolve;

use std::collections::BTreeMap;
use std::fmt;

use bickford::layer::nearest;

pub use resolve::{FileSet, FlowOp, Op, Process, Thread, Workload};

/// Where in the text something stands; both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// A text that is not a workload of the subset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WmlError {
    /// Where.
    pub position: Position,
    /// What would have been accepted there.
    pub expected: String,
    /// What stands there.
    pub found: String,
    /// The accepted name that is most like what stands there, where one is.
    pub nearest: Option<String>,
}

impl WmlError {
    fn new(position: Position, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            position,
            expected: expected.into(),
            found: found.into(),
            nearest: None,
        }
    }

    /// A name that is none of those that are known.
    fn unknown(position: Position, expected: String, name: &str, known: &[&str]) -> Self {
        Self {
            nearest: nearest(name, known.iter().copied()).map(str::to_owned),
            ..Self::new(position, expected, format!("`{name}`"))
        }
    }
}

impl fmt::Display for WmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(
            f,
            "line {line}, column {column}: expected {}, found {}",
            self.expected, self.found
        )?;
        match &self.nearest {
            Some(name) => write!(f, "; did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for WmlError {}

/// Reads a workload. `variables` (without `$`) take the place of the file's own `set` of that name.
///
/// # Errors
/// The first thing that is not in the subset: where it stands and what was expected.
pub fn parse(text: &str, variables: &BTreeMap<String, String>) -> Result<Workload, WmlError> {
    resolve::resolve(&parse::parse(lex::lex(text)?, variables)?)
}

/// The same at `factor` of its size, with the variables that it sets itself.
pub(crate) fn scaled(text: &str, factor: f64) -> Result<Workload, WmlError> {
    let mut workload = parse(text, &BTreeMap::new())?;
    workload.scale(factor);
    Ok(workload)
}

#[cfg(test)]
mod tests;
