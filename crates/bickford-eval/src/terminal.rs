//! What is said to whoever started the program, also when nobody reads it any more: `println` and `eprintln`
//! panic then, with mounts still to be taken down.

use std::io::{self, Write};

use crate::error::EvalError;

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
pub(crate) fn say(text: &str) -> Result<(), EvalError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(EvalError::io("standard output")(error))
        }
        _ => Ok(()),
    }
}

/// A line on standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "bickford eval: {text}");
}
