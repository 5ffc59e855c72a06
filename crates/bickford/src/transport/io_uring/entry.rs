//! The entries of one ring, as those see them who answer: on the ring's thread or on any other.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;

use super::handover::Handover;
use super::queue::Queue;
use crate::backing::Backings;
use crate::sys::uring::{Held, Waker};
use crate::transport::{Outgoing, Responder, Ticket, failure};

/// Who has an entry.
#[derive(Debug)]
enum Slot {
    /// The kernel, or the ring's thread on the way to it.
    Away,
    /// Whoever answers the request.
    Held { unique: u64, held: Held },
    /// The handler still borrows the request from the entry's memory.
    Lent { unique: u64 },
    /// An answer came while the request was lent.
    Staged(Staged),
}

#[derive(Debug)]
struct Staged {
    error: i32,
    bytes: Vec<u8>,
}

impl Staged {
    fn answer(&self) -> Outgoing<'_> {
        Outgoing::without_data(self.error, &self.bytes)
    }
}

#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Slot>,
    answered: Vec<Held>,
    /// Requests that another thread received.
    passed_on: Vec<Held>,
    closed: bool,
}

/// Where answers to the requests of one ring go.
#[derive(Debug)]
pub(super) struct Port {
    number: u64,
    slots: Mutex<Slots>,
    notified: AtomicBool,
    waker: Waker,
    device: Arc<OwnedFd>,
    /// The queue has its threads' ports.
    queue: Weak<Queue>,
    handover: Arc<Handover>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The port whose ring this thread serves.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

impl Port {
    /// For the ring that the calling thread serves.
    pub(super) fn new(waker: Waker, device: Arc<OwnedFd>, queue: &Arc<Queue>) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(number);
        Self {
            number,
            slots: Mutex::default(),
            notified: AtomicBool::new(false),
            waker,
            device,
            queue: Arc::downgrade(queue),
            handover: Arc::clone(&queue.handover),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request be answered straight into its entry; nothing may borrow from the entry.
    pub(super) fn deposit(&self, unique: u64, held: Held) {
        let mut slots = self.slots();
        let slot = slots.at(held.index());
        *slot = Slot::Held { unique, held };
    }

    /// Lets a request be answered while its handler borrows from the entry. [`Port::take_back`]
    /// must follow.
    pub(super) fn lend(&self, index: u32, unique: u64) {
        *self.slots().at(index) = Slot::Lent { unique };
    }

    /// The handler has returned: nothing borrows from the entry any more.
    pub(super) fn take_back(&self, unique: u64, mut held: Held) {
        let mut slots = self.slots();
        let slot = slots.at(held.index());
        match std::mem::replace(slot, Slot::Away) {
            Slot::Staged(staged) => {
                write_answer(&mut held, unique, &staged.answer());
                slots.answered.push(held);
            }
            _ => *slot = Slot::Held { unique, held },
        }
    }

    /// Moves what was answered to `answered`.
    pub(super) fn collect(&self, answered: &mut Vec<Held>) {
        self.notified.store(false, Ordering::SeqCst);
        answered.append(&mut self.slots().answered);
    }

    /// Passes on a request that the calling thread received and did not begin, for the ring's thread to
    /// handle.
    pub(super) fn pass_on(&self, held: Held) {
        self.slots().passed_on.push(held);
        self.waker.wake();
    }

    /// The next request that another thread passed on.
    pub(super) fn passed_on(&self) -> Option<Held> {
        self.slots().passed_on.pop()
    }

    /// Wakes the ring's thread without an answer.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// The ring is gone.
    pub(super) fn close(&self) {
        let mut slots = self.slots();
        slots.closed = true;
        slots.answered.clear();
        slots.passed_on.clear();
    }

    /// The receiver of the queue, if that is another thread.
    pub(super) fn receiver(&self) -> Option<Arc<Self>> {
        let receiver = self.handover.receiver()?;
        (receiver.number != self.number).then_some(receiver)
    }

    /// Leaves an answered request to the thread that its entry goes to.
    fn finish(&self, held: Held) {
        match self.receiver() {
            Some(receiver) => receiver.take_over(held),
            None => self.take_over(held),
        }
    }

    /// Leaves an answered request to the ring's thread.
    pub(super) fn take_over(&self, held: Held) {
        let mut slots = self.slots();
        if slots.closed {
            return;
        }
        slots.answered.push(held);
        drop(slots);
        let remote = OWN.get() != self.number;
        if remote && !self.notified.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

impl Slots {
    fn at(&mut self, index: u32) -> &mut Slot {
        let index = index as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || Slot::Away);
        }
        // The vector was made long enough.
        #[allow(clippy::indexing_slicing, reason = "resized above")]
        &mut self.entries[index]
    }

    /// Takes what is needed to answer a request; `Ok(None)` while it is lent.
    fn claim(&mut self, ticket: Ticket) -> Result<Option<Held>, Errno> {
        if self.closed {
            return Err(Errno::NOTCONN);
        }
        let slot = self.at(ticket.entry);
        match slot {
            Slot::Lent { unique } if *unique == ticket.unique.0 => Ok(None),
            Slot::Held { unique, .. } if *unique == ticket.unique.0 => {
                match std::mem::replace(slot, Slot::Away) {
                    Slot::Held { held, .. } => Ok(Some(held)),
                    _ => Err(Errno::NOENT),
                }
            }
            _ => Err(Errno::NOENT),
        }
    }
}

/// Writes an answer into an entry. What cannot be had or does not fit becomes an error.
pub(super) fn write_answer(held: &mut Held, unique: u64, answer: &Outgoing<'_>) {
    match fill(held.payload_mut(), answer) {
        Ok(length) => held.set_answer(unique, -answer.error, length),
        Err(error) => held.set_answer(unique, -error, 0),
    }
}

fn fill(payload: &mut [u8], answer: &Outgoing<'_>) -> Result<usize, i32> {
    let capacity = payload.len();
    let too_large = || {
        let wanted = answer.fixed.len() + answer.data.len();
        tracing::error!(
            wanted,
            capacity,
            "an answer is larger than the kernel's room"
        );
        Errno::IO.raw_os_error()
    };
    let (front, rest) = payload
        .split_at_mut_checked(answer.fixed.len())
        .ok_or_else(too_large)?;
    front.copy_from_slice(answer.fixed);
    let room = rest.get_mut(..answer.data.len()).ok_or_else(too_large)?;
    let length = answer.data.copy_into(room);
    let length = length.map_err(|error| failure(&error))?;
    Ok(answer.fixed.len() + length)
}

fn stage(answer: &Outgoing<'_>) -> Staged {
    match answer.data.clone().into_bytes() {
        Ok(data) => Staged {
            error: answer.error,
            bytes: [answer.fixed, &data].concat(),
        },
        Err(error) => Staged {
            error: failure(&error),
            bytes: Vec::new(),
        },
    }
}

impl Responder for Port {
    fn respond(&self, ticket: Ticket, answer: &Outgoing<'_>) -> io::Result<()> {
        let claimed = self.slots().claim(ticket)?;
        if let Some(mut held) = claimed {
            write_answer(&mut held, ticket.unique.0, answer);
            self.finish(held);
            return Ok(());
        }
        let staged = stage(answer);
        let mut slots = self.slots();
        let slot = slots.at(ticket.entry);
        if matches!(slot, Slot::Lent { unique } if *unique == ticket.unique.0) {
            *slot = Slot::Staged(staged);
            return Ok(());
        }
        // The handler has returned meanwhile.
        let mut held = slots.claim(ticket)?.ok_or(Errno::NOENT)?;
        drop(slots);
        write_answer(&mut held, ticket.unique.0, &staged.answer());
        self.finish(held);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        self.queue.upgrade().is_none_or(|queue| queue.may_wait())
    }

    fn backings(&self) -> Option<Backings> {
        Some(Backings::new(&self.device))
    }
}
