//! Where each inode takes a descriptor: having the kernel forget those that nobody uses.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bickford::notify::PRUNE_SINCE;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::devices::device;
use super::table::{Held, Key, Location};
use super::{Nodes, ProcFd, ROOT, statx_of};
use crate::sharded::lock;
use crate::sys::LowerHandle;

/// Inodes that the kernel is asked to forget at once, about.
const PRUNED_MAX: usize = 1024;
/// How long an object waits for room: over io_uring, what the kernel forgets comes apart from lookups, and
/// some milliseconds later. Not longer, as with one worker nothing is forgotten meanwhile.
const ROOM_WAIT: Duration = Duration::from_millis(250);
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// How long nobody waits after somebody did in vain: what is held is in use then.
const NO_WAIT: Duration = Duration::from_secs(2);

impl Nodes {
    /// Whether inodes are held as descriptors and few are left: the kernel is then to forget what it does
    /// not use.
    pub(crate) fn are_scarce(&self) -> bool {
        self.table.held.is_half_taken()
    }

    /// The minor version of the kernel's interface.
    pub(crate) fn set_kernel(&self, minor: u32) {
        let prunes = minor >= PRUNE_SINCE;
        self.kernel_prunes.store(prunes, Ordering::Relaxed);
    }

    /// Nodes that the kernel is to be asked to forget now; asked after each lookup.
    pub(crate) fn to_prune(&self) -> Option<Vec<u64>> {
        if !self.are_scarce() {
            return None;
        }
        let lookups = self.scarce_lookups.fetch_add(1, Ordering::Relaxed);
        let limit = self.table.held.limit();
        let due = lookups.is_multiple_of((limit / 32).max(1));
        due.then(|| self.table.some_held((limit / 4).clamp(1, PRUNED_MAX)))
    }

    /// Enters an object that is held as a descriptor. Where there is no room, what the kernel has been asked
    /// to forget is waited for; ENFILE when that does not help.
    pub(super) fn enter_held(&self, key: Key<'_>, held: Held) -> Result<(u64, u64), Errno> {
        let mut held = Some(held);
        let mut until = None;
        loop {
            match self.table.enter(key, &mut held) {
                Err(Errno::NFILE) if self.may_wait(&mut until) => thread::sleep(ROOM_PAUSE),
                entered => return entered,
            }
        }
    }

    /// Whether to wait for room, or to go on waiting `until` then.
    fn may_wait(&self, until: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        let mut in_vain = lock(&self.in_vain);
        if in_vain.is_some_and(|at| now < at + NO_WAIT) {
            return false;
        }
        let waits = now < *until.get_or_insert(now + ROOM_WAIT);
        if !waits {
            *in_vain = Some(now);
        }
        waits
    }

    /// Whether the kernel forgets what it is told to prune. Others forget what they are told that a name has
    /// gone from, see [`Self::named`].
    pub(crate) fn kernel_prunes(&self) -> bool {
        self.kernel_prunes.load(Ordering::Relaxed)
    }

    /// A name of an object that is no directory and is held as a descriptor, and the node of its directory.
    pub(crate) fn named(&self, node: u64) -> Option<(u64, CString)> {
        let Ok(Location::Descriptor(fd)) = self.table.locate(node) else {
            return None;
        };
        if FileType::from_raw_mode(statx_of(fd.as_fd()).ok()?.stx_mode.into()).is_dir() {
            return None;
        }
        let top = std::fs::read_link(ProcFd::path(self.root.as_fd())).ok()?;
        let path = std::fs::read_link(ProcFd::path(fd.as_fd())).ok()?;
        let inside = path.strip_prefix(&top).ok()?;
        let name = CString::new(inside.file_name()?.as_bytes()).ok()?;
        let parent = inside.parent()?;
        if parent.as_os_str().is_empty() {
            return Some((ROOT, name));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(&self.root, parent, flags, Mode::empty()).ok()?;
        let statx = statx_of(parent.as_fd()).ok()?;
        let handle = self.fleeting_handle(parent.as_fd(), &statx);
        let parent = self.table.find(Key::Object {
            device: device(&statx),
            inode: statx.stx_ino,
            handle: handle.as_ref().map(LowerHandle::parts),
        });
        Some((parent?, name))
    }
}
