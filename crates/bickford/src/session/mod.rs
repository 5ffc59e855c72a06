//! A session: one mounted file system, from INIT to its end.

mod backing_device;
mod carrier;
mod descriptors;
mod low_latency;
mod mounting;
mod read_ahead;
mod write_back_limit;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use bickford_abi::InitFlags;

use crate::dispatch::{Admission, KernelLimits, Negotiated, Server, ServerConfig};
use crate::filesystem::FileSystem;
use crate::notify::{self, Notifier};
use crate::trace::Stats;
use crate::transport::dev_fuse::{self, Channel};
use crate::transport::{Transport, TransportChoice, TransportInForce, Workers, Yielding, abort};

use carrier::{Carrier, Plan};
use low_latency::Holder;

pub use crate::transport::dev_fuse::{Driver, Served};
pub use low_latency::LowLatency;
pub use mounting::{MountedSession, SessionError};
pub use write_back_limit::write_back_share;

/// How a session is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionConfig {
    /// Threads that handle requests; over io_uring, those of each CPU, which are 2 to 16. Where fewer are used
    /// than were asked for, a warning says so.
    pub workers: Workers,
    /// How requests come in.
    pub transport: TransportChoice,
    /// Whether threads yield to callers.
    pub yielding: Yielding,
    /// Limits of the dispatcher.
    pub server: ServerConfig,
    /// Keeps all CPUs of the machine from sleeping while requests come, and a little longer; off by
    /// default. A request that has to wake a CPU then takes a fraction of the time, and the machine
    /// uses power as if its CPUs were busy. Needs root; without, the session begins all the same
    /// and says why.
    pub low_latency: Option<LowLatency>,
}

impl SessionConfig {
    /// Sets the number of threads.
    #[must_use]
    pub fn workers(mut self, workers: Workers) -> Self {
        self.workers = workers;
        self
    }

    /// Sets how requests come in.
    #[must_use]
    pub fn transport(mut self, transport: TransportChoice) -> Self {
        self.transport = transport;
        self
    }

    /// Sets whether threads yield to callers.
    #[must_use]
    pub fn yielding(mut self, yielding: Yielding) -> Self {
        self.yielding = yielding;
        self
    }

    /// Keeps the CPUs from sleeping while requests come.
    #[must_use]
    pub fn low_latency(mut self, wanted: LowLatency) -> Self {
        self.low_latency = Some(wanted);
        self
    }

    /// Sets limits of the kernel, whatever the file system would have.
    #[must_use]
    pub fn limits(mut self, limits: KernelLimits) -> Self {
        self.server.limits = limits;
        self
    }

    /// Sets whose requests are answered.
    #[must_use]
    pub fn access(mut self, access: Admission) -> Self {
        self.server.access = access;
        self
    }
}

/// A file system that is being served. It goes on until the file system is unmounted or the
/// connection aborted, also when this is dropped; then [`FileSystem::destroy`] is called.
#[derive(Debug)]
pub struct Session {
    server: Arc<Server>,
    /// Number of the connection, where it is known.
    connection: Option<u32>,
    /// For as long as threads serve it.
    device: Weak<OwnedFd>,
    carrier: Carrier,
    transport: TransportInForce,
    notify: Mutex<Option<JoinHandle<()>>>,
    holder: Mutex<Option<Holder>>,
    low_latency: String,
}

impl Session {
    /// Serves `filesystem` over a mounted descriptor of /dev/fuse. When this returns, INIT is done
    /// and requests are being answered. `O_NONBLOCK` is taken from the descriptor and its duplicates.
    ///
    /// # Errors
    /// When the connection ends before INIT, the file system refuses to begin (with its errno) or
    /// panics, or threads cannot be started.
    pub fn start(
        filesystem: impl FileSystem,
        device: impl Into<OwnedFd>,
        config: SessionConfig,
    ) -> io::Result<Self> {
        let device = device.into();
        let connection = abort::connection(&device);
        Self::begin(filesystem, device, config, connection)
    }

    fn begin(
        filesystem: impl FileSystem,
        device: OwnedFd,
        config: SessionConfig,
        connection: Option<u32>,
    ) -> io::Result<Self> {
        descriptors::make_room(&device);
        descriptors::make_waiting(&device)?;
        let device = Arc::new(device);
        // Before rings have taken the last threads that there may be: without them there is /dev/fuse.
        let sender = notify::sender()?;
        let plan = Plan::new(&device, &config, connection)?;
        let server = initialized(filesystem, &device, &config, plan.is_prepared())?;
        Self::served(&server, &device, config, connection, sender, || {
            plan.start(&server, &device)
        })
    }

    /// As [`Session::begin`], with the threads to be those of whoever has the driver.
    fn begin_driven(
        filesystem: impl FileSystem,
        device: OwnedFd,
        config: SessionConfig,
        connection: Option<u32>,
    ) -> io::Result<(Self, Driver)> {
        if config.transport == TransportChoice::IoUring {
            let text =
                "transport io_uring cannot be had: the caller handles requests, over /dev/fuse";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        descriptors::make_room(&device);
        descriptors::make_waiting(&device)?;
        let device = Arc::new(device);
        let sender = notify::sender()?;
        let server = initialized(filesystem, &device, &config, false)?;
        descriptors::make_not_waiting(&device)?;
        let driver = Driver::new(Arc::clone(&server), &device, connection);
        let transport = TransportInForce {
            transport: Transport::DevFuse,
            reason: "io_uring=off: the caller handles requests".into(),
        };
        let start = || Ok((Carrier::Caller(driver.end()), transport));
        let session = Self::served(&server, &device, config, connection, sender, start)?;
        Ok((session, driver))
    }

    /// After INIT.
    fn served(
        server: &Arc<Server>,
        device: &Arc<OwnedFd>,
        config: SessionConfig,
        connection: Option<u32>,
        sender: notify::Sender,
        start: impl FnOnce() -> io::Result<(Carrier, TransportInForce)>,
    ) -> io::Result<Self> {
        raise_read_ahead(server, connection);
        limit_write_back(server, connection);
        let sink = Arc::new(Channel::new(Arc::clone(device)));
        let started = server.send_notifications(sender, sink).and_then(|notify| {
            let (carrier, transport) = start()?;
            Ok((notify, carrier, transport))
        });
        let (notify, carrier, transport) = started.inspect_err(|_| server.destroy())?;
        let (holder, low_latency) = start_holder(config, server);
        let session = Self {
            server: Arc::clone(server),
            connection,
            device: Arc::downgrade(device),
            carrier,
            transport,
            notify: Mutex::new(Some(notify)),
            holder: Mutex::new(holder),
            low_latency,
        };
        session.log_start(config);
        session.carrier.warn_of_fewer(config.workers);
        Ok(session)
    }

    fn log_start(&self, config: SessionConfig) {
        let Some(Negotiated {
            protocol,
            negotiation,
        }) = self.server.negotiated()
        else {
            return;
        };
        let (max_background, congestion_threshold) = negotiation.background();
        tracing::info!(
            abi = format_args!("{}.{}", bickford_abi::KERNEL_VERSION, protocol.minor),
            transport = self.transport_name(),
            transport_reason = self.transport.reason,
            workers = self.carrier.workers(),
            queues = self.carrier.queues(),
            max_write = negotiation.max_write(),
            read_ahead_kb = self
                .connection
                .and_then(read_ahead::in_force)
                .unwrap_or(negotiation.max_readahead() / 1024),
            max_background,
            congestion_threshold,
            max_in_flight = config.server.max_in_flight,
            max_notifications = crate::notify::QUEUE_MAX,
            low_latency = self.low_latency,
            yielding = self.yielding(),
            flags = ?protocol.flags,
            "session started"
        );
    }

    /// The transport in force, and why it is this one.
    #[must_use]
    pub fn transport(&self) -> &TransportInForce {
        &self.transport
    }

    /// Whether CPUs are kept from sleeping while requests come: `off`, `off: ...` with the reason,
    /// or `on: ...`.
    #[must_use]
    pub fn low_latency(&self) -> &str {
        &self.low_latency
    }

    /// Whether threads that serve requests yield to callers: `on`, `off`, or `off: ...` with the reason.
    #[must_use]
    pub fn yielding(&self) -> &str {
        self.carrier.yielding()
    }

    /// What INIT settled.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.server.negotiated()
    }

    /// Sends notifications to the kernel.
    #[must_use]
    pub fn notifier(&self) -> &Notifier {
        self.server.notifier()
    }

    /// The dispatcher, with its table of requests in flight.
    #[must_use]
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// The transport in force: `dev_fuse` or `io_uring`.
    #[must_use]
    pub fn transport_name(&self) -> &'static str {
        self.transport.transport.name()
    }

    /// How many threads handle requests now.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.carrier.len()
    }

    /// Ends the session: every request in flight and every later one fails in its caller. Nothing happens where
    /// it has ended.
    ///
    /// # Errors
    /// When the connection's number is not known ([`Session::connection`]), or fusectl is not mounted at
    /// /sys/fs/fuse/connections.
    pub fn abort(&self) -> io::Result<()> {
        if let Some(device) = self.device.upgrade() {
            abort::abort(self.connection, &*device)?;
        }
        self.server.in_flight().end();
        Ok(())
    }

    /// Number of the connection in /sys/fs/fuse/connections. Of a device that was not mounted here it is known
    /// from Linux 6.16 on.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// Waits until the session has ended, unmounted or aborted, [`FileSystem::destroy`] has returned, and so has
    /// what is called at interrupts ([`Interrupt::on_raise`](crate::Interrupt::on_raise)). In a method it would wait for
    /// itself.
    pub fn wait(&self) {
        self.carrier.join();
        self.server.in_flight().wait_for_end();
        let holder = self.holder.lock();
        drop(holder.unwrap_or_else(PoisonError::into_inner).take());
        let notify = self
            .notify
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(notify) = notify
            && notify.join().is_err()
        {
            tracing::error!("the thread of notifications panicked");
        }
    }
}

/// What serves the file system, with INIT done.
fn initialized(
    filesystem: impl FileSystem,
    device: &Arc<OwnedFd>,
    config: &SessionConfig,
    has_rings: bool,
) -> io::Result<Arc<Server>> {
    let mut limits = config.server;
    limits.allowed.set(InitFlags::OVER_IO_URING, has_rings);
    let server = Arc::new(Server::new(filesystem, limits));
    dev_fuse::initialize(&server, device)?;
    Ok(server)
}

/// Before the first request is served, so that whoever opens files has it.
fn raise_read_ahead(server: &Server, connection: Option<u32>) {
    let wanted = server
        .negotiated()
        .and_then(|settled| settled.negotiation.read_ahead());
    if let (Some(bytes), Some(connection)) = (wanted, connection)
        && read_ahead::in_force(connection).is_some_and(|kib| kib != bytes / 1024)
    {
        read_ahead::set(connection, bytes / 1024);
    }
}

/// Before the first page is dirty, too.
fn limit_write_back(server: &Server, connection: Option<u32>) {
    let writes_back = server
        .negotiated()
        .is_some_and(|settled| settled.protocol.flags.contains(InitFlags::WRITEBACK_CACHE));
    if writes_back
        && let Some(connection) = connection
        && let Some(bytes) = write_back_limit::apply(connection)
    {
        tracing::info!(
            bytes,
            "at most so much is unwritten, for the memory limit of this cgroup"
        );
    }
}

fn start_holder(config: SessionConfig, server: &Server) -> (Option<Holder>, String) {
    let Some(wanted) = config.low_latency else {
        return (None, "off".into());
    };
    match Holder::start(wanted, server.in_flight()) {
        Ok(holder) => {
            let said = format!("on: until {:?} after the last request", wanted.idle);
            (Some(holder), said)
        }
        Err(error) => {
            tracing::warn!("low latency is off: {error}");
            (None, format!("off: {error}"))
        }
    }
}
