//! The path API over the memory transport, where the test plays the kernel; and what both APIs have.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(unreachable_pub, reason = "the modules of a test are its own")]

mod client;
mod crossing;
mod export;
mod held;
mod listing;
mod mirror;
mod model;
mod options;
mod over_inodes;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod threads;
