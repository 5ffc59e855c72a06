//! Kernel pass-through: which inodes the kernel reads and writes itself.
//!
//! The kernel asks that all opens of an inode go the same way, with one backing id. So each inode
//! that is open is here with the way it goes and the number of its opens. The kernel lets go of an
//! inode before it sends RELEASE; what is counted here is never less than what it has.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bickford::backing::Backing;
use rustix::io::Errno;

use crate::descriptors::Share;
use crate::lower_files::Description;
use crate::sharded::{Sharded, lock};

/// Inodes that nobody has open and that stay registered, so that opening them again is cheap. Each takes
/// a descriptor, of those that a session makes room for when it starts.
const IDLE_MAX: usize = 2048;

/// Registers a file with the connection that a request came by.
pub(crate) type Register<'a> = &'a dyn Fn(BorrowedFd<'_>) -> Option<io::Result<Backing>>;

/// The way an open goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The kernel reads and writes the backing file with this id.
    Kernel(i32),
    /// Reads and writes come as requests.
    Daemon,
}

/// An open file that may be registered.
pub(crate) struct File<'a> {
    /// Open as the caller asked.
    pub(crate) lower: &'a Arc<Description>,
    /// Whether it, open for reading only, may be kept for further opens.
    pub(crate) lasting: bool,
}

enum Inode {
    Kernel(Registered),
    Daemon { opens: usize },
}

struct Registered {
    backing: Backing,
    opens: usize,
    /// Its place in the order of [`Idle`].
    idle: Option<u64>,
    /// Open for reading only: serves every handle that only reads, and may stay open idle without
    /// keeping the lower file from being executed or its file system from going read-only.
    reader: Option<Arc<Description>>,
}

/// Inodes that nobody has open, by when they were closed.
#[derive(Default)]
struct Idle {
    nodes: BTreeMap<u64, u64>,
    next: u64,
}

impl Idle {
    /// The place of a node that was just closed, and of what is to be given up for it, beyond `limit`.
    fn push(&mut self, node: u64, limit: usize) -> (u64, Option<(u64, u64)>) {
        let place = self.next;
        self.next += 1;
        self.nodes.insert(place, node);
        let beyond = self.nodes.len() > limit;
        (place, beyond.then(|| self.nodes.pop_first()).flatten())
    }
}

/// See the module.
pub(crate) struct Backings {
    inodes: Sharded<HashMap<u64, Inode>>,
    /// Taken with a lock of `inodes`, never the other way round.
    idle: Mutex<Idle>,
    registered: AtomicUsize,
    limit: usize,
    readers: Share,
    /// The kernel refuses them all.
    refused: AtomicBool,
}

impl Backings {
    /// At most `limit` inodes at once; the others go through the daemon. Some keep a descriptor of
    /// `readers`.
    pub(crate) fn new(limit: usize, readers: Share) -> Self {
        Self {
            inodes: Sharded::default(),
            idle: Mutex::default(),
            registered: AtomicUsize::new(0),
            limit,
            readers,
            refused: AtomicBool::new(false),
        }
    }

    /// One more open for reading, if the inode is registered and a descriptor for it at hand.
    pub(crate) fn read_again(&self, node: u64) -> Option<(i32, Arc<Description>)> {
        let mut inodes = self.inodes.of(node);
        let Some(Inode::Kernel(registered)) = inodes.get_mut(&node) else {
            return None;
        };
        let reader = registered.reader.clone()?;
        self.opened(registered);
        Some((registered.backing.id(), reader))
    }

    fn opened(&self, registered: &mut Registered) {
        registered.opens += 1;
        if let Some(place) = registered.idle.take() {
            lock(&self.idle).nodes.remove(&place);
        }
    }

    /// One more open, through `file`.
    pub(crate) fn open(&self, node: u64, file: &File<'_>, register: Register<'_>) -> Way {
        // The lock stays while the kernel notes the file, which waits for nothing: opens that come
        // at once must agree.
        let mut inodes = self.inodes.of(node);
        match inodes.get_mut(&node) {
            Some(Inode::Kernel(registered)) => {
                self.opened(registered);
                return Way::Kernel(registered.backing.id());
            }
            Some(Inode::Daemon { opens }) => {
                *opens += 1;
                return Way::Daemon;
            }
            None => {}
        }
        let Some(backing) = self.register(node, file, register) else {
            inodes.insert(node, Inode::Daemon { opens: 1 });
            return Way::Daemon;
        };
        let id = backing.id();
        let lasts = file.lasting && self.readers.take();
        let registered = Registered {
            backing,
            opens: 1,
            idle: None,
            reader: lasts.then(|| Arc::clone(file.lower)),
        };
        inodes.insert(node, Inode::Kernel(registered));
        Way::Kernel(id)
    }

    fn register(&self, node: u64, file: &File<'_>, register: Register<'_>) -> Option<Backing> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        if self.registered.fetch_add(1, Ordering::AcqRel) >= self.limit {
            self.registered.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let error = match register(file.lower.fd.as_fd()) {
            Some(Ok(backing)) => return Some(backing),
            Some(Err(error)) => error,
            None => io::Error::from(Errno::OPNOTSUPP),
        };
        self.registered.fetch_sub(1, Ordering::AcqRel);
        match Errno::from_io_error(&error) {
            // This file cannot be had so; others may.
            Some(
                Errno::LOOP
                | Errno::INVAL
                | Errno::ISDIR
                | Errno::NOMEM
                | Errno::NOSPC
                | Errno::NFILE,
            ) => {
                tracing::debug!("StackFS: inode {node:#x} goes through the daemon: {error}");
            }
            _ => {
                if !self.refused.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "StackFS: no kernel pass-through, data go through the daemon: {error}"
                    );
                }
            }
        }
        None
    }

    /// One open less.
    pub(crate) fn close(&self, node: u64) {
        let mut inodes = self.inodes.of(node);
        let evicted = match inodes.get_mut(&node) {
            None => return,
            Some(Inode::Daemon { opens }) => {
                *opens = opens.saturating_sub(1);
                if *opens > 0 {
                    return;
                }
                None
            }
            Some(Inode::Kernel(registered)) => {
                registered.opens = registered.opens.saturating_sub(1);
                if registered.opens > 0 {
                    return;
                }
                registered.reader.is_some().then(|| {
                    let (place, evicted) =
                        lock(&self.idle).push(node, IDLE_MAX.min(self.readers.limit() / 2));
                    registered.idle = Some(place);
                    evicted
                })
            }
        };
        match evicted {
            None => {
                let removed = inodes.remove(&node);
                drop(inodes);
                self.dropped(removed);
            }
            Some(evicted) => {
                drop(inodes);
                if let Some((place, node)) = evicted {
                    self.evict(node, |registered| registered.idle == Some(place));
                }
            }
        }
    }

    /// Does `ask` while nobody has the inode open; it must wait for nothing.
    pub(crate) fn unless_open<T>(&self, node: u64, ask: impl FnOnce() -> T) -> Option<T> {
        let inodes = self.inodes.of(node);
        let open = match inodes.get(&node) {
            None => false,
            Some(Inode::Daemon { opens }) => *opens > 0,
            Some(Inode::Kernel(registered)) => registered.opens > 0,
        };
        (!open).then(ask)
    }

    /// Gives an inode back that nobody has open.
    pub(crate) fn forget(&self, node: u64) {
        if self.registered.load(Ordering::Acquire) > 0 {
            self.evict(node, |_| true);
        }
    }

    /// Has an inode go the way that it is found fit for, as soon as nobody has it open.
    pub(crate) fn renew(&self, node: u64) {
        let mut inodes = self.inodes.of(node);
        let reader = match inodes.get_mut(&node) {
            Some(Inode::Kernel(registered)) if registered.opens > 0 => registered.reader.take(),
            _ => None,
        };
        drop(inodes);
        if reader.is_some() {
            self.readers.give();
        }
        self.forget(node);
    }

    fn evict(&self, node: u64, which: impl FnOnce(&Registered) -> bool) {
        let mut inodes = self.inodes.of(node);
        let Some(Inode::Kernel(registered)) = inodes.get_mut(&node) else {
            return;
        };
        if registered.opens > 0 || !which(registered) {
            return;
        }
        if let Some(place) = registered.idle {
            lock(&self.idle).nodes.remove(&place);
        }
        let removed = inodes.remove(&node);
        drop(inodes);
        self.dropped(removed);
    }

    fn dropped(&self, removed: Option<Inode>) {
        if let Some(Inode::Kernel(registered)) = removed {
            self.registered.fetch_sub(1, Ordering::AcqRel);
            if registered.reader.is_some() {
                self.readers.give();
            }
        }
    }

    /// How many inodes are registered now.
    pub(crate) fn len(&self) -> usize {
        self.registered.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(_: BorrowedFd<'_>) -> Option<io::Result<Backing>> {
        Some(Err(Errno::LOOP.into()))
    }

    fn lower() -> Arc<Description> {
        Description::new(Arc::new(tempfile::tempfile().unwrap().into()))
    }

    fn file(lower: &Arc<Description>) -> File<'_> {
        File {
            lower,
            lasting: true,
        }
    }

    #[test]
    fn an_inode_keeps_its_way_until_the_last_close() {
        let backings = Backings::new(8, Share::alone(8));
        let fd = lower();
        assert_eq!(backings.open(1, &file(&fd), &refuse), Way::Daemon);
        let panics: Register<'_> = &|_| panic!("asked again");
        assert_eq!(backings.open(1, &file(&fd), panics), Way::Daemon);
        assert!(backings.read_again(1).is_none());
        backings.close(1);
        backings.close(1);
        assert!(backings.inodes.of(1).is_empty());
        assert_eq!(backings.len(), 0);
    }

    #[test]
    fn a_refusal_of_privilege_is_not_asked_for_again() {
        let backings = Backings::new(8, Share::alone(8));
        let fd = lower();
        assert_eq!(
            backings.open(1, &file(&fd), &|_| Some(Err(Errno::PERM.into()))),
            Way::Daemon
        );
        assert_eq!(
            backings.open(2, &file(&fd), &|_| panic!("asked again")),
            Way::Daemon
        );
    }

    #[test]
    fn those_beyond_the_limit_are_not_registered() {
        let asked: Register<'_> = &|_| panic!("asked");
        let fd = lower();
        let none = Backings::new(0, Share::alone(0));
        assert_eq!(none.open(1, &file(&fd), asked), Way::Daemon);
    }
}
