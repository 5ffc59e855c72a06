//! What a layer needs of the modes below it.

use bickford_abi::InitFlags;

use crate::filesystem::Negotiation;

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
        if self.opens {
            let flags = InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT;
            self.withhold_mode(layer, negotiation, flags, "zero-message open");
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
        ];
        let off = modes.iter().filter(|(is_off, _)| *is_off);
        off.map(|(_, mode)| format!("{mode} is off: {}", self.because))
            .collect()
    }
}
