//! The only home of unsafe code in this crate.
#![allow(unsafe_code)]

pub(crate) mod device;
pub(crate) mod mapping;
pub(crate) mod mount;
pub(crate) mod payloads;
pub(crate) mod process;
pub(crate) mod thread;
pub(crate) mod ticks;
pub(crate) mod uring;
