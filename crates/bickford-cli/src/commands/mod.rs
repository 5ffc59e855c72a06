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
    bickford_program::terminal::write_out(text)
        .map_err(|error| Failure::new(format!("write to standard output: {error}")))
}
