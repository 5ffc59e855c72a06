//! What happened to requests, and when: statistics that are always on, events for whoever asks,
//! and the kernel's own view of any FUSE mount.

pub mod control;
mod events;
pub mod kernel;
mod recorder;
mod snapshot;
mod stages;
mod stamp;

pub use events::{Event, Events};
pub use recorder::{BUCKETS, OpcodeStats, Recorder, STAGES, Stats};
pub use snapshot::{InFlightRow, OpcodeRow, Snapshot};
pub use stages::Stages;
pub(crate) use stages::thread_id;
pub use stamp::Stamp;
