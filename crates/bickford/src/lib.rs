//! FUSE file systems in Rust: protocol, transports, sessions and mounting.
//!
//! Begin with [`docs::concepts`], and with [`path`] for a first file system; then see
//! [`docs::caching`], [`docs::lifetimes`] and [`docs::deadlocks`]. The command line and the background of a program
//! that serves one are the crate `bickford-program`.

pub mod backing;
pub mod decode;
pub mod dispatch;
pub mod docs;
pub mod filesystem;
mod id;
mod inode;
pub mod layer;
pub mod mount;
pub mod notify;
pub mod ops;
mod parked;
pub mod path;
pub mod reply;
pub mod session;
mod sys;
pub mod trace;
pub mod transport;

// The watchdog of the tests names the library as they do.
#[cfg(test)]
extern crate self as bickford;
#[cfg(test)]
#[path = "../tests/support/watchdog.rs"]
mod watchdog;

pub use bickford_abi as abi;
pub use rustix::fs::RenameFlags;
pub use rustix::io::Errno;

/// What a method of a file system answers: a value, or the errno that the caller gets.
pub type Result<T> = std::result::Result<T, Errno>;

pub use dispatch::{Context, DetachedContext, Interrupt};
pub use filesystem::blocking::Blocking;
pub use filesystem::{FileSystem, Negotiation};
pub use id::{FileHandle, Generation, LockOwner, NodeId, Unique};
pub use mount::MountOptions;
pub use notify::Notifier;
pub use reply::Reply;
pub use session::{Driver, LowLatency, MountedSession, Served, Session, SessionConfig};
pub use transport::Workers;

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
