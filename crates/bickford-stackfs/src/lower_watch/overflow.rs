//! More changes than can be told: everything is to be asked for again.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bickford::notify::NotifyError;
use bickford::{NodeId, Notifier};

use crate::Inner;
use crate::io_mode::IoMode;
use crate::node::ROOT;
use crate::sharded::{SHARDS, Sharded};

/// Directories of each part that are remembered; at more, some are read again for nothing.
const OPENED_MAX: usize = 65_536 / SHARDS;
/// Open inodes that wait in the queue at a time, so that changes find room there meanwhile.
const WAITING_MAX: usize = 4096;
/// The minor version that brought `FUSE_NOTIFY_INC_EPOCH`: Linux 6.16.
const EPOCHS_SINCE: u32 = 44;

/// What requests need to know of it.
#[derive(Default)]
pub(crate) struct Overflows {
    any: AtomicBool,
    /// Opened since the last.
    opened: Sharded<HashSet<u64>>,
    /// The kernel cannot let all names expire.
    without_epochs: AtomicBool,
}

impl Overflows {
    /// Everything that was opened before may be out of date.
    fn begin(&self) {
        self.any.store(true, Ordering::SeqCst);
        self.opened.for_each(HashSet::clear);
    }

    /// Whether the kernel may keep the listing that it has of a directory that is being opened: not the
    /// first time after an overflow.
    pub(crate) fn may_keep(&self, node: u64) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return true;
        }
        let mut opened = self.opened.of(node);
        if opened.len() >= OPENED_MAX {
            opened.clear();
        }
        !opened.insert(node)
    }

    /// Whether a name that is cached for good could not be let go after an overflow.
    pub(crate) fn are_final(&self) -> bool {
        self.without_epochs.load(Ordering::Relaxed)
    }

    fn without_epochs(&self) {
        if !self.without_epochs.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "StackFS: this kernel cannot let all names expire (Linux 6.16 is needed), as it must when \
                 more changes than can be told; names and attributes are cached for a second, although \
                 the lower directory is watched"
            );
        }
    }
}

impl Inner {
    /// Whether all that others change of a file's data is told. The kernel is not to guess then, from a new
    /// time of modification or because a file is opened, that its pages are old: while a write(2) is under way
    /// to the daemon, its page is in the cache already, unlocked. One that is dropped then may be read again
    /// before the lower file is written, and stays as it was.
    ///
    /// Not with [`IoMode::Cached`]: after an overflow, files that are open without a request are known by
    /// their time alone.
    pub(crate) fn is_told_of_data(&self) -> bool {
        self.is_watched()
            && self.in_force().io == IoMode::Plain
            && !self.overflows.are_final()
            && self.beneath.lister.is_alone()
            && self.nodes.on_source(ROOT)
    }

    /// The session begins, with a kernel of this minor version.
    pub(crate) fn settle_watch(&self, kernel_minor: u32) {
        if self.is_watched() && kernel_minor < EPOCHS_SINCE {
            self.overflows.without_epochs();
        }
    }
}

/// What is still to be told after an overflow.
#[derive(Debug, Default)]
pub(super) enum Owed {
    #[default]
    Nothing,
    /// That all names expire. It stands for every change until it is queued.
    Epoch,
    /// It is queued; whether the kernel took it.
    Queued(Arc<OnceLock<bool>>),
    /// That these inodes have changed: they are open, and nobody may look their names up.
    Opened {
        nodes: VecDeque<NodeId>,
        /// Those queued and not sent.
        waiting: Arc<AtomicUsize>,
    },
}

impl Owed {
    /// Whether a change need not be told by itself.
    pub(super) fn covers_all(&self) -> bool {
        matches!(self, Self::Epoch)
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Goes on as far as the queue of notifications has room.
    pub(super) fn pay(&mut self, stackfs: &Inner, notifier: &Notifier) {
        while let Some(next) = match self {
            Self::Nothing => None,
            Self::Epoch => epoch(stackfs, notifier),
            Self::Queued(taken) => taken.get().map(|&taken| {
                if !taken {
                    stackfs.overflows.without_epochs();
                }
                Self::Opened {
                    nodes: opened(stackfs),
                    waiting: Arc::default(),
                }
            }),
            Self::Opened { nodes, waiting } => drop_opened(nodes, waiting, notifier),
        } {
            *self = next;
        }
    }
}

fn epoch(stackfs: &Inner, notifier: &Notifier) -> Option<Owed> {
    // Before, so that what is opened from now on is read again.
    stackfs.overflows.begin();
    let taken = Arc::new(OnceLock::new());
    let told = Arc::clone(&taken);
    match notifier.increment_epoch_then(move |result| {
        let _ = told.set(result.is_ok());
    }) {
        Ok(()) => Some(Owed::Queued(taken)),
        Err(NotifyError::Ended) => Some(Owed::Nothing),
        Err(_) => None,
    }
}

fn opened(stackfs: &Inner) -> VecDeque<NodeId> {
    let mut nodes = HashSet::from([NodeId::ROOT.0]);
    stackfs.files.for_each(|file| {
        nodes.insert(file.node);
    });
    stackfs.dirs.for_each(|dir| {
        nodes.insert(dir.node);
    });
    nodes.into_iter().map(NodeId).collect()
}

fn drop_opened(
    nodes: &mut VecDeque<NodeId>,
    waiting: &Arc<AtomicUsize>,
    notifier: &Notifier,
) -> Option<Owed> {
    while waiting.load(Ordering::SeqCst) < WAITING_MAX {
        let Some(&node) = nodes.front() else {
            return Some(Owed::Nothing);
        };
        waiting.fetch_add(1, Ordering::SeqCst);
        let sent = Arc::clone(waiting);
        let sent = move |_| {
            sent.fetch_sub(1, Ordering::SeqCst);
        };
        match notifier.invalidate_inode_then(node, 0, 0, sent) {
            Ok(()) => drop(nodes.pop_front()),
            Err(error) => {
                waiting.fetch_sub(1, Ordering::SeqCst);
                return (error == NotifyError::Ended).then_some(Owed::Nothing);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bickford::abi::InitIn;
    use bickford::{FileSystem, Negotiation};

    use super::*;
    use crate::StackFs;
    use crate::{Lower, Preset};

    #[test]
    fn after_an_overflow_each_directory_is_read_again_once() {
        let overflows = Overflows::default();
        assert!(overflows.may_keep(1));
        for _ in 0..2 {
            overflows.begin();
            for node in [1, 2] {
                assert!(!overflows.may_keep(node) && overflows.may_keep(node));
            }
        }
        for node in 0..10 * 65_536 {
            overflows.may_keep(node);
        }
        let mut remembered = 0;
        overflows.opened.for_each(|part| remembered += part.len());
        assert!(remembered <= 65_536, "{remembered}");
    }

    /// With a kernel that cannot drop what it was given for good, nothing is given for good.
    #[test]
    fn without_epochs_the_cache_is_short() {
        let lower = tempfile::tempdir().unwrap();
        for (minor, long) in [(EPOCHS_SINCE - 1, false), (EPOCHS_SINCE, true)] {
            let mut settings = Preset::Fast.settings().lower(Lower::Watch);
            settings.io = IoMode::Plain;
            settings.permission_checks = false;
            let builder = StackFs::builder(lower.path()).settings(settings);
            let stackfs = builder.build().unwrap();
            if !stackfs.is_watched() {
                crate::say(format_args!("skipped: only root watches a file system"));
                return;
            }
            let init = InitIn {
                major: 7,
                minor,
                ..InitIn::default()
            };
            stackfs.init(&mut Negotiation::new(&init)).unwrap();
            let timeout = stackfs.inner.timeout(ROOT, settings.entry_timeout);
            assert_eq!(timeout > Duration::from_secs(1), long, "7.{minor}");
        }
    }
}
