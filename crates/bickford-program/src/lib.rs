//! What a program does around the file system that it serves.

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
pub mod remount;
pub mod service;
pub mod signals;
pub mod statistics;
pub mod status;
pub mod terminal;
pub mod waiting;

pub use failure::Failure;
