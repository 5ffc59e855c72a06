//! A transport without a kernel: a test plays the kernel's side.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bickford_abi::{InHeader, InitIn, Opcode, OutHeader};
use zerocopy::{FromBytes, IntoBytes};

use super::{NotifySink, Outgoing, Responder, Ticket};
pub use crate::dispatch::ServerConfig;
use crate::dispatch::{Server, Worker};
use crate::filesystem::FileSystem;

/// An answer, or a notification, as the kernel would get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number of the request; zero for a notification.
    pub unique: u64,
    /// Zero, a negative errno, or the code of a notification.
    pub error: i32,
    /// What follows the header.
    pub body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Inbox {
    messages: Mutex<Vec<Message>>,
    arrived: Condvar,
}

impl Inbox {
    fn put(&self, message: Message) {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        self.arrived.notify_all();
    }
}

impl Responder for Inbox {
    fn respond(&self, ticket: Ticket, answer: &Outgoing<'_>) -> io::Result<()> {
        let mut body = answer.fixed.to_vec();
        let mut error = -answer.error;
        match answer.data.clone().into_bytes() {
            Ok(data) => body.extend(data),
            Err(failed) => {
                error = -failed.raw_os_error().unwrap_or(libc::EIO);
                body.clear();
            }
        }
        self.put(Message {
            unique: ticket.unique.0,
            error,
            body,
        });
        Ok(())
    }
}

impl NotifySink for Inbox {
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        self.put(Message {
            unique: 0,
            error: code,
            body: body.to_vec(),
        });
        Ok(())
    }
}

/// The kernel's side of a session.
#[derive(Debug)]
pub struct Kernel {
    server: Arc<Server>,
    worker: Worker,
    inbox: Arc<Inbox>,
    responder: Arc<dyn Responder>,
    next: u64,
    notify: Option<JoinHandle<()>>,
}

impl Kernel {
    /// A session over `filesystem` that has not seen INIT.
    pub fn new(filesystem: impl FileSystem) -> Self {
        Self::with_config(filesystem, ServerConfig::default())
    }

    /// The same, with limits.
    pub fn with_config(filesystem: impl FileSystem, config: ServerConfig) -> Self {
        let server = Arc::new(Server::new(filesystem, config));
        let inbox = Arc::new(Inbox::default());
        let responder: Arc<dyn Responder> = inbox.clone();
        let notify = server.serve_notifications(inbox.clone());
        let notify = notify
            .inspect_err(|error| tracing::error!("no thread for notifications: {error}"))
            .ok();
        Self {
            notify,
            worker: server.worker(1),
            server,
            inbox,
            responder,
            next: 2,
        }
    }

    /// The session's server.
    #[must_use]
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Sends INIT of our own version with every flag offered, and takes the answer.
    pub fn init(&mut self) -> Option<Message> {
        let (flags, flags2) = bickford_abi::InitFlags::all().to_words();
        self.init_with(&InitIn {
            major: bickford_abi::KERNEL_VERSION,
            minor: bickford_abi::MINOR_VERSION,
            max_readahead: 128 << 10,
            flags,
            flags2,
            ..InitIn::default()
        })
    }

    /// Sends INIT as given.
    pub fn init_with(&mut self, init: &InitIn) -> Option<Message> {
        self.call(Opcode::Init, 0, init.as_bytes())
    }

    /// Sends a request and answers with its number.
    pub fn send(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> u64 {
        let unique = self.next;
        self.next += 2;
        let header = InHeader {
            opcode: opcode as u32,
            unique,
            nodeid: node,
            ..InHeader::default()
        };
        self.send_with(header, body);
        unique
    }

    /// Sends a request with this header, whose length is set.
    pub fn send_with(&mut self, header: InHeader, body: &[u8]) {
        let len = u32::try_from(size_of::<InHeader>() + body.len()).unwrap_or(u32::MAX);
        let header = InHeader { len, ..header };
        self.send_raw(&[header.as_bytes(), body].concat());
    }

    /// Sends any bytes.
    pub fn send_raw(&mut self, message: &[u8]) {
        self.server
            .process_bytes(&self.worker, message, &self.responder);
    }

    /// Takes the answer to a request, waiting at most ten seconds for it.
    #[must_use]
    pub fn answer(&self, unique: u64) -> Option<Message> {
        let messages = self
            .inbox
            .messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let missing = |messages: &mut Vec<Message>| !messages.iter().any(|m| m.unique == unique);
        let timeout = Duration::from_secs(10);
        let (mut messages, _) = self
            .inbox
            .arrived
            .wait_timeout_while(messages, timeout, missing)
            .unwrap_or_else(PoisonError::into_inner);
        let at = messages
            .iter()
            .position(|message| message.unique == unique)?;
        Some(messages.remove(at))
    }

    /// Takes every message that has arrived.
    pub fn drain(&self) -> Vec<Message> {
        std::mem::take(
            &mut *self
                .inbox
                .messages
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Sends a request and takes its answer.
    pub fn call(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Option<Message> {
        let unique = self.send(opcode, node, body);
        self.answer(unique)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.server.in_flight().end();
        self.server.destroy();
        // What is called after a notification may drop it.
        if let Some(notify) = self.notify.take()
            && notify.thread().id() != thread::current().id()
            && notify.join().is_err()
        {
            tracing::error!("the thread of notifications panicked");
        }
    }
}

impl Message {
    /// Reads a structure from the front of the body.
    #[must_use]
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(&self.body).ok().map(|(value, _)| value)
    }

    /// Bytes of the message with its header.
    #[must_use]
    pub fn length(&self) -> usize {
        size_of::<OutHeader>() + self.body.len()
    }
}
