//! From bytes to borrowed, typed values; every read is bounded.

mod cursor;
mod extension;
mod request;

pub use cursor::{Cursor, Malformed};
pub use extension::{Extensions, SecurityContext};
pub use request::Incoming;
pub(crate) use request::opcode;
