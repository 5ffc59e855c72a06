//! What a layer needs of the modes below it.

use bickford_abi::InitFlags;

use super::about::{Describe, Observe};
use super::{OperationKind, OperationSet};
use crate::filesystem::Negotiation;
use crate::reply::Reply;

/// Operations whose answers can tell the kernel to close without FLUSH.
pub(super) const SPARING: OperationSet = OperationSet::of(&[
    OperationKind::Open,
    OperationKind::Create,
    OperationKind::Tmpfile,
    OperationKind::Flush,
]);

/// A reply for the file system below. Where every FLUSH is needed ([`Needs::flushes`]) the kernel
/// does not hear that it may spare them, as `FOPEN_NOFLUSH` and ENOSYS to FLUSH say.
#[allow(
    private_bounds,
    reason = "every operation is described and every answer observed, and nothing else"
)]
pub fn with_flushes<O: Describe, A: Observe>(needed: bool, _: &O, reply: Reply<A>) -> Reply<A> {
    if !needed || !SPARING.contains(O::KIND) {
        return reply;
    }
    reply.wrap(|mut result, reply| {
        A::ask_for_flushes(&mut result);
        reply.complete(result);
    })
}

/// What a layer cannot do without; each costs a faster mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// READ and WRITE must come here: no kernel pass-through.
    pub data: bool,
    /// The layer looks at the contents of READ and WRITE: they are bytes in memory, and WRITE does
    /// not bring a pipe. Without this, operations and results come without contents,
    /// of which a WRITE tells the length alone.
    pub contents: bool,
    /// OPEN, OPENDIR and their releases must come here: no zero-message open.
    pub opens: bool,
    /// Every close(2) must come here as a FLUSH: no `FOPEN_NOFLUSH`, and no ENOSYS to FLUSH from below.
    pub flushes: bool,
    /// Why, for the log: `counts the bytes of READ and WRITE`.
    pub because: String,
}

impl Needs {
    /// Takes out of the kernel's offer what the layer cannot stand, and says why.
    pub(super) fn withhold(&self, layer: &str, negotiation: &mut Negotiation) {
        if self.data || self.contents {
            let flags = InitFlags::PASSTHROUGH;
            self.withhold_mode(layer, negotiation, flags, "kernel pass-through");
            negotiation.set_max_stack_depth(0);
        }
        if self.contents {
            tracing::info!(layer, because = %self.because, "splice of written data is off");
        }
        if self.opens {
            let flags = InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT;
            self.withhold_mode(layer, negotiation, flags, "zero-message open");
        }
        if self.flushes {
            tracing::info!(layer, because = %self.because, "close without FLUSH is off");
        }
    }

    fn withhold_mode(
        &self,
        layer: &str,
        negotiation: &mut Negotiation,
        flags: InitFlags,
        mode: &str,
    ) {
        if negotiation.offered().intersects(flags) {
            tracing::info!(layer, because = %self.because, "{mode} is off");
        }
        negotiation.withhold(flags);
    }

    /// The modes that are off, each with the reason.
    #[must_use]
    pub fn turned_off(&self) -> Vec<String> {
        let data = self.data || self.contents;
        let modes = [
            (data, "kernel pass-through"),
            (self.contents, "splice of written data"),
            (self.opens, "zero-message open"),
            (self.flushes, "close without FLUSH"),
        ];
        let off = modes.iter().filter(|(is_off, _)| *is_off);
        off.map(|(_, mode)| format!("{mode} is off: {}", self.because))
            .collect()
    }
}
