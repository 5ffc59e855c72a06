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
