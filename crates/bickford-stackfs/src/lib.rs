//! StackFS: a directory passed through FUSE.
//!
//! [`StackFs`] serves SOURCE, a directory of any Linux file system, as it is: every kind of object,
//! extended attributes, ACLs, locks, holes, flags. Mounted with [`bickford::Session`]:
//!
//! ```no_run
//! use bickford_stackfs::{Preset, StackFs};
//!
//! # fn main() -> Result<(), bickford_stackfs::Error> {
//! let stackfs = StackFs::builder("/srv/data").preset(Preset::Opt).build()?;
//! println!("inodes are kept as {}", stackfs.identity());
//! # Ok(())
//! # }
//! ```
//!
//! - Permissions are checked by the kernel, with the caller's groups, capabilities and the lower
//!   ACLs: `FUSE_POSIX_ACL` is negotiated and brings `default_permissions` with it, unless
//!   [`Settings::permission_checks`] is off.
//! - SOURCE is held open, where privileges allow with a private copy of its mounts: what is mounted
//!   later, even over SOURCE or above it, does not get in the way, and no name leads out of it.
//! - Mounts below SOURCE are crossed as by a recursive bind mount.

mod append;
#[cfg(feature = "arguments")]
mod arguments;
mod backing;
mod beneath;
mod builder;
mod caller;
mod computed;
mod create;
mod credentials;
mod descriptors;
mod dir;
mod dir_stream;
mod filesystem;
mod fills;
mod handles;
mod invalidation;
mod io;
mod io_mode;
mod ioctl;
mod late_errors;
mod leases;
mod leaving;
mod listings;
mod lock_ops;
mod locks;
mod lower_files;
mod lower_watch;
mod magic;
mod mapped;
mod metadata;
mod name_changes;
mod node;
mod presets;
mod retry;
mod set_id;
mod sharded;
mod sys;
mod unfinished;
mod writers;
mod xattr;

use std::sync::{Arc, OnceLock};

#[cfg(feature = "arguments")]
pub use arguments::Arguments;
pub use builder::{Builder, Error};
pub use descriptors::raise_descriptor_limit;
pub use io_mode::IoMode;
pub use lower_watch::LowerWatch;
pub use presets::{Lower, Preset, Settings, UnknownName};

use backing::Backings;
use beneath::Beneath;
use credentials::Identity;
use descriptors::Share;
use dir::OpenDir;
use fills::Fills;
use handles::HandleTable;
use io::OpenFile;
use io_mode::InForce;
use leases::Leased;
use leaving::Leaving;
use lock_ops::WaitingLocks;
use locks::RecordLocks;
use lower_files::LowerFiles;
use lower_watch::Overflows;
use mapped::Mapped;
use name_changes::NameChanges;
use node::{DescriptorCache, Nodes};
use sys::fanotify::Fanotify;
use unfinished::Unfinished;
use writers::Writers;

/// The pass-through file system; see the crate.
pub struct StackFs {
    /// Shared with what answers requests later.
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    settings: Settings,
    nodes: Nodes,
    files: HandleTable<OpenFile>,
    lower_files: LowerFiles,
    /// Room for descriptors of whole-file locks.
    flocks: Arc<Share>,
    dirs: HandleTable<OpenDir>,
    open_dirs: Arc<Share>,
    unfinished: Unfinished,
    name_changes: NameChanges,
    fills: Fills,
    locks: Arc<RecordLocks>,
    waiting: Arc<WaitingLocks>,
    leaving: Leaving,
    leased: Arc<Leased>,
    identity: Identity,
    writers: Writers,
    mapped: Mapped,
    backings: Backings,
    /// Files that were not opened by request, open for reading and for both.
    readers: DescriptorCache,
    on_demand_writers: DescriptorCache,
    /// Settled when the session begins.
    in_force: OnceLock<InForce>,
    /// Where the lower directory is watched.
    fanotify: Option<Fanotify>,
    overflows: Overflows,
    beneath: Beneath,
}

impl std::fmt::Debug for StackFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackFs")
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}

impl StackFs {
    /// How inodes are told apart: as file handles, in a table or in the node id itself, or as
    /// descriptors, which bounds how many the kernel can know.
    #[must_use]
    pub fn identity(&self) -> &'static str {
        self.inner.nodes.identity()
    }

    /// Whether changes of others to the lower directory are seen and told to the kernel.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.inner.is_watched()
    }

    /// Whether the kernel opens directories without a request, as it does where nobody else changes SOURCE and
    /// listings go on from any place: on ext2, ext3, ext4 and XFS, and from Linux 6.14 on on tmpfs, with nothing
    /// mounted below, for a daemon with `CAP_SYS_ADMIN` and `CAP_DAC_OVERRIDE`. Known once the session has begun.
    #[must_use]
    pub fn lets_directories_open(&self) -> bool {
        self.inner.in_force().opens_directories
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.inner.settings
    }

    /// Inodes in the table; those whose node id says all are not counted.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.inner.nodes.table_len()
    }

    /// How data travel, once the session has begun; the mode that was asked for before.
    #[must_use]
    pub fn io_mode(&self) -> IoMode {
        self.inner.io_mode()
    }

    /// Files that the kernel reads and writes itself now, or would if they were opened again.
    #[must_use]
    pub fn passthrough_len(&self) -> usize {
        self.inner.backings.len()
    }
}

impl Inner {
    fn is_watched(&self) -> bool {
        self.fanotify.is_some()
    }

    fn io_mode(&self) -> IoMode {
        self.in_force().io
    }

    fn in_force(&self) -> InForce {
        let asked = InForce {
            io: self.settings.io,
            write_back: false,
            opens_directories: false,
            drops_what_is_written: false,
        };
        self.in_force.get().copied().unwrap_or(asked)
    }

    fn write_back(&self) -> bool {
        self.in_force().write_back
    }
}

/// Writes to standard error where the output of tests that pass is captured, too.
#[cfg(test)]
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
