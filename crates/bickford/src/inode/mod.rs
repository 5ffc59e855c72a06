//! The table of names and inodes behind the path API, and the claims that keep paths right.

mod claim;
mod queue;
mod table;
mod tree;

pub(crate) use claim::{Claim, ClaimedName, Want};
pub(crate) use table::{Found, Table};
pub(crate) use tree::{EdgeId, Ending};
