//! Removed objects that the kernel still knows.
//!
//! A node that is its own file handle has no lookup count here. That the kernel forgets it may be said late,
//! when it was looked up again since, and never of one that it had not looked up at all. So the kernel is asked:
//! a notification about an inode that it does not have is answered with ENOENT.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use bickford::NodeId;
use bickford::notify::Notifier;
use rustix::io::Errno;

use crate::descriptors::Share;
use crate::sharded::Sharded;

/// Whether the kernel is being asked for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    Once,
    /// It was to be asked again meanwhile.
    Again,
}

struct Object {
    fd: Arc<OwnedFd>,
    asked: Asked,
}

/// See the module.
pub(crate) struct Parked {
    objects: Sharded<HashMap<u64, Object>>,
    room: Share,
    notifier: OnceLock<Notifier>,
}

impl Parked {
    pub(crate) fn new(room: Share) -> Arc<Self> {
        Arc::new(Self {
            objects: Sharded::default(),
            room,
            notifier: OnceLock::new(),
        })
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.room.set_limit(limit);
    }

    /// How the kernel is asked.
    pub(crate) fn ask_through(&self, notifier: &Notifier) {
        if self.notifier.get().is_none() {
            // Another request may have come first, with the same.
            let _ = self.notifier.set(notifier.clone());
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<OwnedFd>> {
        if self.room.taken() == 0 {
            return None;
        }
        let objects = self.objects.of(id);
        objects.get(&id).map(|object| Arc::clone(&object.fd))
    }

    /// Keeps `fd` for the node, or what is kept for it already; false at the limit, when the object lives
    /// only as long as somebody else has it open.
    pub(crate) fn park(&self, id: u64, fd: OwnedFd) -> bool {
        let mut objects = self.objects.of(id);
        if objects.contains_key(&id) {
            return true;
        }
        if !self.room.take() {
            return false;
        }
        let object = Object {
            fd: Arc::new(fd),
            asked: Asked::No,
        };
        objects.insert(id, object);
        true
    }

    /// The kernel does not know the node any more.
    pub(crate) fn release(&self, id: u64) {
        drop(self.take(id));
    }

    /// What was kept, to be closed by the caller, which may hold a lock.
    pub(crate) fn take(&self, id: u64) -> Option<Arc<OwnedFd>> {
        if self.room.taken() == 0 {
            return None;
        }
        let removed = self.objects.of(id).remove(&id)?;
        self.room.give();
        Some(removed.fd)
    }

    /// The kernel may not know the node (any more): gives the object up if that is so.
    pub(crate) fn doubt(self: &Arc<Self>, id: u64) {
        if self.room.taken() > 0 && self.is_to_ask(id) {
            self.ask(id);
        }
    }

    fn ask(self: &Arc<Self>, id: u64) {
        let this = Arc::clone(self);
        let answered = move |answer| this.answered(id, &answer);
        let notifier = self.notifier.get();
        let asked = notifier.is_some_and(|notifier| {
            let asked = notifier.invalidate_inode_then(NodeId(id), -1, 0, answered);
            asked.is_ok()
        });
        if !asked {
            self.release(id);
        }
    }

    fn answered(self: &Arc<Self>, id: u64, answer: &io::Result<()>) {
        let error = answer.as_ref().err().and_then(Errno::from_io_error);
        if error == Some(Errno::NOENT) {
            self.release(id);
        } else if self.is_known(id) {
            self.ask(id);
        }
    }

    /// Whether it is to be asked for now.
    fn is_to_ask(&self, id: u64) -> bool {
        let mut objects = self.objects.of(id);
        objects.get_mut(&id).is_some_and(|object| {
            let now = object.asked == Asked::No;
            object.asked = if now { Asked::Once } else { Asked::Again };
            now
        })
    }

    /// The kernel knew the node when it was asked; whether to ask again.
    fn is_known(&self, id: u64) -> bool {
        let mut objects = self.objects.of(id);
        objects.get_mut(&id).is_some_and(|object| {
            let again = object.asked == Asked::Again;
            object.asked = if again { Asked::Once } else { Asked::No };
            again
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        OwnedFd::from(std::fs::File::open("/").unwrap())
    }

    #[test]
    fn parking_stops_at_the_limit() {
        let parked = Parked::new(Share::alone(2));
        assert!(parked.park(1, descriptor()));
        assert!(parked.park(1, descriptor()), "it is kept already");
        assert!(parked.park(2, descriptor()));
        assert!(!parked.park(3, descriptor()));
        parked.release(1);
        assert!(parked.get(1).is_none());
        assert!(parked.park(3, descriptor()));
    }

    #[test]
    fn an_object_is_given_up_when_the_kernel_does_not_know_it() {
        let parked = Parked::new(Share::alone(2));
        let gone = || Err(Errno::NOENT.into());
        parked.park(1, descriptor());
        assert!(!parked.is_to_ask(2), "it is not here");
        assert!(parked.is_to_ask(1));
        parked.answered(1, &Ok(()));
        assert!(parked.get(1).is_some());
        assert!(parked.is_to_ask(1));
        assert!(!parked.is_to_ask(1), "one question at a time");
        assert!(parked.is_known(1), "the answer may be older than the doubt");
        parked.answered(1, &gone());
        assert!(parked.get(1).is_none());
        assert_eq!(parked.room.taken(), 0);
    }
}
