//! How requests come in and are handled, as flags.

use bickford::transport::{TransportChoice, Yielding};
use bickford::{LowLatency, SessionConfig};
use clap::ValueEnum;

/// How requests come in, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    /// io_uring where the kernel has it, else /dev/fuse
    Auto,
    /// Reads and writes of /dev/fuse
    Dev,
    /// io_uring, or nothing
    Uring,
}

impl TransportName {
    /// What it chooses.
    #[must_use]
    pub fn choice(self) -> TransportChoice {
        match self {
            Self::Auto => TransportChoice::Auto,
            Self::Dev => TransportChoice::DevFuse,
            Self::Uring => TransportChoice::IoUring,
        }
    }
}

/// Flags that trade what else the machine does for sooner answers.
#[derive(Debug, Clone, clap::Args)]
// Its name is free for a structure of the program.
#[group(skip)]
pub struct Tuning {
    /// Keep all CPUs of this machine from sleeping while requests come, and 0.1 s longer
    ///
    /// A request that has to wake a CPU is answered sooner; meanwhile the machine uses power, and a
    /// virtual machine its host, as if its CPUs were busy. Needs root. What the kernel reads and
    /// writes itself, past the daemon, sends no requests and gains nothing.
    #[arg(long)]
    pub low_latency: bool,

    /// Over io_uring, threads do not yield to callers: callers may be sent from CPU to CPU.
    #[arg(long)]
    pub no_yielding: bool,

    /// Most requests at once that nobody waits for, such as read-ahead and write-back; by default the file system's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_background: Option<u16>,

    /// From how many of these on the kernel holds back more; by default three quarters of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub congestion_threshold: Option<u16>,

    /// End the mount where a request has had no answer for so long; by default, and with 0, never
    ///
    /// Linux 6.15 is needed. It looks every 15 s: less counts as 15, and it may take 15 more. The sysctls
    /// fs.fuse.default_request_timeout and max_request_timeout bound it, also where it is never.
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<u16>,
}

impl Tuning {
    /// The configuration with what these ask for.
    #[must_use]
    pub fn apply(&self, mut config: SessionConfig) -> SessionConfig {
        if self.no_yielding {
            config.yielding = Yielding::Off;
        }
        let limits = &mut config.server.limits;
        limits.max_background = self.max_background.or(limits.max_background);
        limits.congestion_threshold = self.congestion_threshold.or(limits.congestion_threshold);
        limits.request_timeout = self.request_timeout.or(limits.request_timeout);
        match self.low_latency {
            true => config.low_latency(LowLatency::default()),
            false => config,
        }
    }
}
