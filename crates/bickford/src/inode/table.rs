//! The tree and the queue behind one lock, which is never held while user code runs or anybody
//! waits.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};

use rustix::io::Errno;

use super::claim::{Claim, Resolved, Want};
use super::queue::{Queue, Waiter};
use super::tree::{EdgeId, Ending, Identity, Tree};
use crate::ops::{Attr, Forget, Timestamp};
use crate::{FileHandle, Interrupt, NodeId};

#[derive(Debug)]
struct State {
    tree: Tree,
    queue: Queue,
}

/// The table of names.
#[derive(Debug)]
pub(crate) struct Table {
    state: Mutex<State>,
}

/// Claims that are being waited for. Dropped, it waits no longer, and what it has it gives back.
#[derive(Debug)]
pub(crate) struct Claiming(Stage);

#[derive(Debug)]
enum Stage {
    Done(Option<Result<Claim, Errno>>),
    Waiting(Arc<Table>, Arc<Waiter>),
}

impl Claiming {
    fn done(outcome: Result<Claim, Errno>) -> Self {
        Self(Stage::Done(Some(outcome)))
    }
}

impl Future for Claiming {
    type Output = Result<Claim, Errno>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Done(outcome) => Poll::Ready(outcome.take().unwrap_or(Err(Errno::INTR))),
            Stage::Waiting(table, waiter) => waiter
                .poll(cx.waker())
                .map_ok(|resolved| Claim::new(table, resolved)),
        }
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if let Stage::Waiting(table, waiter) = &self.0 {
            table.interrupt(waiter);
            if let Some(Ok(resolved)) = waiter.take() {
                table.give_back(&resolved);
            }
        }
    }
}

/// What a name was found to be, from its attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found(Identity);

impl Found {
    /// With `use_ino`, the inode number tells which names lead to one inode.
    pub(crate) fn new(attr: &Attr, use_ino: bool) -> Self {
        Self(Identity {
            kind: attr.file_type(),
            ino: if use_ino { attr.ino } else { 0 },
            linked: attr.links > 1,
        })
    }

    /// Other names lead to the same inode, or led to it before they were removed.
    pub(crate) fn with_others(self) -> Self {
        Self(Identity {
            linked: true,
            ..self.0
        })
    }
}

impl Table {
    pub(crate) fn new(keep_forgotten: bool) -> Arc<Self> {
        let tree = Tree::new(keep_forgotten);
        let queue = Queue::default();
        Arc::new(Self {
            state: Mutex::new(State { tree, queue }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims what an operation needs, and waits for it if need be. `interrupt` is only asked for
    /// when it has to wait, and ends the waiting.
    ///
    /// The future answers ENOENT when a node has no name any more, ESTALE when it is not known,
    /// EINVAL when a directory is to go into itself, EINTR when interrupted.
    pub(crate) fn claim(
        self: &Arc<Self>,
        want: Want<'_>,
        interrupt: impl FnOnce() -> Option<Arc<Interrupt>>,
    ) -> Claiming {
        let mut state = self.state();
        let State { tree, queue } = &mut *state;
        if queue.is_empty() {
            match want.resolve(tree) {
                Err(errno) => return Claiming::done(Err(errno)),
                Ok(resolved) if resolved.is_free(tree) => {
                    resolved.take(tree);
                    return Claiming::done(Ok(Claim::new(self, resolved)));
                }
                Ok(resolved) => resolved.drop_idle(tree),
            }
        }
        let waiter = Waiter::new(want.into_owned());
        queue.push(Arc::clone(&waiter));
        let woken = queue.advance(tree);
        drop(state);
        woken.wake();
        if !waiter.is_settled()
            && let Some(interrupt) = interrupt()
        {
            let (table, waiting) = (Arc::clone(self), Arc::clone(&waiter));
            interrupt.on_raise(move || table.interrupt(&waiting));
        }
        Claiming(Stage::Waiting(Arc::clone(self), waiter))
    }

    fn interrupt(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        let State { tree, queue } = &mut *state;
        let woken = queue.interrupt(tree, waiter);
        drop(state);
        if let Some(woken) = woken {
            woken.wake();
        }
    }

    pub(super) fn give_back(&self, resolved: &Resolved) {
        let mut state = self.state();
        let State { tree, queue } = &mut *state;
        resolved.give_back(tree);
        if !queue.is_empty() {
            let woken = queue.advance(tree);
            drop(state);
            woken.wake();
        }
    }

    /// The node that a claimed name leads to, with its lookup count raised.
    pub(crate) fn bind(&self, edge: EdgeId, found: Found) -> Result<NodeId, Errno> {
        self.state().tree.bind(edge, found.0)
    }

    /// A node that is asked for by its id and not by a name, with its lookup count raised. ESTALE where something
    /// else was found at its path.
    pub(crate) fn again(&self, node: NodeId, found: Found) -> Result<(), Errno> {
        self.state().tree.again(node, found.0)
    }

    /// The directory that a node is in; of the root it is the root. ESTALE where the node has no name.
    pub(crate) fn parent(&self, node: NodeId) -> Result<NodeId, Errno> {
        self.state().tree.parent(node)
    }

    /// A new node for a name that was just made.
    pub(crate) fn bind_new(&self, edge: EdgeId, found: Found) -> Result<NodeId, Errno> {
        let mut state = self.state();
        state.tree.unbind(edge);
        state.tree.bind(edge, found.0)
    }

    /// Another name for a node, whose lookup count is raised.
    pub(crate) fn bind_to(&self, edge: EdgeId, node: NodeId) -> Result<(), Errno> {
        self.state().tree.bind_to(edge, node)
    }

    /// A node that has no name, open with `handle`.
    pub(crate) fn bind_unnamed(&self, found: Found, handle: FileHandle) -> NodeId {
        let mut state = self.state();
        let node = state.tree.bind_unnamed(found.0);
        state.tree.opened(node, handle);
        node
    }

    /// A claimed name leads nowhere any more.
    pub(crate) fn unbind(&self, edge: EdgeId) {
        self.state().tree.unbind(edge);
    }

    /// What two exclusively claimed names lead to has moved from the first to the second, or
    /// changed places.
    pub(crate) fn rename(&self, from: EdgeId, to: EdgeId, exchange: bool) {
        self.state().tree.rename(from, to, exchange);
    }

    pub(crate) fn forget(&self, forgets: &[Forget]) {
        let mut state = self.state();
        for forget in forgets {
            state.tree.forget(forget.node, forget.count);
        }
    }

    pub(crate) fn opened(&self, node: NodeId, handle: FileHandle) {
        self.state().tree.opened(node, handle);
    }

    /// One open of a node was released.
    pub(crate) fn released(&self, node: NodeId, handle: FileHandle) -> Ending {
        self.state().tree.released(node, handle)
    }

    /// Whether an open file of the node has this handle.
    pub(crate) fn is_open(&self, node: NodeId, handle: FileHandle) -> bool {
        self.state().tree.is_open(node, handle)
    }

    /// The handle of an open file of the node, to be given back.
    pub(crate) fn borrow(&self, node: NodeId) -> Option<FileHandle> {
        self.state().tree.borrow(node)
    }

    /// Gives a borrowed handle back.
    pub(crate) fn unborrow(&self, node: NodeId, handle: FileHandle) -> Ending {
        self.state().tree.unborrow(node, handle)
    }

    /// An open file has ended. Answers the hidden name that is to be removed with it.
    pub(crate) fn closed(&self, node: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        self.state().tree.closed(node)
    }

    /// A name of a node is to be removed when it is closed. Answers false when it is closed.
    pub(crate) fn hide(&self, node: NodeId, parent: NodeId, name: &[u8]) -> bool {
        self.state().tree.hide(node, parent, name)
    }

    /// The node that a name leads to, with its lookup count raised, for a name that is not
    /// claimed. `None` where somebody is changing it.
    pub(crate) fn bind_free(&self, parent: NodeId, name: &[u8], found: Found) -> Option<NodeId> {
        self.state().tree.bind_free(parent, name, found.0)
    }

    /// The open node without a name that has the inode number of what was found, which tells of no other names.
    pub(crate) fn nameless(&self, found: Found) -> Option<NodeId> {
        let Identity { ino, linked, .. } = found.0;
        (ino != 0 && !linked).then(|| self.state().tree.nameless(found.0))?
    }

    /// Where a claimed name leads, how many names that has, and how many open files.
    pub(crate) fn uses(&self, edge: EdgeId) -> Option<(NodeId, usize, usize)> {
        let state = self.state();
        let node = state.tree.target(edge)?;
        let (names, open) = state.tree.uses(node);
        Some((node, names, open))
    }

    /// Remembers what a file is opened as. Answers whether it was the same last time.
    pub(crate) fn opened_as(&self, node: NodeId, modified: Timestamp, size: u64) -> bool {
        self.state().tree.opened_as(node, modified, size)
    }

    /// The node at a name, if the kernel knows one.
    pub(crate) fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.state().tree.child(parent, name)
    }

    /// The inode number of a node as the file system says; zero where it is not known.
    pub(crate) fn ino(&self, node: NodeId) -> u64 {
        self.state().tree.ino(node)
    }

    /// The node at a path from the root, if the kernel knows one.
    pub(crate) fn find(&self, path: &Path) -> Option<NodeId> {
        let state = self.state();
        let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
        names
            .filter(|name| !name.is_empty())
            .try_fold(NodeId::ROOT, |at, name| state.tree.child(at, name))
    }

    /// A path of a node, as it is now.
    pub(crate) fn path(&self, node: NodeId) -> Option<std::path::PathBuf> {
        let state = self.state();
        let edges = state.tree.edges_to(node).ok()?;
        Some(state.tree.path(&edges, None))
    }

    /// How many nodes, names and waiting operations there are.
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        let state = self.state();
        let (nodes, edges) = state.tree.sizes();
        (nodes, edges, state.queue.len())
    }
}
