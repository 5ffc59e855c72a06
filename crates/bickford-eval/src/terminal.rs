//! What is said to whoever started the evaluation.

use std::io::{self, Write};

use bickford_program::terminal::{escaped, write_out};

use crate::error::EvalError;

pub(crate) fn say(text: &str) -> Result<(), EvalError> {
    write_out(text.as_bytes()).map_err(EvalError::io("standard output"))
}

/// Each line without what a terminal obeys: names, errors and notes may be of a record of others, or be what a program said.
pub(crate) fn harmless(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// A line on standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "bickford eval: {}", harmless(text));
}
