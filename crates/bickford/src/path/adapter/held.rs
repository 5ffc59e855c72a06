//! What an operation holds while the file system works on it.

use rustix::io::Errno;

use super::Core;
use super::wait::wait;
use crate::filesystem::future::Spawn;
use crate::inode::{Claim, Ending, Want};
use crate::path::Subject;
use crate::path::future::FileSystem;
use crate::{Context, FileHandle, NodeId};

/// A claimed path, a handle, or both.
pub(super) struct Held<'a, F: FileSystem> {
    core: &'a Core<F>,
    cx: &'a Context<'a>,
    node: NodeId,
    claim: Option<Claim>,
    handle: Option<FileHandle>,
    /// Whether the handle belongs to another open, whose end has to wait for us.
    borrowed: bool,
}

impl<F: FileSystem> Held<'_, F> {
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject::new(self.claim.as_ref().map(Claim::path), self.handle)
    }
}

impl<F: FileSystem> Drop for Held<'_, F> {
    fn drop(&mut self) {
        self.claim = None;
        if let Some(handle) = self.handle.filter(|_| self.borrowed)
            && self.core.table.unborrow(self.node, handle) == Ending::Now
        {
            self.core.end_later(self.cx, Some(self.node), handle);
        }
    }
}

/// An open file that the kernel has not heard of yet. Dropped, it is released.
pub(super) struct Opening<'a, F: FileSystem> {
    core: &'a Core<F>,
    cx: &'a Context<'a>,
    /// The node that has it among its open files, if one has.
    node: Option<NodeId>,
    handle: FileHandle,
    kept: bool,
}

impl<F: FileSystem> Opening<'_, F> {
    /// It is the node's from now on.
    pub(super) fn bind(&mut self, node: NodeId) {
        self.core.table.opened(node, self.handle);
        self.node = Some(node);
    }

    /// The kernel hears of it.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl<F: FileSystem> Drop for Opening<'_, F> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let ending = self.node.map_or(Ending::Now, |node| {
            self.core.table.released(node, self.handle)
        });
        if ending == Ending::Now {
            self.core.end_later(self.cx, self.node, self.handle);
        }
    }
}

impl<F: FileSystem> Core<F> {
    /// Ends an open file where nothing can be waited for: in a task of its own, or else at once.
    fn end_later(&self, cx: &Context<'_>, node: Option<NodeId>, handle: FileHandle) {
        let Some((this, spawner)) = &self.tasks else {
            return wait(self.end(cx, node, handle));
        };
        if let Some(core) = this.upgrade() {
            let cx = cx.detach();
            spawner.spawn(Box::pin(async move {
                core.end(&cx.context(), node, handle).await;
            }));
        }
    }

    /// A file that was just opened.
    pub(super) fn opening<'a>(&'a self, cx: &'a Context<'a>, handle: FileHandle) -> Opening<'a, F> {
        Opening {
            core: self,
            cx,
            node: None,
            handle,
            kept: false,
        }
    }

    /// For an operation on an inode, perhaps through an open file.
    pub(super) async fn about<'a>(
        &'a self,
        cx: &'a Context<'a>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<Held<'a, F>, Errno> {
        let mut held = Held {
            core: self,
            cx,
            node,
            claim: None,
            handle,
            borrowed: false,
        };
        match self.claim(cx, Want::node(node)).await {
            Ok(claim) => held.claim = Some(claim),
            Err(Errno::NOENT) if handle.is_some() => {}
            Err(Errno::NOENT) => return self.borrow(cx, node),
            Err(errno) => return Err(errno),
        }
        Ok(held)
    }

    /// For an operation on an inode without a path, through whatever open file of it there is.
    pub(super) fn borrow<'a>(
        &'a self,
        cx: &'a Context<'a>,
        node: NodeId,
    ) -> Result<Held<'a, F>, Errno> {
        let handle = self.table.borrow(node).ok_or(Errno::NOENT)?;
        let mut held = self.handle_only(cx, node, handle);
        held.borrowed = true;
        Ok(held)
    }

    /// Whether an operation on an open file comes without its path. Handle zero tells nothing: it is what
    /// a file system has that does not open files, or directories.
    pub(super) fn comes_by_handle(&self, handle: FileHandle) -> bool {
        self.options.handles_only && handle.0 != 0
    }

    /// For an operation on an open file.
    pub(super) async fn file<'a>(
        &'a self,
        cx: &'a Context<'a>,
        node: NodeId,
        handle: FileHandle,
    ) -> Result<Held<'a, F>, Errno> {
        if self.comes_by_handle(handle) {
            return Ok(self.handle_only(cx, node, handle));
        }
        self.about(cx, node, Some(handle)).await
    }

    /// For an operation on an open file that may take long: it claims nothing.
    pub(super) fn handle_only<'a>(
        &'a self,
        cx: &'a Context<'a>,
        node: NodeId,
        handle: FileHandle,
    ) -> Held<'a, F> {
        Held {
            core: self,
            cx,
            node,
            claim: None,
            handle: Some(handle),
            borrowed: false,
        }
    }
}
