//! A small, stable C interface to Bickford, for bindings of other languages.
//!
//! `include/bickford.h` is generated from this crate. A binding fills one
//! [`abi::bickford_callbacks`] with a function and a mask of the operations that it wants; requests
//! and answers are flat structures ([`abi::bickford_request`], [`abi::bickford_answer`]). A reply
//! may be taken out of its callback ([`deferred::bickford_reply_defer`]) and completed once, later,
//! by any thread. [`paths::bickford_mount_paths`] serves a file system whose requests name paths. Files for kernel pass-through are registered through it
//! ([`backing::bickford_reply_open_backing`]). [`abi::bickford_layer`] puts calls before and after those of StackFS.
//!
//! Sessions and deferred replies are numbers that are looked up: one that is used after its end is
//! an error. [`program::bickford_program_run`] is all of a program's `main`. No panic leaves this crate. Errors are negative codes, and a message of the thread
//! ([`guard::bickford_last_error`]). What goes wrong while requests are served is told to who wants to hear
//! it ([`log::bickford_log`]).
#![allow(unsafe_code)]

pub mod abi;
mod answer;
mod answers;
pub mod backing;
pub mod caller;
pub mod deferred;
mod dispatch;
pub mod guard;
mod layer;
pub mod listing;
pub mod log;
pub mod notify;
mod operations;
mod options;
mod parameters;
pub mod paths;
pub mod program;
pub mod range;
pub mod session;
mod setattr;
pub mod stackfs;
mod tuning;
