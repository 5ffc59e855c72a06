//! Workloads, measurement and report that tell what a user-space file system costs.
//!
//! File systems are driven by commands that mount them; nothing here links one. [`run`] is the whole of
//! `bickford eval`: it takes [`EvalArgs`] and leaves a directory of results with a report.

mod args;
mod command;
pub mod engine;
mod error;
pub mod fio;
pub mod host;
mod java;
mod limits;
pub mod measure;
mod postmark;
pub mod reference;
pub mod report;
pub mod results;
pub mod room;
pub mod rows;
pub mod runner;
mod self_check;
mod signals;
pub mod stats;
mod sys;
pub mod target;
mod terminal;
pub mod wml;
mod worker;

pub use args::{EvalArgs, Suite, Ui};
pub use command::run;
pub use error::EvalError;
