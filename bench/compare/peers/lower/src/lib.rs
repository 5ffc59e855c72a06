//! The directory below, for adapters whose library brings no pass-through file system of its own: nodes
//! that are descriptors, and what can be asked of them. Also the options that all adapters in Rust take.

mod node;
mod options;

pub use node::{Change, Entry, Lower, Node};
pub use options::{Options, parse};
