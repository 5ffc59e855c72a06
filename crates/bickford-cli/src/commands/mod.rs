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

use crate::cli::Failure;

/// Writes to standard output.
fn say(text: &[u8]) -> Result<(), Failure> {
    bickford_eval::terminal::write_out(text)
        .map_err(|error| Failure::new(format!("write to standard output: {error}")))
}

/// Without characters that a terminal obeys: names of processes, and what another user's daemon says, may
/// have them.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(shown).collect()
}
