//! What one should know, apart from the reference of each item.
//!
//! - [`concepts`]: nodes, names, handles, requests and answers.
//! - [`caching`]: what the kernel remembers, for how long, and how to make it forget.
//! - [`lifetimes`]: what lives how long: lookups, handles, replies, sessions.
//! - [`deadlocks`]: ways to hang, and how to keep out of them.
//!
//! The guide in `docs/guide` leads from a first file system to a layer and to measuring it.

pub mod concepts {
    #![doc = include_str!("concepts.md")]
}

pub mod caching {
    #![doc = include_str!("caching.md")]
}

pub mod lifetimes {
    #![doc = include_str!("lifetimes.md")]
}

pub mod deadlocks {
    #![doc = include_str!("deadlocks.md")]
}
