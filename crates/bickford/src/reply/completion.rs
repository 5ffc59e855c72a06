//! The way back of one request: trace, send, leave the in-flight table.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;

use bickford_abi::Opcode;
use rustix::io::Errno;

use crate::backing::Backings;
use crate::dispatch::{Crosser, Tables};
use crate::notify::PRUNE_SINCE;
use crate::ops::{Answer, Data, Encoder, Encoding};
use crate::trace::Stages;
use crate::transport::{Outgoing, Responder, Ticket, sendable};
use crate::{NodeId, Unique};

/// Everything that is needed to answer one request. In a box: it is made once, and then handed from
/// call to call, through every layer and into tasks.
pub struct Completion {
    pub(crate) responder: Arc<dyn Responder>,
    pub(crate) ticket: Ticket,
    pub(crate) opcode: Opcode,
    pub(crate) minor: u32,
    /// What the kernel takes at most.
    pub(crate) room: usize,
    /// How many bytes it says at most that were moved.
    pub(crate) to_move: u64,
    pub(crate) written_back: Option<NodeId>,
    /// See [`Encoding::uncached`].
    pub(crate) uncached: bool,
    pub(crate) crosser: Crosser,
    pub(crate) slot: u32,
    pub(crate) tables: Arc<Tables>,
    pub(crate) stages: Stages,
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({} {})", self.opcode.name(), self.ticket.unique)
    }
}

impl Completion {
    pub(crate) fn finish<A: Answer>(self, result: Result<A, Errno>) {
        match result {
            Ok(answer) if self.written_back.is_some() && answer.moved() < self.to_move => {
                self.fail(Errno::NOSPC);
            }
            Ok(mut answer) => {
                if let Some(flaw) = answer.flaw(self.opcode) {
                    return self.refuse(flaw);
                }
                if answer.moved() > self.to_move {
                    return self.refuse("it says that more bytes were moved than there were");
                }
                self.tables.crossing.succeeds(&self.crosser, &mut answer);
                let mut encoder = Encoder::default();
                answer.encode(
                    &Encoding {
                        minor: self.minor,
                        opcode: self.opcode,
                        uncached: self.uncached,
                    },
                    &mut encoder,
                );
                let (fixed, data) = encoder.parts();
                if fixed.len().saturating_add(data.len()) > self.room {
                    return self.send_what_fits(fixed, data);
                }
                self.send(Outgoing {
                    error: 0,
                    fixed,
                    data,
                });
            }
            Err(errno) => self.fail(errno),
        }
    }

    /// The kernel would not take it.
    fn refuse(self, flaw: &str) {
        tracing::error!(
            opcode = self.opcode.name(),
            unique = self.ticket.unique.0,
            "an answer that the kernel does not take: {flaw}; the caller gets EIO"
        );
        self.fail(Errno::IO);
    }

    /// More is named than the kernel takes. It fits all the same where it is in a file that ends early.
    fn send_what_fits(self, fixed: &[u8], data: &Data) {
        let room = self.room.saturating_sub(fixed.len());
        let mut bytes = vec![0; room.saturating_add(1)];
        match data.copy_into(&mut bytes) {
            Ok(length) if length <= room && fixed.len() <= self.room => {
                bytes.truncate(length);
                self.send(Outgoing {
                    error: 0,
                    fixed,
                    data: &Data::Bytes(bytes),
                });
            }
            Ok(_) => {
                tracing::error!(
                    opcode = self.opcode.name(),
                    unique = self.ticket.unique.0,
                    bytes = fixed.len().saturating_add(data.len()),
                    room = self.room,
                    "an answer is longer than what was asked for; the caller gets EIO"
                );
                self.fail(Errno::IO);
            }
            Err(error) => self.fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    pub(crate) fn fail(self, errno: Errno) {
        self.send(Outgoing::without_data(sendable(errno), &[]));
    }

    pub(crate) fn abandon(self) {
        let unique = self.ticket.unique;
        if std::thread::panicking() {
            PANICKED.set(unique.0);
            tracing::error!(
                opcode = self.opcode.name(),
                unique = unique.0,
                "the file system panicked; the caller gets EIO"
            );
        } else {
            tracing::error!(
                opcode = self.opcode.name(),
                unique = unique.0,
                "a reply was dropped without an answer; the caller gets EIO"
            );
        }
        self.fail(Errno::IO);
    }

    /// The table entry goes first: afterwards the kernel may use the number again.
    fn send(mut self, answer: Outgoing<'_>) {
        self.stages.mark_handled();
        self.tables.crossing.ends(&self.crosser);
        self.tables.in_flight.remove(self.slot);
        if let Some(node) = self.written_back
            && answer.error != 0
            && self.minor >= PRUNE_SINCE
        {
            self.tables.queue.not_written(node);
        }
        let sent = self.responder.respond(self.ticket, &answer);
        self.stages.mark_sent();
        let Tables {
            recorder, events, ..
        } = &*self.tables;
        recorder.record(self.opcode, &self.stages, &answer);
        if events.is_enabled() {
            events.push(
                self.ticket.unique.0,
                self.opcode,
                answer.error,
                &self.stages,
            );
        }
        if let Err(error) = sent {
            self.not_taken(&answer, &error);
        }
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.responder.may_wait()
    }

    pub(crate) fn backings(&self) -> Option<Backings> {
        self.responder.backings()
    }

    fn not_taken(&self, answer: &Outgoing<'_>, error: &io::Error) {
        if report(self.opcode, self.ticket.unique, answer, error) {
            return;
        }
        // Refused before the request was looked up, perhaps: then its caller waits still.
        let bare = Outgoing::without_data(Errno::IO.raw_os_error(), &[]);
        if let Err(error) = self.responder.respond(self.ticket, &bare) {
            report(self.opcode, self.ticket.unique, &bare, &error);
        }
    }
}

thread_local! {
    /// Number of the request whose reply a panic on this thread dropped last.
    static PANICKED: Cell<u64> = const { Cell::new(0) };
}

/// A method panicked. Says so, unless that was said when the panic dropped the reply: here nobody knows
/// whether it was answered before, or is kept by somebody.
pub(crate) fn report_panic(opcode: Opcode, unique: Unique) {
    if PANICKED.take() != unique.0 {
        tracing::error!(
            opcode = opcode.name(),
            unique = unique.0,
            "the file system panicked"
        );
    }
}

/// Answers whether nobody waits for the answer.
fn report(opcode: Opcode, unique: Unique, answer: &Outgoing<'_>, error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        // The caller was killed meanwhile, or the mount is gone: nobody waits for the answer.
        Some(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED) => {
            tracing::debug!(
                opcode = opcode.name(),
                unique = unique.0,
                "nobody waits: {error}"
            );
            true
        }
        _ => {
            tracing::error!(
                opcode = opcode.name(),
                unique = unique.0,
                error = answer.error,
                bytes = answer.fixed.len() + answer.data.len(),
                "the kernel did not take a reply: {error}"
            );
            false
        }
    }
}
