//! One dispatcher for every transport.

mod init;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use bickford_abi::{self as abi, InitFlags, Opcode};
use rustix::io::Errno;

use super::context::Origin;
use super::{Context, Crosser, Crossing, InFlight, KernelLimits, Method, Running};
use crate::decode::{Incoming, Malformed};
use crate::filesystem::{FileSystem, Negotiation};
use crate::notify::{self, Notifier, Queue, Retrievals};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::reply::{Completion, Reply, report_panic};
use crate::trace::{Events, Recorder, Stages, Stamp, Stats, thread_id};
use crate::transport::{NotifySink, Outgoing, Responder, Ticket, sendable};

/// Whose requests are answered, where the kernel does not decide that itself (`allow_root`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Everybody's that the kernel lets through.
    #[default]
    Kernel,
    /// This user's and root's, and those about what is open already: descriptors are inherited and
    /// passed on.
    OwnerAndRoot(u32),
}

/// Limits and choices of a session.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// How many requests may be received and not yet answered; those beyond get ENOMEM, but for those that give
    /// something back (RELEASE, RELEASEDIR, FLUSH), which would not come again.
    pub max_in_flight: usize,
    /// Whose requests are answered.
    pub access: Admission,
    /// Whether the kernel checks permissions whatever INIT settles (`default_permissions`), where that is known.
    pub default_permissions: Option<bool>,
    /// Flags that the file system gets only when the transport can serve them.
    pub allowed: InitFlags,
    /// What is settled otherwise than the file system has it.
    pub limits: KernelLimits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_in_flight: 65_536,
            access: Admission::Kernel,
            default_permissions: None,
            allowed: InitFlags::all().difference(InitFlags::OVER_IO_URING),
            limits: KernelLimits::default(),
        }
    }
}

/// What handlers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) notifier: Notifier,
    pub(crate) crossing: Arc<Crossing>,
    negotiated: OnceLock<Negotiated>,
}

/// What INIT settled.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// ABI minor and flags.
    pub protocol: Protocol,
    /// Sizes and limits.
    pub negotiation: Negotiation,
}

impl Shared {
    pub(crate) fn protocol(&self) -> Protocol {
        self.negotiated
            .get()
            .map(|negotiated| negotiated.protocol)
            .unwrap_or_default()
    }
}

/// What a transport's thread keeps between requests.
#[derive(Clone, Debug)]
pub struct Worker {
    number: usize,
    tables: Arc<Tables>,
}

/// Where a request is written down. Each thread has one of its own: that requests hold it changes a count,
/// which would go from one CPU's cache to the other's if all threads had the same.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Tables {
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) events: Arc<Events>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) crossing: Arc<Crossing>,
}

/// Decodes requests and calls the file system.
pub struct Server {
    filesystem: Box<dyn FileSystem>,
    config: ServerConfig,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    retrievals: Arc<Retrievals>,
    pub(super) running: Running,
    recorders: Mutex<Vec<Arc<Recorder>>>,
    events: Arc<Events>,
    destroyed: AtomicBool,
    /// Why INIT was refused.
    refusal: Mutex<Option<io::Error>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Workers beyond this number share recorders, so that worker threads that come and go leave no
/// table behind.
const RECORDERS_MAX: usize = 256;

impl Server {
    /// Serves a file system.
    pub fn new(filesystem: impl FileSystem, config: ServerConfig) -> Self {
        Stamp::prepare();
        let queue = Arc::new(Queue::default());
        let retrievals = Arc::new(Retrievals::default());
        let notifier = Notifier::new(Arc::clone(&queue), Arc::clone(&retrievals));
        Self {
            filesystem: Box::new(filesystem),
            config,
            shared: Arc::new(Shared {
                in_flight: Arc::new(InFlight::new(config.max_in_flight)),
                crossing: Arc::new(Crossing::new(notifier.clone())),
                notifier,
                negotiated: OnceLock::new(),
            }),
            queue,
            retrievals,
            running: Running::default(),
            recorders: Mutex::default(),
            events: Arc::default(),
            destroyed: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }

    /// What INIT settled; `None` before.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.shared.negotiated.get()
    }

    /// Whether no method waits for another request: [`FileSystem::is_prompt`].
    pub(crate) fn is_prompt(&self) -> bool {
        self.filesystem.is_prompt()
    }

    /// The table of requests that were received and not yet answered.
    #[must_use]
    pub fn in_flight(&self) -> &Arc<InFlight> {
        &self.shared.in_flight
    }

    /// Sends notifications.
    #[must_use]
    pub fn notifier(&self) -> &Notifier {
        &self.shared.notifier
    }

    /// Starts the thread that sends what [`Server::notifier`] queues, through `sink`: once, for a transport of one's own. It ends
    /// after [`Server::destroy`]. A session does this itself.
    ///
    /// # Errors
    /// When the thread cannot be started, there is one, or the session has ended.
    pub fn serve_notifications(&self, sink: Arc<dyn NotifySink>) -> io::Result<JoinHandle<()>> {
        self.send_notifications(notify::sender()?, sink)
    }

    /// The same with a thread that was started before.
    pub(crate) fn send_notifications(
        &self,
        sender: notify::Sender,
        sink: Arc<dyn NotifySink>,
    ) -> io::Result<JoinHandle<()>> {
        self.queue.serve(sender, sink)
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Stats::merge(recorders.iter().map(|recorder| &**recorder))
    }

    /// Each request as it ends, for whoever reads them.
    #[must_use]
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// For a new thread of a transport, with a number of its own.
    #[must_use]
    pub fn worker(&self, number: usize) -> Worker {
        let mut recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let index = number % RECORDERS_MAX;
        while recorders.len() <= index {
            recorders.push(Arc::default());
        }
        let recorder = match recorders.get_mut(index) {
            Some(recorder) => {
                // Nobody has it any more, neither a worker nor a request that is to be answered.
                if let Some(recorder) = Arc::get_mut(recorder) {
                    recorder.disown();
                }
                Arc::clone(recorder)
            }
            None => Arc::default(),
        };
        let tables = Tables {
            in_flight: Arc::clone(&self.shared.in_flight),
            recorder,
            events: Arc::clone(&self.events),
            queue: Arc::clone(&self.queue),
            crossing: Arc::clone(&self.shared.crossing),
        };
        Worker {
            number,
            tables: Arc::new(tables),
        }
    }

    /// The session has ended: no request follows. Only the first call tells the file system. A panic of
    /// it is logged.
    pub fn destroy(&self) {
        if !self.destroyed.swap(true, Ordering::SeqCst) {
            self.queue.end();
            self.retrievals.end();
            if catch_unwind(AssertUnwindSafe(|| self.filesystem.destroy())).is_err() {
                tracing::error!("the file system panicked in destroy");
            }
        }
    }

    /// Whether no request follows.
    pub fn has_ended(&self) -> bool {
        self.destroyed.load(Ordering::SeqCst)
    }

    /// Handles a message that is one run of bytes. See [`Server::process`].
    pub fn process_bytes(&self, worker: &Worker, message: &[u8], responder: &Arc<dyn Responder>) {
        let received = Stamp::now();
        match Incoming::parse(message) {
            Ok(incoming) => self.process(worker, incoming, received, responder, 0),
            Err(error) => self.refuse_message(message, error, responder),
        }
    }

    pub(crate) fn refuse_message(
        &self,
        message: &[u8],
        error: Malformed,
        responder: &Arc<dyn Responder>,
    ) {
        tracing::warn!(bytes = message.len(), "malformed message: {error}");
        if let Ok(header) = crate::decode::Cursor::new(message).read::<abi::InHeader>() {
            let ticket = Ticket {
                unique: header.unique.into(),
                entry: 0,
            };
            respond_error(responder, ticket, Errno::INVAL);
        }
    }

    /// Handles one request: decodes it, calls the file system, which answers through `responder`
    /// now or later. `entry` comes back in the ticket. Answers to malformed and unknown requests
    /// are errors; the session goes on.
    pub fn process(
        &self,
        worker: &Worker,
        mut incoming: Incoming<'_>,
        received: Stamp,
        responder: &Arc<dyn Responder>,
        entry: u32,
    ) {
        let header = incoming.header;
        let ticket = Ticket {
            unique: header.unique.into(),
            entry,
        };
        let Some(opcode) = Opcode::from_u32(header.opcode) else {
            tracing::warn!(
                opcode = header.opcode,
                unique = header.unique,
                "unknown opcode"
            );
            return respond_error(responder, ticket, Errno::NOSYS);
        };
        if self.shared.negotiated.get().is_none() && opcode != Opcode::Init {
            tracing::warn!(
                opcode = opcode.name(),
                unique = header.unique,
                "request before INIT"
            );
            if opcode.is_answered() {
                respond_error(responder, ticket, Errno::IO);
            }
            return;
        }
        match opcode {
            Opcode::Init => self.initialize(incoming, responder, ticket),
            Opcode::Destroy => {
                // What the kernel reads ahead of a file that is closed may still come, or be under way.
                self.running.close(responder, ticket);
                self.end_where_due();
            }
            Opcode::Forget | Opcode::BatchForget => self.forget(worker, opcode, &mut incoming),
            Opcode::Interrupt => match incoming.body.read::<abi::InterruptIn>() {
                Ok(input) => self.shared.in_flight.interrupt(input.unique.into()),
                Err(error) => warn_malformed(opcode, header.unique, error),
            },
            Opcode::NotifyReply => self.retrieved(worker, &mut incoming),
            _ if self.refuses(opcode, &incoming) => respond_error(responder, ticket, Errno::ACCESS),
            _ => self.operate(worker, opcode, incoming, received, responder, ticket),
        }
    }

    /// Ends the session where the kernel has asked for it and no method runs any more.
    pub(super) fn end_where_due(&self) {
        if let Some((responder, ticket)) = self.running.take_end() {
            self.destroy();
            respond(&responder, ticket, 0, &[]);
        }
    }

    /// Whoever has a descriptor may use it, however it came by it: what was opened stays open.
    fn refuses(&self, opcode: Opcode, incoming: &Incoming<'_>) -> bool {
        match (self.config.access, incoming.header.uid) {
            (Admission::Kernel, _) | (Admission::OwnerAndRoot(_), 0) => false,
            (Admission::OwnerAndRoot(owner), uid) => {
                uid != owner && !self.is_of_open(opcode, incoming)
            }
        }
    }

    /// Whether the kernel is to keep no attributes of the root that the answer to a request may have: it lets
    /// everybody in, and shows what it has kept without a request. Each path from the mount point leads through
    /// the root, whose mode it asks for then. A lookup may lead up to it.
    fn asks_each_time(&self, opcode: Opcode, node: u64) -> bool {
        self.config.access != Admission::Kernel
            && (node == abi::ROOT_ID || opcode == Opcode::Lookup)
    }

    /// Whether a request comes through a descriptor.
    fn is_of_open(&self, opcode: Opcode, incoming: &Incoming<'_>) -> bool {
        let (header, mut body) = (&incoming.header, incoming.body.clone());
        let protocol = self.shared.protocol();
        match opcode {
            // What read(2) and ftruncate(2) ask for besides; fstat(2) does not tell its file.
            Opcode::Getattr => {
                Getattr::decode(header, &mut body, &protocol).is_ok_and(|op| op.handle.is_some())
            }
            Opcode::Setattr => {
                Setattr::decode(header, &mut body, &protocol).is_ok_and(|op| op.handle.is_some())
            }
            Opcode::Read
            | Opcode::Write
            | Opcode::Flush
            | Opcode::Fsync
            | Opcode::Release
            | Opcode::Readdir
            | Opcode::Readdirplus
            | Opcode::Fsyncdir
            | Opcode::Releasedir
            | Opcode::Getlk
            | Opcode::Setlk
            | Opcode::Setlkw
            | Opcode::Ioctl
            | Opcode::Poll
            | Opcode::Fallocate
            | Opcode::Lseek
            | Opcode::CopyFileRange
            | Opcode::CopyFileRange64 => true,
            _ => false,
        }
    }

    fn forget(&self, worker: &Worker, opcode: Opcode, incoming: &mut Incoming<'_>) {
        let Some(_method) = Method::begin(self, worker.number) else {
            return;
        };
        let header = incoming.header;
        let sink = |forgets: &[Forget]| {
            // First: afterwards a number may be another file's.
            self.queue.forgotten(forgets);
            let call = AssertUnwindSafe(|| self.filesystem.forget(forgets));
            if catch_unwind(call).is_err() {
                tracing::error!("the file system panicked in forget");
            }
        };
        if let Err(error) = decode_forgets(opcode, &header, &mut incoming.body, sink) {
            warn_malformed(opcode, header.unique, error);
        }
    }

    fn retrieved(&self, worker: &Worker, incoming: &mut Incoming<'_>) {
        let Some(_method) = Method::begin(self, worker.number) else {
            return;
        };
        let unique = incoming.header.unique;
        let Some(receive) = self.retrievals.take(unique) else {
            tracing::warn!(unique, "data came that nobody retrieves");
            return;
        };
        let body = &mut incoming.body;
        let read = body.read::<abi::NotifyRetrieveIn>();
        match read.and_then(|input| Ok((input.offset, body.bytes(input.size as usize)?))) {
            Ok((offset, data)) => {
                let call = AssertUnwindSafe(|| receive(offset, data));
                if catch_unwind(call).is_err() {
                    tracing::error!("the receiver of retrieved data panicked");
                }
            }
            Err(error) => warn_malformed(Opcode::NotifyReply, unique, error),
        }
    }

    fn operate(
        &self,
        worker: &Worker,
        opcode: Opcode,
        mut incoming: Incoming<'_>,
        received: Stamp,
        responder: &Arc<dyn Responder>,
        ticket: Ticket,
    ) {
        let header = incoming.header;
        let Some(_method) = Method::begin(self, worker.number) else {
            return respond_error(responder, ticket, Errno::NOTCONN);
        };
        let Some(slot) = self
            .shared
            .in_flight
            .insert(worker.number, &header, opcode, received)
        else {
            tracing::error!(
                opcode = opcode.name(),
                unique = header.unique,
                limit = self.config.max_in_flight,
                "too many requests are unanswered; this one gets ENOMEM"
            );
            return respond_error(responder, ticket, Errno::NOMEM);
        };
        worker.tables.recorder.claim();
        let protocol = self.shared.protocol();
        let mut completion = Box::new(Completion {
            responder: Arc::clone(responder),
            ticket,
            opcode,
            minor: protocol.minor,
            room: usize::MAX,
            to_move: 0,
            written_back: None,
            uncached: self.asks_each_time(opcode, header.nodeid),
            crosser: Crosser::new(header.nodeid.into(), header.pid),
            slot,
            tables: Arc::clone(&worker.tables),
            stages: Stages::received(received),
        });
        let cx = Context {
            header: &header,
            opcode,
            extensions: incoming.extensions,
            slot,
            shared: &self.shared,
            origin: Origin::Handler(responder),
        };
        if completion.tables.events.is_enabled() {
            completion.stages.thread = thread_id();
        }
        completion.stages.mark_decoded();
        let call = AssertUnwindSafe(|| self.call(&cx, &protocol, &mut incoming, completion));
        if catch_unwind(call).is_err() {
            report_panic(opcode, ticket.unique);
        }
    }
}

macro_rules! define_call {
    ($($method:ident: $operation:ty => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        impl Server {
            fn call(
                &self,
                cx: &Context<'_>,
                protocol: &Protocol,
                incoming: &mut Incoming<'_>,
                mut completion: Box<Completion>,
            ) {
                match cx.opcode {
                    $(
                        $(Opcode::$opcode)|+ => {
                            match <$operation>::decode(cx.header, &mut incoming.body, protocol) {
                                Ok(op) => {
                                    completion.room = op.room();
                                    completion.to_move = op.to_move();
                                    completion.written_back = op.written_back();
                                    self.shared.crossing.begins(&mut completion.crosser, op.touched(protocol));
                                    self.filesystem.$method(cx, op, Reply::new(completion));
                                }
                                Err(error) => {
                                    warn_malformed(cx.opcode, cx.header.unique, error);
                                    completion.fail(Errno::INVAL);
                                }
                            }
                        }
                    )+
                    _ => completion.fail(Errno::NOSYS),
                }
            }
        }
    };
}

for_each_operation!(define_call);

fn warn_malformed(opcode: Opcode, unique: u64, error: Malformed) {
    tracing::warn!(opcode = opcode.name(), unique, "malformed request: {error}");
}

fn respond_error(responder: &Arc<dyn Responder>, ticket: Ticket, errno: Errno) {
    respond(responder, ticket, sendable(errno), &[]);
}

fn respond(responder: &Arc<dyn Responder>, ticket: Ticket, error: i32, fixed: &[u8]) {
    let answer = Outgoing::without_data(error, fixed);
    if let Err(reason) = responder.respond(ticket, &answer) {
        tracing::debug!(
            unique = ticket.unique.0,
            error,
            "the kernel did not take an answer: {reason}"
        );
    }
}
