//! What INIT settled, as far as decoding and encoding depend on it.

use bickford_abi::InitFlags;

/// The protocol of a session after INIT.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The minor version of the ABI: the lower of the kernel's and ours.
    pub minor: u32,
    /// The flags that both sides agreed on.
    pub flags: InitFlags,
}

impl Default for Protocol {
    fn default() -> Self {
        Self {
            minor: bickford_abi::MINOR_VERSION,
            flags: InitFlags::empty(),
        }
    }
}
