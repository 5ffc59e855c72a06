//! `Crypt` over a file system in memory whose bytes the test sees, alters, tears and refuses.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod crash;
mod lower;
mod model;
mod mount;
mod names;
mod tamper;

/// Whether there is time for many more cases.
fn full_length() -> bool {
    std::env::var("BICKFORD_LENGTH").is_ok_and(|length| length == "full")
}
