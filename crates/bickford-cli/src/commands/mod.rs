//! The commands, one file each.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod layers;
pub(crate) mod man;
pub(crate) mod mount;
pub(crate) mod stat;
mod target;
pub(crate) mod trace;
pub(crate) mod unmount;

use std::io::{self, Write as _};

use crate::cli::Failure;

/// Writes to standard output, also when nobody reads it any more: a reader that has seen enough (`| head`) is
/// no failure, and `println` would panic.
fn say(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Without characters that a terminal obeys: names of processes, and what another user's daemon says, may
/// have them.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(shown).collect()
}
