//! From a decoded request to the file system's method.

mod activity;
mod caller;
mod context;
mod crossing;
mod in_flight;
mod interrupt;
mod limits;
mod running;
mod server;

pub(crate) use activity::Activity;
pub(crate) use context::may_wait;
pub use context::{Context, DetachedContext};
pub(crate) use crossing::{Crosser, Crossing};
pub use in_flight::{InFlight, InFlightRequest};
pub use interrupt::Interrupt;
pub use limits::KernelLimits;
pub(crate) use running::{Method, Running};
pub use server::{Admission, Negotiated, Server, ServerConfig, Worker};
pub(crate) use server::{Shared, Tables};
