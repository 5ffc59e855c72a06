//! Objects that have one inode number and are not one object: files of overlayfs, and of btrfs the directories that stand
//! in a snapshot for its subvolumes.
//!
//! Without its option `index=on` overlayfs breaks hard links: the names of a file in a lower layer become files of their
//! own as they are changed, and until then tell one inode number. What tells them apart from the beginning, and stays
//! when the number changes, is their inode in the kernel's memory: inotify(7) has one watch for each.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FileType, Statx};
use rustix::io::Errno;

use super::devices::device;
use super::table::{Key, Location};
use super::{Nodes, ProcFd};
use crate::sharded::lock;

/// `IN_UNMOUNT`, which does not come of what is held open.
const NO_EVENT: WatchFlags = WatchFlags::from_bits_retain(libc::IN_UNMOUNT);
/// A watch may be given up just while it is found again.
const TRIES: usize = 8;
/// Each watch that is given up leaves an event, which nobody needs; so many are read away at a time.
const DRAINED: usize = 64;
/// As many watches may be given up while one is found: other lookups do so all the time.
const REMEMBERED: usize = 1024;
/// `struct inotify_event`, without a name.
const EVENT_BYTES: usize = 16;

#[derive(Default)]
struct Counted {
    /// Those who have the watch with this number.
    holders: HashMap<i32, usize>,
    removals: usize,
    /// The numbers of the last watches that were given up. A number does not come again soon.
    removed: VecDeque<i32>,
}

impl Counted {
    /// Whether this watch may have been given up since there were `before` removals.
    fn may_be_gone(&self, number: i32, before: usize) -> bool {
        let since = self.removals.wrapping_sub(before);
        since > self.removed.len()
            || self
                .removed
                .iter()
                .rev()
                .take(since)
                .any(|&gone| gone == number)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Watches {
    inotify: OnceLock<OwnedFd>,
    counted: Mutex<Counted>,
    len: AtomicUsize,
    failure_said: AtomicBool,
}

/// An inode in memory, watched as long as this lives.
pub(super) struct Watch {
    watches: Arc<Watches>,
    number: i32,
}

impl Watch {
    /// No device has this number.
    pub(super) fn key(&self) -> Key<'static> {
        Key::Object {
            device: u64::MAX,
            inode: u64::from(self.number.cast_unsigned()),
            handle: None,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.give_up(self.number);
    }
}

impl Watches {
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    fn inotify(&self) -> Result<&OwnedFd, Errno> {
        if let Some(fd) = self.inotify.get() {
            return Ok(fd);
        }
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(self.inotify.get_or_init(|| fd))
    }

    /// The watch of the inode of `object`, a new one where it is `wanted`.
    fn of(self: &Arc<Self>, object: BorrowedFd<'_>, wanted: bool) -> Result<Option<Watch>, Errno> {
        let fd = self.inotify()?;
        for _ in 0..TRIES {
            let before = lock(&self.counted).removals;
            let number = inotify::add_watch(fd, ProcFd::path(object), NO_EVENT)?;
            let mut counted = lock(&self.counted);
            if let Some(holders) = counted.holders.get_mut(&number) {
                *holders += 1;
            } else if !wanted {
                self.remove(&mut counted, number);
                return Ok(None);
            } else if counted.may_be_gone(number, before) {
                continue;
            } else {
                counted.holders.insert(number, 1);
                self.len.fetch_add(1, Ordering::Relaxed);
            }
            let watches = Arc::clone(self);
            return Ok(Some(Watch { watches, number }));
        }
        Err(Errno::AGAIN)
    }

    fn give_up(&self, number: i32) {
        let mut counted = lock(&self.counted);
        let Some(holders) = counted.holders.get_mut(&number) else {
            return;
        };
        *holders -= 1;
        if *holders == 0 {
            counted.holders.remove(&number);
            self.len.fetch_sub(1, Ordering::Relaxed);
            self.remove(&mut counted, number);
        }
    }

    /// With the lock, so that nobody takes the watch for one that stays.
    fn remove(&self, counted: &mut Counted, number: i32) {
        let Some(fd) = self.inotify.get() else {
            return;
        };
        // It went by itself with the last name of the file.
        let _ = inotify::remove_watch(fd, number);
        counted.removals = counted.removals.wrapping_add(1);
        if counted.removed.len() == REMEMBERED {
            counted.removed.pop_front();
        }
        counted.removed.push_back(number);
        if counted.removals.is_multiple_of(DRAINED) {
            let _ = rustix::io::read(fd, &mut [0; DRAINED * EVENT_BYTES]);
        }
    }

    fn say(&self, error: Errno) {
        // A file that this process may not read, which is not for want of anything.
        if error == Errno::ACCESS {
            return;
        }
        if !self.failure_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "StackFS: an inode of overlayfs that has several names cannot be watched ({error}): what is written to \
                 one name may go to another; raise fs.inotify.max_user_watches and max_user_instances, or mount the \
                 overlay with index=on"
            );
        }
    }
}

impl Nodes {
    /// What tells an object from one with the same inode number, where there may be one.
    pub(super) fn watch_of(&self, fd: BorrowedFd<'_>, statx: &Statx) -> Option<Watch> {
        if self.fleeting.is_left_out(fd, statx) {
            return self.watches.of(fd, true).ok().flatten();
        }
        let linked = statx.stx_nlink > 1;
        let kind = FileType::from_raw_mode(statx.stx_mode.into());
        let alone = kind.is_dir() || !linked && self.watches.is_empty();
        if alone || !self.fleeting.is_overlay(fd, device(statx)) {
            return None;
        }
        match self.watches.of(fd, linked) {
            Ok(watch) => watch.filter(|watch| !self.is_known_by_number(statx, watch)),
            Err(error) => {
                if linked {
                    self.watches.say(error);
                }
                None
            }
        }
    }

    /// Whether the inode was entered when it had one name, and so without a watch.
    fn is_known_by_number(&self, statx: &Statx, watch: &Watch) -> bool {
        let known = self.table.find(Key::Object {
            device: device(statx),
            inode: statx.stx_ino,
            handle: None,
        });
        let Some(Ok(Location::Descriptor(held))) = known.map(|node| self.table.locate(node)) else {
            return false;
        };
        matches!(self.watches.of(held.as_fd(), false), Ok(Some(same)) if same.number == watch.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> OwnedFd {
        OwnedFd::from(std::fs::File::open(path).unwrap())
    }

    #[test]
    fn an_inode_has_one_watch_as_long_as_somebody_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let [one, link, other] = ["one", "link", "other"].map(|name| directory.path().join(name));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&other, "").unwrap();
        std::fs::hard_link(&one, &link).unwrap();
        let [one, link, other] = [one, link, other].map(|path| opened(&path));
        let watches = Arc::new(Watches::default());
        let of = |fd: &OwnedFd, wanted| watches.of(fd.as_fd(), wanted).unwrap();
        assert!(of(&one, false).is_none() && watches.is_empty());
        let first = of(&one, true).unwrap();
        assert_eq!(of(&link, false).unwrap().number, first.number);
        assert_ne!(of(&other, true).unwrap().number, first.number);
        assert!(of(&other, false).is_none(), "given up");
        let second = of(&link, true).unwrap();
        drop(first);
        assert_eq!(of(&one, false).unwrap().number, second.number);
        drop(second);
        assert!(of(&one, false).is_none() && watches.is_empty());
        for _ in 0..3 * DRAINED {
            assert!(of(&one, false).is_none());
        }
    }

    /// Each lookup of a file with one name gives one up.
    #[test]
    fn watches_of_others_that_are_given_up_meanwhile_are_no_matter() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| {
            std::fs::write(directory.path().join(name), "").unwrap();
            opened(&directory.path().join(name))
        });
        let watches = Arc::new(Watches::default());
        let of = |fd: &OwnedFd| watches.of(fd.as_fd(), true).unwrap().unwrap();
        let [kept, gone] = [&one, &other].map(of);
        let (kept_number, gone_number) = (kept.number, gone.number);
        let before = lock(&watches.counted).removals;
        drop(gone);
        let counted = lock(&watches.counted);
        assert!(!counted.may_be_gone(kept_number, before));
        assert!(counted.may_be_gone(gone_number, before));
        assert!(!counted.may_be_gone(gone_number, before + 1), "earlier");
        drop(counted);
        for _ in 0..REMEMBERED {
            drop(of(&other));
        }
        assert_eq!(lock(&watches.counted).removed.len(), REMEMBERED);
        assert!(lock(&watches.counted).may_be_gone(kept_number, before));
    }
}
