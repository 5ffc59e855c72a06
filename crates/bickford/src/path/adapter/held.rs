//! What an operation holds while the file system works on it.

use rustix::io::Errno;

use super::Core;
use crate::inode::{Claim, Ending, Want};
use crate::path::{FileSystem, Subject};
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
            self.core.end(self.cx, self.node, handle);
        }
    }
}

impl<F: FileSystem> Core<F> {
    /// For an operation on an inode, perhaps through an open file.
    pub(super) fn about<'a>(
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
        match self.claim(cx, Want::node(node)) {
            Ok(claim) => held.claim = Some(claim),
            Err(Errno::NOENT) if handle.is_some() => {}
            Err(Errno::NOENT) => {
                held.handle = self.table.borrow(node);
                held.borrowed = held.handle.is_some();
                held.handle.ok_or(Errno::NOENT)?;
            }
            Err(errno) => return Err(errno),
        }
        Ok(held)
    }

    /// For an operation on an open file.
    pub(super) fn file<'a>(
        &'a self,
        cx: &'a Context<'a>,
        node: NodeId,
        handle: FileHandle,
    ) -> Result<Held<'a, F>, Errno> {
        if self.options.handles_only {
            return Ok(self.handle_only(cx, node, handle));
        }
        self.about(cx, node, Some(handle))
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
