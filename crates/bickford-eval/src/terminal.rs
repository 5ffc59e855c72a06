//! What is said to whoever started the program, also when nobody reads it any more: `println` and `eprintln`
//! panic then, with mounts still to be taken down.

use std::io::{self, Write};

use crate::error::EvalError;

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// What was said is lost for another reason, such as a full disk.
pub fn write_out(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn say(text: &str) -> Result<(), EvalError> {
    write_out(text.as_bytes()).map_err(EvalError::io("standard output"))
}

/// Text with the characters that a terminal obeys, which names of files may have, written as Rust writes them.
#[must_use]
pub fn escaped(text: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// The same of each line: names, errors and notes may be of a record of others, or be what a program said.
pub(crate) fn harmless(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// A line on standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "bickford eval: {}", harmless(text));
}
