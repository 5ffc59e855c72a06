//! What a program does around the file system that it serves: its command line, its background, its log and its end.
//!
//! [`Program`] is all of it. The modules are its parts, for programs that want something else.

pub mod apart;
pub mod background;
pub mod carrying;
pub mod elsewhere;
pub mod failure;
pub mod flags;
pub mod helper;
pub mod layers;
pub mod lift;
pub mod logging;
pub mod notify;
mod program;
pub mod remount;
pub mod service;
pub mod signals;
pub mod statistics;
pub mod status;
mod sys;
pub mod terminal;
pub mod waiting;
mod words;

pub use bickford_layers::{parse_duration, parse_size};
pub use failure::Failure;
pub use program::{Invocation, Mounted, NoArguments, Opened, Program};
pub use status::Status;
