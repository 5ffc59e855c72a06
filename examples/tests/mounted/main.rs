//! Each example, mounted and used. Needs root or fusermount3, and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod archive;
mod example;
mod hello;
mod kv;
mod live;
mod memfs;
mod mirror;
mod program;
mod renames;
mod suites;
