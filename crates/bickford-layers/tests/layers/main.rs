//! Each layer over a small file system, with the test as the kernel.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod below;
mod deferred;
mod faults;
mod logs;
mod registry;
mod simple;
