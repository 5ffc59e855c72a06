//! `--lower watch`: what the kernel has cached stays true although others change the lower
//! directory.
//!
//! fanotify(7) tells every change on the lower file system, with the directory, name and object; a
//! thread turns them into notifications. Changes that StackFS made itself are told apart by their
//! pid. Of times of last access nothing is told: it would be with every read below.
//!
//! Where the queue of fanotify or of notifications overflows, every name expires, the data and
//! attributes of every open file and directory are dropped, and directories that are opened later are
//! read again. What has no name that is looked up and is not open by request keeps what the kernel has
//! of it: the attributes of a current directory or bind mount until it is opened, a file that was
//! opened without one ([`crate::IoMode::Cached`]) until its name is looked up.
//!
//! What is being looked up while it changes could be answered with what it was, after the
//! notification: the kernel drops nothing then, and would keep the old answer. So each change is told
//! twice, the second time [`again::SETTLE`] after every request that may have read the old state has
//! been answered.

mod again;
mod overflow;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use bickford::dispatch::Server;
use bickford::notify::NotifyError;
use bickford::{NodeId, Notifier};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::sys::fanotify::{self, Change, Fanotify};
use crate::{Inner, StackFs};
use again::{Again, LOOK, Told};
use overflow::Owed;

pub(crate) use overflow::Overflows;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct LowerWatch {
    /// Readable from the end on.
    ending: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl StackFs {
    /// Begins to keep what the kernel has cached true; to be called as soon as the session of this
    /// file system has begun. `None` when the file system was not built to be watched.
    ///
    /// The kernel is told names as they are below: see [`Self::watch_lower_shown`] for a layer that shows others.
    ///
    /// What this process changes in the lower directory counts as changed through this file system, and is not told: a
    /// program that changes it beside the mount, or serves another mount of it, is to do so in another process.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn watch_lower(&self, server: &Arc<Server>) -> io::Result<Option<LowerWatch>> {
        self.watch_lower_shown(server, |name| Some(name.to_owned()))
    }

    /// [`Self::watch_lower`] where what stands over this file system shows names otherwise than they are below.
    /// `shown` says how, and `None` of those that are not shown.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn watch_lower_shown(
        &self,
        server: &Arc<Server>,
        shown: impl Fn(&CStr) -> Option<CString> + Send + 'static,
    ) -> io::Result<Option<LowerWatch>> {
        if !self.is_watched() {
            return Ok(None);
        }
        let ending = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let watcher = Watcher {
            stackfs: Arc::clone(&self.inner),
            notifier: server.notifier().clone(),
            shown: Box::new(shown),
            server: Arc::clone(server),
            again: Again::default(),
            owed: Owed::default(),
            ending: Arc::clone(&ending),
            pid: std::process::id().cast_signed(),
        };
        let name = "bickford-watch".into();
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || watcher.run())?;
        Ok(Some(LowerWatch {
            ending,
            thread: Some(thread),
        }))
    }
}

impl Drop for LowerWatch {
    fn drop(&mut self) {
        if let Err(error) = rustix::io::write(&*self.ending, &1u64.to_ne_bytes()) {
            return tracing::error!("ending the watch of the lower directory: {error}");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the lower directory panicked");
        }
    }
}

/// How a name below is shown, if it is.
type Shown = dyn Fn(&CStr) -> Option<CString> + Send;

struct Watcher {
    stackfs: Arc<Inner>,
    notifier: Notifier,
    shown: Box<Shown>,
    server: Arc<Server>,
    again: Again,
    owed: Owed,
    ending: Arc<OwnedFd>,
    pid: i32,
}

impl Watcher {
    fn run(mut self) {
        let stackfs = Arc::clone(&self.stackfs);
        let Some(group) = &stackfs.fanotify else {
            return;
        };
        let mut buffer = vec![0; 64 << 10];
        let ending = Arc::clone(&self.ending);
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK.subsec_nanos()),
        };
        loop {
            let idle = self.again.is_empty() && self.owed.is_nothing();
            let timeout = (!idle).then_some(&look);
            let fd = group.as_fd();
            let mut fds = [
                PollFd::new(&fd, PollFlags::IN),
                PollFd::new(&*ending, PollFlags::IN),
            ];
            let polled = rustix::event::poll(&mut fds, timeout);
            let [changes, end] = fds.map(|fd| !fd.revents().is_empty());
            match polled {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if end => return,
                Ok(_) if changes => self.read(group, &mut buffer),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!("watching the lower directory: {error}; names may be stale");
                    return;
                }
            }
            self.owed.pay(&self.stackfs, &self.notifier);
            self.tell_again();
        }
    }

    fn read(&mut self, group: &Fanotify, buffer: &mut [u8]) {
        match group.read(buffer) {
            Ok(length) => {
                let mut events = buffer.get(..length).unwrap_or_default();
                while let Some(change) = fanotify::next_change(&mut events) {
                    if let Err(error) = self.handle(&change) {
                        self.not_told(error);
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                tracing::error!("read changes of the lower directory: {error}");
                self.overflow();
            }
        }
    }

    fn handle(&mut self, change: &Change<'_>) -> Result<(), NotifyError> {
        if change.mask & fanotify::OVERFLOW != 0 {
            self.overflow();
            return Ok(());
        }
        if change.pid == self.pid || self.owed.covers_all() {
            return Ok(());
        }
        let nodes = &self.stackfs.nodes;
        let object = change
            .object
            .as_ref()
            .and_then(|handle| nodes.node_of_handle(handle));
        let directory = change.directory.as_ref();
        let parent = directory.and_then(|(handle, _)| nodes.node_of_handle(handle));
        if let Some(node) = object {
            if change.mask & fanotify::ATTRIB != 0 {
                self.let_go(node)?;
            }
            self.inode(node, change.mask & fanotify::MODIFY != 0, false)?;
        }
        let (Some(parent), Some((_, name))) = (parent, directory) else {
            return Ok(());
        };
        if change.mask & fanotify::NAMES == 0 {
            return match object {
                None => self.inode(parent, false, false),
                Some(_) => Ok(()),
            };
        }
        let Ok(name) = CString::new(*name) else {
            return Ok(());
        };
        if let Some(name) = (self.shown)(&name) {
            // A directory that has two names in the kernel's cache is ESTALE by the new one as long as somebody
            // makes names where it was.
            if change.mask & (fanotify::NAMES | fanotify::ONDIR) == fanotify::DIRECTORY_MOVED {
                self.notifier.invalidate_entry(NodeId(parent), &name)?;
            }
            let name = Told::Name(NodeId(parent), name);
            self.tell(&name)?;
            self.later(name)?;
        }
        // Its times have changed, and a cached listing is wrong.
        self.inode(parent, true, true)
    }

    /// Gives up what is kept open of a file that nobody uses: it may have lost its last name. That expires,
    /// and where nobody looks it up the kernel forgets nothing.
    fn let_go(&self, node: u64) -> Result<(), NotifyError> {
        let stackfs = &self.stackfs;
        stackfs.backings.renew(node);
        let kept = stackfs.readers.get(node);
        let kept = kept.or_else(|| stackfs.on_demand_writers.get(node));
        // Who has it open needs it: that is for the kernel to know.
        let removed = kept.and_then(|fd| rustix::fs::fstat(&fd).ok());
        match removed.is_some_and(|stat| stat.st_nlink == 0) && stackfs.nodes.kernel_prunes() {
            true => self.notifier.prune(&[NodeId(node)]),
            false => Ok(()),
        }
    }

    /// Tells that an inode has changed, now and again later. Data are read after a racing answer, and so
    /// are right without being dropped again; listings may come with it.
    fn inode(&mut self, node: u64, data: bool, listing: bool) -> Result<(), NotifyError> {
        self.tell(&Told::Inode(NodeId(node), data))?;
        self.later(Told::Inode(NodeId(node), listing))
    }

    fn tell(&self, told: &Told) -> Result<(), NotifyError> {
        match told {
            // Not dropped: one that is right already would take with it what is mounted there, and be "(deleted)"
            // for who is. Before Linux 6.2 it is dropped all the same.
            Told::Name(parent, name) => self.notifier.expire_entry(*parent, name),
            Told::Inode(node, data) => {
                let offset = if *data { 0 } else { -1 };
                self.notifier.invalidate_inode(*node, offset, 0)
            }
        }
    }

    fn later(&mut self, told: Told) -> Result<(), NotifyError> {
        let added = self.again.add(told, Instant::now());
        added.ok_or(NotifyError::Full)
    }

    /// Tells again what no request in flight has raced with.
    fn tell_again(&mut self) {
        let now = Instant::now();
        if !self.again.is_due(now) {
            return;
        }
        self.again.look(now, &self.server.in_flight().list());
        while let Some(told) = self.again.next(now) {
            if let Err(error) = self.tell(&told) {
                return self.not_told(error);
            }
        }
    }

    fn not_told(&mut self, error: NotifyError) {
        match error {
            // Nobody is left to be told.
            NotifyError::Ended => self.again.clear(),
            _ => self.overflow(),
        }
    }

    fn overflow(&mut self) {
        if !self.owed.covers_all() {
            tracing::warn!("more changes of the lower directory than can be told; all expires");
        }
        self.again.clear();
        self.owed = Owed::Epoch;
    }
}
