//! Layers over a file system that writes down what it is asked, with the test as the kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod calls;
mod lookups;
mod subject;
