//! Whether directories may be opened without a request.
//!
//! READDIR comes without a handle then, and the directory is opened for it, unless one is still open where the
//! listing goes on (`unfinished.rs`). So a listing must go on from any of its offsets in a directory that was opened
//! anew: not everywhere. btrfs remembers with a descriptor where the directory ended when it was opened, and who
//! renames what it lists finds its new names for ever without; ramfs and others keep the position with it, and pass
//! over names where some were removed.

use bickford::Negotiation;
use bickford::abi::InitFlags;

use crate::magic;

/// The interface of Linux 6.14.
const TMPFS_MINOR: u32 = 42;

/// What lists the directories of SOURCE.
/// By default one of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lister {
    /// `statfs.f_type` of SOURCE.
    magic: u32,
    /// No other file system is mounted below it, and none can be.
    alone: bool,
}

impl Lister {
    /// Whether nothing is mounted below SOURCE, and nothing can be.
    pub(crate) fn is_alone(self) -> bool {
        self.alone
    }

    /// Of SOURCE; see [`Self::is_alone`].
    pub(crate) fn new(magic: u32, alone: bool) -> Self {
        Self { magic, alone }
    }

    /// Whether a listing goes on in a directory that was opened anew.
    fn goes_on_anywhere(self, kernel_minor: u32) -> bool {
        self.alone
            && match self.magic {
                // From a hash of the name, or from a place in the directory.
                magic::EXT | magic::XFS => true,
                // What was made last comes first; before, something is kept with the descriptor.
                magic::TMPFS => kernel_minor >= TMPFS_MINOR,
                _ => false,
            }
    }

    /// Whether the kernel may open directories without asking, where nobody else changes them: it caches their
    /// listings then. They are opened below after the caller has opened them, whatever has become of their modes,
    /// which takes `CAP_DAC_OVERRIDE`.
    pub(crate) fn lets_the_kernel_open(
        self,
        overrides_modes: bool,
        negotiation: &Negotiation,
    ) -> bool {
        overrides_modes
            && negotiation
                .offered()
                .contains(InitFlags::NO_OPENDIR_SUPPORT)
            && self.goes_on_anywhere(negotiation.kernel_minor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_depends_on_what_lists() {
        let goes_on = |magic, alone, minor| Lister { magic, alone }.goes_on_anywhere(minor);
        assert!(goes_on(magic::EXT, true, 31) && goes_on(magic::XFS, true, 31));
        assert!(goes_on(magic::TMPFS, true, 42) && !goes_on(magic::TMPFS, true, 41));
        for (name, magic) in [("btrfs", 0x9123_683e), ("ramfs", 0x8584_58f6)] {
            assert!(!goes_on(magic, true, 45), "{name}");
        }
        assert!(!goes_on(magic::EXT, false, 45), "others may be below");
    }
}
