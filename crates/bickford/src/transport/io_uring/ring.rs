//! The loop of one thread that serves a queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bickford_abi::{InHeader, Opcode, UringReqHeader};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::Shared;
use super::entry::{Port, write_answer};
use super::kick::kick;
use super::pace::Watch;
use super::queue::{Member, Queue};
use super::yielding::Callers;
use crate::decode::{Incoming, Malformed};
use crate::dispatch::{self, Worker};
use crate::sys::payloads::Area;
use crate::sys::uring::{Event, Held, Ring};
use crate::trace::Stamp;
use crate::transport::{Outgoing, Responder};

/// Requests up to this size are copied out of their entry, so that the answer can be written there
/// while the handler still borrows the request. Names fit; data of WRITE mostly do not.
const COPY_MAX: usize = 8192;

/// How many entries are registered when all of a ring are kept by replies that are due later: more
/// will be.
const REPLACEMENTS: usize = 8;

/// A thread's part of a queue: a ring, its entries, and the way into the dispatcher.
pub(super) struct Server {
    dispatcher: Arc<dispatch::Server>,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    member: Arc<Member>,
    ring: Ring,
    port: Arc<Port>,
    responder: Arc<dyn Responder>,
    worker: Worker,
    /// The file system is prompt: requests may be taken several at a time.
    prompt: bool,
    watch: Watch,
    callers: Callers,
    /// When the last request was begun.
    now: Stamp,
    /// Entries of this ring that wait for a request.
    idle: usize,
    answered: Vec<Held>,
    scratch: Vec<u8>,
    warned: bool,
    /// The entry in which requests come that the kernel had kept back.
    chased: Option<u32>,
}

/// Why a thread's loop ended.
enum Ended {
    /// The connection is gone, or the session wants no rings.
    Closed,
    Failed(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) if is_closed(errno) => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

fn is_closed(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV | Errno::CANCELED
    )
}

impl Server {
    pub(super) fn new(
        dispatcher: Arc<dispatch::Server>,
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        member: Arc<Member>,
        ring: Ring,
        number: usize,
    ) -> Self {
        let port = Arc::clone(&member.port);
        Self {
            worker: dispatcher.worker(number),
            prompt: dispatcher.is_prompt(),
            dispatcher,
            watch: Watch::default(),
            callers: Callers::default(),
            now: Stamp::now(),
            responder: port.clone(),
            shared,
            queue,
            member,
            ring,
            port,
            idle: 0,
            answered: Vec::new(),
            scratch: Vec::with_capacity(COPY_MAX),
            warned: false,
            chased: None,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn queue(&self) -> u16 {
        self.queue.number
    }

    pub(super) fn has_receiver(&self) -> bool {
        self.queue.handover.has_receiver()
    }

    /// Registers the first entry.
    pub(super) fn register(&mut self, area: Area) -> io::Result<()> {
        let number = self.first_number()?;
        self.ring.register(area, number)?;
        self.gave();
        self.ring.submit(0)?;
        while let Some(event) = self.ring.next_event()? {
            match event {
                Event::Lost(errno) => {
                    self.took();
                    return Err(errno.into());
                }
                Event::Woken => {}
                Event::Request(held) => {
                    self.took();
                    self.handle(held);
                }
            }
        }
        Ok(())
    }

    /// Registers the first entries of a receiver.
    pub(super) fn register_receiver(&mut self, area: Area) -> io::Result<()> {
        let number = self.first_number()?;
        self.add_entry(area, number)?;
        self.add_entries()?;
        self.ring.submit(0)?;
        self.queue.handover.begin(&self.port);
        // Those that have nothing to do rest from now on.
        for member in self.queue.members().iter() {
            member.port.wake();
        }
        Ok(())
    }

    fn first_number(&self) -> io::Result<u32> {
        let full = || io::Error::other("the queue has all the entries that it may have");
        self.queue.reserve().ok_or_else(full)
    }

    /// Registers a further entry.
    fn add_entry(&mut self, area: Area, number: u32) -> io::Result<()> {
        self.ring.register(area, number)?;
        self.member.entries.fetch_add(1, Ordering::SeqCst);
        self.gave();
        Ok(())
    }

    /// An entry goes to the kernel.
    fn gave(&mut self) {
        self.idle += 1;
        self.member.waiting.store(self.idle, Ordering::Relaxed);
        self.queue.give();
    }

    /// An entry came back.
    fn took(&mut self) {
        self.idle = self.idle.saturating_sub(1);
        self.member.waiting.store(self.idle, Ordering::Relaxed);
        if self.queue.take() {
            self.shared.watch();
        }
    }

    /// Serves until the connection ends.
    pub(super) fn serve(mut self) {
        loop {
            if let Err(ended) = self.turn() {
                return self.end(&ended);
            }
        }
    }

    /// Receives requests for other threads until the connection ends.
    pub(super) fn receive(mut self) {
        loop {
            if let Err(ended) = self.receiving_turn() {
                self.queue.handover.close();
                return self.end(&ended);
            }
        }
    }

    fn end(&self, ended: &Ended) {
        self.port.close();
        match ended {
            Ended::Closed => {
                self.member.finished.store(true, Ordering::SeqCst);
                // A thread without an entry is not told by the kernel.
                self.shared.stop();
            }
            Ended::Failed(error) => tracing::error!(
                queue = self.queue.number,
                "a ring failed: {error}; the connection is aborted"
            ),
        }
    }

    fn turn(&mut self) -> Result<(), Ended> {
        self.commit_answered(u32::MAX)?;
        if self.shared.is_stopping() {
            return Err(Ended::Closed);
        }
        while let Some(held) = self.port.passed_on().or_else(|| self.next_kept()) {
            self.answer(held)?;
        }
        if self.callers.move_about() {
            let shared = &self.shared;
            let tell = || shared.ring_bell();
            shared.yielding.moved_about(&self.member, self.now, tell);
        }
        self.wait(|server, held| match server.pass_on(held) {
            Some(held) => server.answer(held),
            None => Ok(()),
        })
    }

    /// Waits until something comes, and has `take` take each request.
    fn wait(&mut self, take: impl Fn(&mut Self, Held) -> io::Result<()>) -> Result<(), Ended> {
        self.ring.submit(1)?;
        while let Some(event) = self.ring.next_event()? {
            match event {
                Event::Woken => {}
                Event::Lost(errno) if is_closed(errno) => return Err(Ended::Closed),
                Event::Lost(errno) => self.lost(errno)?,
                Event::Request(held) => {
                    self.took();
                    take(self, held)?;
                }
            }
        }
        self.chased = None;
        Ok(())
    }

    fn receiving_turn(&mut self) -> Result<(), Ended> {
        self.commit_answered(u32::MAX)?;
        if self.shared.is_stopping() {
            return Err(Ended::Closed);
        }
        self.wait(Self::hand_over)?;
        if self.queue.is_exhausted() {
            self.add_entries()?;
        }
        Ok(())
    }

    /// Gives a request to a thread that handles it.
    fn hand_over(&mut self, held: Held) -> io::Result<()> {
        let entry = held.index();
        let areas = held.header();
        if let Ok((header, _)) = InHeader::read_from_prefix(&areas.in_out)
            && self.is_kick(&header)
        {
            self.chased = Some(entry);
            self.answer_here(held, header.unique, Errno::AGAIN.raw_os_error());
            self.commit_answered(entry)?;
            return self.ring.submit(0);
        }
        if self.chased == Some(entry) {
            // It had been kept back, and there may be more.
            self.chase_kept_back(false)?;
        }
        if !self.queue.handover.pass(held) {
            self.shared.watch();
        }
        Ok(())
    }

    /// What the receiver could pass to nobody.
    fn next_kept(&self) -> Option<Held> {
        if self.prompt || self.idle > 0 {
            return None;
        }
        self.queue.handover.next(&self.member)
    }

    /// Handles a request and commits what is answered.
    fn answer(&mut self, held: Held) -> io::Result<()> {
        // Those that were answered must not wait for a method that may take long.
        if self.ring.has_unsubmitted() && !self.takes_several() {
            self.ring.submit(0)?;
        }
        let entry = held.index();
        if self.handle(held) && self.ring.has_unsubmitted() {
            self.ring.submit(0)?;
        }
        let committed = self.commit_answered(entry)?;
        self.replace_deferred()?;
        if self.chased == Some(entry) {
            self.chase_kept_back(committed)?;
        }
        Ok(())
    }

    fn takes_several(&self) -> bool {
        self.prompt && !self.shared.pace.is_cautious(self.now)
    }

    /// Where methods wait and more than one entry came to be here, has a thread that has none handle
    /// the request, whose entry stays there.
    fn pass_on(&mut self, held: Held) -> Option<Held> {
        if !self.prompt || self.member.entries.load(Ordering::Relaxed) < 2 {
            return Some(held);
        }
        self.now = Stamp::now();
        if self.takes_several() {
            return Some(held);
        }
        let Some(other) = self.queue.without_entries(&self.member) else {
            return Some(held);
        };
        other.port.pass_on(held);
        None
    }

    /// The thread that an answered entry is to gather at, unless it is this one or in a method.
    fn gathers(&self, entry: u32) -> Option<Arc<Member>> {
        if !self.takes_several() || self.chased == Some(entry) {
            return None;
        }
        let front = self.queue.front(&self.member);
        let elsewhere = !Arc::ptr_eq(front, &self.member) && !front.is_busy();
        elsewhere.then(|| Arc::clone(front))
    }

    /// The commit of a kick hands out one request that was kept back, at once and in the same entry.
    /// Where its reply is due later, no commit follows that would hand out the next: so kicks again.
    fn chase_kept_back(&mut self, committed: bool) -> io::Result<()> {
        if committed {
            return self.ring.submit(0);
        }
        self.chased = None;
        kick(&self.shared, self.queue.number);
        Ok(())
    }

    /// Hands over what was answered; tells whether `entry` was.
    fn commit_answered(&mut self, entry: u32) -> io::Result<bool> {
        let mut committed = false;
        let mut answered = std::mem::take(&mut self.answered);
        self.port.collect(&mut answered);
        for held in answered.drain(..) {
            committed |= held.index() == entry;
            if held.is_due() {
                self.shared.look_at_pages();
            }
            if let Some(receiver) = self.port.receiver() {
                receiver.take_over(held);
                continue;
            }
            if let Some(front) = self.gathers(held.index()) {
                self.member.give_entry(&front);
                front.port.take_over(held);
                continue;
            }
            self.ring.commit(held)?;
            self.gave();
        }
        self.answered = answered;
        Ok(committed)
    }

    /// The kernel gave an entry up, and not because the connection has ended.
    fn lost(&mut self, errno: Errno) -> io::Result<()> {
        tracing::error!(queue = self.queue.number, "an entry was given up: {errno}");
        self.took();
        self.member.entries.fetch_sub(1, Ordering::SeqCst);
        self.replace_deferred()
    }

    /// Where every entry of this ring waits for an answer that comes later, adds some, so that
    /// further requests can come. Where methods may wait, a receiver gets them (`handover.rs`).
    fn replace_deferred(&mut self) -> io::Result<()> {
        if !self.prompt || self.idle > 0 || self.member.entries.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.add_entries()
    }

    /// Adds entries to this ring, which has none that waits.
    fn add_entries(&mut self) -> io::Result<()> {
        for _ in 0..REPLACEMENTS {
            let area = match self.queue.areas.area() {
                Ok(area) => area,
                Err(error) => {
                    tracing::error!(queue = self.queue.number, "no memory for an entry: {error}");
                    break;
                }
            };
            let Some(number) = self.queue.reserve() else {
                break;
            };
            self.add_entry(area, number)?;
        }
        if self.idle == 0 {
            if !self.warned {
                tracing::error!(
                    queue = self.queue.number,
                    limit = super::queue::ENTRIES_MAX,
                    "no further entry: too many requests wait for an answer; others wait for them"
                );
            }
            self.warned = true;
            return Ok(());
        }
        self.ring.submit(0)?;
        kick(&self.shared, self.queue.number);
        Ok(())
    }

    /// Answers whether the method took long, where that matters.
    fn handle(&mut self, held: Held) -> bool {
        let received = Stamp::now();
        self.now = received;
        self.member.turns.fetch_add(1, Ordering::Relaxed);
        let begun = self.prompt.then(|| self.watch.begin(received));
        let areas = held.header();
        match InHeader::read_from_prefix(&areas.in_out) {
            Ok((header, _)) => {
                self.callers
                    .saw(&self.shared.yielding, header.pid, self.queue.number);
                self.process(held, &header, &areas, received);
            }
            Err(_) => self.answer_here(held, 0, Errno::IO.raw_os_error()),
        }
        self.member.turns.fetch_add(1, Ordering::Relaxed);
        begun.is_some_and(|begun| self.watch.end(begun, &self.shared.pace))
    }

    fn process(&mut self, held: Held, header: &InHeader, areas: &UringReqHeader, received: Stamp) {
        let entry = held.index();
        let unique = header.unique;
        let answered = Opcode::from_u32(header.opcode).is_none_or(Opcode::is_answered);
        if self.is_kick(header) {
            self.chased = Some(entry);
            return self.answer_here(held, unique, Errno::AGAIN.raw_os_error());
        }
        let payload = areas.ring_ent_in_out.payload_sz as usize;
        let fixed = (header.len as usize)
            .checked_sub(size_of::<InHeader>() + payload)
            .and_then(|length| areas.op_in.get(..length));
        let Some(fixed) = fixed else {
            let error = Malformed::Length {
                said: header.len.into(),
                held: payload as u64,
            };
            return self.refuse(held, unique, error);
        };
        let server = &self.dispatcher;
        if payload <= COPY_MAX && answered {
            self.scratch.clear();
            self.scratch.extend_from_slice(held.payload(payload));
            match Incoming::from_parts(*header, fixed, &self.scratch) {
                Ok(incoming) => {
                    self.port.deposit(unique, held);
                    server.process(&self.worker, incoming, received, &self.responder, entry);
                }
                Err(error) => self.refuse(held, unique, error),
            }
            return;
        }
        match Incoming::from_parts(*header, fixed, held.payload(payload)) {
            Ok(incoming) if answered => {
                self.port.lend(entry, unique);
                server.process(&self.worker, incoming, received, &self.responder, entry);
                self.port.take_back(unique, held);
            }
            Ok(incoming) => {
                server.process(&self.worker, incoming, received, &self.responder, entry);
                self.answer_here(held, unique, 0);
            }
            Err(error) => self.refuse(held, unique, error),
        }
    }

    fn refuse(&mut self, held: Held, unique: u64, error: Malformed) {
        tracing::warn!(unique, "malformed message: {error}");
        self.answer_here(held, unique, Errno::INVAL.raw_os_error());
    }

    /// Whether a request is there only to be committed: see `kick.rs`.
    fn is_kick(&self, header: &InHeader) -> bool {
        let kicker = self.shared.kickers.get(usize::from(self.queue.number));
        header.opcode == Opcode::Statfs as u32
            && kicker.is_some_and(|kicker| kicker.contains(header.pid))
    }

    fn answer_here(&mut self, mut held: Held, unique: u64, error: i32) {
        write_answer(&mut held, unique, &Outgoing::without_data(error, &[]));
        self.answered.push(held);
    }
}
