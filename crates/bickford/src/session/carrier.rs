//! Chooses the transport of a session and starts it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bickford_abi::InitFlags;

use super::SessionConfig;
use crate::dispatch::Server;
use crate::transport::dev_fuse::{Channel, End, Pool};
use crate::transport::io_uring::{Prepared, Rings, StartError, io_uring_obstacle};
use crate::transport::{Transport, TransportChoice, TransportInForce, Workers, abort};

/// What carries requests.
#[derive(Debug)]
pub(super) enum Carrier {
    DevFuse(Arc<Pool>),
    IoUring(Rings),
    /// A [`Driver`](crate::session::Driver) of the caller's.
    Caller(Arc<End>),
}

impl Carrier {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::DevFuse(pool) => pool.len(),
            Self::IoUring(rings) => rings.len(),
            Self::Caller(_) => 0,
        }
    }

    /// The most threads that handle requests, in all.
    pub(super) fn workers(&self) -> usize {
        match self {
            Self::DevFuse(pool) => pool.workers(),
            Self::IoUring(rings) => rings.workers(),
            Self::Caller(_) => 0,
        }
    }

    /// Says that fewer threads are used than were asked for. The default asks for no number.
    pub(super) fn warn_of_fewer(&self, asked: Workers) {
        let used = match self {
            Self::DevFuse(pool) => pool.workers(),
            Self::IoUring(rings) => rings.workers_of_queue(),
            Self::Caller(_) => return,
        };
        let asked_for = asked.max;
        if asked == Workers::default() || used >= asked_for {
            return;
        }
        match self {
            Self::DevFuse(_) => tracing::warn!(
                "workers: {used} threads are used of the {asked_for} that were asked for; a session has no more"
            ),
            Self::IoUring(_) => tracing::warn!(
                "workers: over io_uring {used} threads for each CPU are used of the {asked_for} that were asked for; \
                 16 are the most, and all together take three quarters of the descriptors (ulimit -n)"
            ),
            Self::Caller(_) => {}
        }
    }

    pub(super) fn queues(&self) -> usize {
        match self {
            Self::DevFuse(_) | Self::Caller(_) => 1,
            Self::IoUring(rings) => rings.queues(),
        }
    }

    pub(super) fn yielding(&self) -> &str {
        match self {
            Self::DevFuse(_) | Self::Caller(_) => "off: only over io_uring",
            Self::IoUring(rings) => rings.yielding(),
        }
    }

    pub(super) fn join(&self) {
        match self {
            Self::DevFuse(pool) => pool.join(),
            Self::IoUring(rings) => rings.join(),
            Self::Caller(end) => end.wait(),
        }
    }
}

/// What is ready before INIT.
pub(super) struct Plan {
    rings: Result<Prepared, String>,
    insists: bool,
    workers: Workers,
    connection: Option<u32>,
}

impl Plan {
    pub(super) fn new(
        device: &Arc<OwnedFd>,
        config: &SessionConfig,
        connection: Option<u32>,
    ) -> io::Result<Self> {
        let insists = config.transport == TransportChoice::IoUring;
        let rings = match config.transport {
            TransportChoice::DevFuse => Err("/dev/fuse was chosen".into()),
            TransportChoice::Auto | TransportChoice::IoUring => prepare(device, config, connection),
        };
        if let (true, Err(reason)) = (insists, &rings) {
            let text = format!("transport io_uring cannot be had: {reason}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self {
            rings,
            insists,
            workers: config.workers,
            connection,
        })
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.rings.is_ok()
    }

    /// Starts what INIT settled.
    pub(super) fn start(
        self,
        server: &Arc<Server>,
        device: &Arc<OwnedFd>,
    ) -> io::Result<(Carrier, TransportInForce)> {
        let settled = server
            .negotiated()
            .is_some_and(|settled| settled.protocol.flags.contains(InitFlags::OVER_IO_URING));
        let reason = match self.rings {
            Ok(prepared) if settled => match prepared.start(server) {
                Ok(rings) => return Ok(with_rings(rings)),
                Err(StartError::Broken(error)) => return Err(error),
                Err(StartError::Refused(error)) => {
                    tracing::warn!("io_uring: {error}; going on over /dev/fuse");
                    error.to_string()
                }
            },
            Ok(_) => "the kernel did not offer it at INIT, or the file system refused it".into(),
            Err(reason) => reason,
        };
        let channel = Channel::new(Arc::clone(device));
        if self.insists {
            if let Err(error) = abort::abort(self.connection, device) {
                tracing::warn!("{error}");
            }
            let text = format!("transport io_uring cannot be had: {reason}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let pool = Pool::start(Arc::clone(server), channel, self.connection, self.workers)?;
        let transport = TransportInForce {
            transport: Transport::DevFuse,
            reason: format!("io_uring=off: {reason}"),
        };
        Ok((Carrier::DevFuse(pool), transport))
    }
}

fn with_rings(rings: Rings) -> (Carrier, TransportInForce) {
    let transport = TransportInForce {
        transport: Transport::IoUring,
        reason: format!("io_uring=on: {} queues", rings.queues()),
    };
    (Carrier::IoUring(rings), transport)
}

fn prepare(
    device: &Arc<OwnedFd>,
    config: &SessionConfig,
    connection: Option<u32>,
) -> Result<Prepared, String> {
    if config.workers.max == 1 {
        return Err("one worker handles one request after the other; \
                    io_uring needs threads for every CPU"
            .into());
    }
    match io_uring_obstacle() {
        Some(obstacle) => Err(obstacle),
        None => Prepared::new(device, config.workers, config.yielding, connection)
            .map_err(|error| error.to_string()),
    }
}
