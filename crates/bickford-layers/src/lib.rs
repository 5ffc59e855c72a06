//! Layers for any Bickford file system, and what it takes to ask for them by name.
//!
//! | layer | what it does |
//! |---|---|
//! | [`log`] | writes down each operation with its path, as text or JSON |
//! | [`readonly`] | refuses every change with EROFS |
//! | [`stats`] | counts operations, errors and bytes, and measures latency |
//! | [`fault`] | answers chosen operations with an error, the same ones for the same seed |
//! | [`delay`] | holds answers back by a distribution |
//! | [`throttle`] | bounds bandwidth and operations per second of each user |
//! | [`crypt`] | encrypts contents and names |
//!
//! ```
//! use bickford_layers::{LayerSpec, build};
//!
//! # struct Below;
//! # impl bickford::FileSystem for Below {}
//! let specs = ["stats", "fault:op=read,errno=EIO,probability=0.01,seed=7"];
//! let specs: Vec<LayerSpec> = specs.iter().map(|spec| spec.parse()).collect::<Result<_, _>>()?;
//! let (file_system, summary) = build(&specs, Box::new(Below))?;
//! println!("{summary}");
//! # drop(file_system);
//! # Ok::<(), bickford_layers::LayerError>(())
//! ```
//!
//! The first spec is the outermost layer. Each of these layers but `crypt` takes `switches=FILE` as
//! well, a TOML file that turns pre-calls, calls and post-calls on and off ([`bickford::layer::Switches`]).

mod bucket;
pub mod crypt;
pub mod delay;
mod distribution;
mod errno;
pub mod fault;
pub mod files;
pub mod log;
mod names;
pub mod readonly;
mod registry;
mod spec;
pub mod stats;
pub mod throttle;
mod timer;

pub use registry::{Built, Constructor, Entry, Registry, Reporter, Shown, Summary, build, stack};
pub use spec::{LayerSpec, Options, parse_duration, parse_size};

/// A layer that cannot be made as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layer {layer}: {message}")]
pub struct LayerError {
    layer: String,
    message: String,
}

impl LayerError {
    /// About the layer of that name.
    pub fn new(layer: &str, message: impl std::fmt::Display) -> Self {
        Self {
            layer: layer.to_owned(),
            message: message.to_string(),
        }
    }
}
