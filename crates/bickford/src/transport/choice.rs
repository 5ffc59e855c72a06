//! Which transport a session is to use, and which one it uses.

use std::fmt;

/// The transport that a session is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring where it can be had, else /dev/fuse.
    #[default]
    Auto,
    /// read(2) and write(2) on /dev/fuse.
    DevFuse,
    /// io_uring; the session does not begin where it cannot be had.
    IoUring,
}

/// Whether threads that serve requests yield to callers.
///
/// A caller that is answered is woken on another CPU if its own is busy, as with the thread that answers,
/// and another is idle: on a machine that is not busy each request then has a CPU to wake. Threads that
/// yield are scheduled behind everything else (`SCHED_IDLE`, sched(7)) while callers are seen to move
/// about so, and the caller stays. Over io_uring alone, where a CPU's callers have threads of that CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Yielding {
    /// Where threads may change their policy and back: with `CAP_SYS_NICE`, or `RLIMIT_NICE`.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// read(2) and write(2) on /dev/fuse.
    DevFuse,
    /// FUSE over io_uring, a queue for each CPU.
    IoUring,
}

impl Transport {
    /// Its name: `dev_fuse` or `io_uring`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DevFuse => "dev_fuse",
            Self::IoUring => "io_uring",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The transport in force, and why it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportInForce {
    /// The transport.
    pub transport: Transport,
    /// Why, as one line: `io_uring=on: ...` or `io_uring=off: ...`.
    pub reason: String,
}

impl fmt::Display for TransportInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.transport, self.reason)
    }
}
