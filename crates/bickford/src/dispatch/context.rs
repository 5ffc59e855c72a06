//! Who asks, and what surrounds a request.

use std::sync::{Arc, Weak};

use bickford_abi::{INVALID_UIDGID, InHeader, Opcode};

use super::interrupt::Interrupt;
use crate::backing::Backings;
use crate::decode::Extensions;
use crate::notify::Notifier;
use crate::ops::Protocol;
use crate::transport::Responder;
use crate::{NodeId, Unique};

/// What a handler can know of a request beside the operation itself.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) header: &'a InHeader,
    pub(crate) opcode: Opcode,
    pub(crate) extensions: Extensions<'a>,
    pub(crate) slot: u32,
    pub(crate) shared: &'a Arc<super::Shared>,
    pub(crate) origin: Origin<'a>,
}

/// Where a request came from. Replies keep the device open, and contexts do not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// As long as its handler runs.
    Handler(&'a Arc<dyn Responder>),
    /// As long as it is not answered.
    Detached(&'a Weak<dyn Responder>),
}

impl Context<'_> {
    /// The request's number.
    #[must_use]
    #[inline]
    pub fn unique(&self) -> Unique {
        Unique(self.header.unique)
    }

    /// What is asked.
    #[must_use]
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// The caller's user for permissions (`fsuid`); `u32::MAX` where [`Context::has_ids`] says no.
    #[must_use]
    #[inline]
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Whether the kernel tells the caller's user and group. It does, but for requests that make nothing where
    /// [`Negotiation::allow_idmap`](crate::filesystem::Negotiation::allow_idmap) was asked for.
    #[must_use]
    #[inline]
    pub fn has_ids(&self) -> bool {
        self.header.uid != INVALID_UIDGID
    }

    /// The caller's group for permissions (`fsgid`); `u32::MAX` where [`Context::has_ids`] says no.
    #[must_use]
    #[inline]
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The calling thread; zero where it is in another pid namespace, or the kernel itself.
    #[must_use]
    #[inline]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// The extensions that the kernel sent: groups and security contexts of a creation.
    #[must_use]
    pub fn extensions(&self) -> Extensions<'_> {
        self.extensions
    }

    /// The wish of the caller that the request may end; keep it to see it later. Asked for after the
    /// request was answered, it is one that is never raised.
    #[must_use]
    pub fn interrupt(&self) -> Arc<Interrupt> {
        self.shared.in_flight.interrupt_of(self.slot, self.unique())
    }

    /// What was negotiated.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.shared.protocol()
    }

    /// What registers backing files for kernel pass-through with the session; see [`crate::backing`]. `None`
    /// where there is no device, or when the request was answered.
    #[must_use]
    pub fn backings(&self) -> Option<Backings> {
        match self.origin {
            Origin::Handler(responder) => responder.backings(),
            Origin::Detached(responder) => responder.upgrade()?.backings(),
        }
    }

    /// Whether what the answer to this request needs may wait: [`Reply::may_wait`](crate::Reply::may_wait) of that answer,
    /// which a reply made by [`Reply::intercept`](crate::Reply::intercept) knows nothing of.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        match self.origin {
            Origin::Handler(responder) => responder.may_wait(),
            Origin::Detached(responder) => may_wait(responder),
        }
    }

    /// The request, which is not answered yet, has changed attributes of a node that it does not name, and that the
    /// kernel drops, without more, when it is answered: of what a RENAME has moved, where that changes a time. What is
    /// named, a directory for one, need not be told. Where somebody else may have asked for them before, the kernel is
    /// told to refuse that answer ([`crate::docs::caching`]).
    pub fn has_changed(&self, node: NodeId) {
        self.shared.crossing.has_changed(node, self.pid());
    }

    /// Sends notifications to the kernel; queued, so that it can be used here.
    #[must_use]
    pub fn notifier(&self) -> &Notifier {
        &self.shared.notifier
    }
}

impl Context<'_> {
    /// A context of the same request that outlives the handler: for calls that a layer makes below
    /// after the handler has returned. Copies the header and, where there are any, the extensions.
    #[must_use]
    pub fn detach(&self) -> DetachedContext {
        DetachedContext {
            header: *self.header,
            opcode: self.opcode,
            extensions: self.extensions.as_bytes().into(),
            slot: self.slot,
            shared: Arc::clone(self.shared),
            responder: self.responder(),
        }
    }

    /// Who sends the answer to this request, as long as there is none.
    pub(crate) fn responder(&self) -> Weak<dyn Responder> {
        match self.origin {
            Origin::Handler(responder) => Arc::downgrade(responder),
            Origin::Detached(responder) => Weak::clone(responder),
        }
    }

    /// The same, for a method that has these opcodes: a layer calls it for a request of another one, too.
    pub(crate) fn detach_for(&self, opcodes: &[Opcode]) -> DetachedContext {
        let mut detached = self.detach();
        if let [first, ..] = opcodes
            && !opcodes.contains(&self.opcode)
        {
            detached.opcode = *first;
        }
        detached
    }
}

/// As [`Context::may_wait`]; what comes after the answer waits as long as it likes.
pub(crate) fn may_wait(responder: &Weak<dyn Responder>) -> bool {
    responder.upgrade().is_none_or(|it| it.may_wait())
}

/// A context that outlives the handler of its request; see [`Context::detach`].
#[derive(Clone, Debug)]
pub struct DetachedContext {
    header: InHeader,
    opcode: Opcode,
    extensions: Box<[u8]>,
    slot: u32,
    shared: Arc<super::Shared>,
    responder: Weak<dyn Responder>,
}

/// Names no slot, so that no interrupt is found.
const NO_SLOT: u32 = u32::MAX;

impl DetachedContext {
    /// The same, with an interrupt that is never raised: for what must be done below though the caller
    /// wants its request to end, as is giving back what was opened or putting back what was changed. With
    /// another context such a call may be refused with EINTR.
    #[must_use]
    pub fn uninterrupted(mut self) -> Self {
        self.slot = NO_SLOT;
        self
    }

    pub(crate) fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// The context, for a call of a file system.
    #[must_use]
    pub fn context(&self) -> Context<'_> {
        Context {
            header: &self.header,
            opcode: self.opcode,
            extensions: Extensions::new(&self.extensions),
            slot: self.slot,
            shared: &self.shared,
            origin: Origin::Detached(&self.responder),
        }
    }
}
