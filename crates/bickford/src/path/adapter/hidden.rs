//! Names of removed files that are open, kept until they are closed (`hide_removed`).

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use rustix::fs::RenameFlags;

use super::Core;
use super::tree::edge;
use crate::inode::{Claim, Want};
use crate::path::future::FileSystem;
use crate::{Context, Errno, NodeId};

/// How many hidden names are tried, one after the other. Those of earlier sessions may still be
/// there: what was open when they ended was never closed.
const TRIES: usize = 1024;

/// A file with a hidden name, which is not removed with its last close yet.
#[derive(Debug)]
pub(super) struct Hidden {
    node: NodeId,
    parent: NodeId,
    name: CString,
}

impl<F: FileSystem> Core<F> {
    /// Hides what a name leads to if it is open and has no other name.
    pub(super) async fn hide(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &CStr,
    ) -> Result<Option<Hidden>, Errno> {
        for _ in 0..TRIES {
            let number = self.hidden.fetch_add(1, Ordering::Relaxed);
            let hidden = CString::new(format!(".fuse_hidden{number:016x}"));
            let hidden = hidden.map_err(|_| Errno::INVAL)?;
            match self.hide_as(cx, parent, name, hidden).await {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
        Err(Errno::BUSY)
    }

    /// EEXIST when there is something of the hidden name.
    async fn hide_as(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &CStr,
        hidden: CString,
    ) -> Result<Option<Hidden>, Errno> {
        let want = Want::change(parent, name.to_bytes()).and_change(parent, hidden.to_bytes());
        let claim = self.claim(cx, want).await?;
        let Some((node, 1, 1..)) = self.table.uses(edge(&claim)?) else {
            return Ok(None);
        };
        self.move_to_free(cx, &claim).await?;
        Ok(Some(Hidden {
            node,
            parent,
            name: hidden,
        }))
    }

    /// Renames the first claimed name to the second, where there is nothing.
    async fn move_to_free(&self, cx: &Context<'_>, claim: &Claim) -> Result<(), Errno> {
        let to = claim.second_edge().ok_or(Errno::STALE)?;
        match self.attr_at(cx, claim.second_path()).await {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(Errno::EXIST),
            Err(errno) => return Err(errno),
        }
        let (from, into) = (claim.path(), claim.second_path());
        let renaming = self.filesystem.rename(cx, from, into, RenameFlags::empty());
        renaming.await?;
        self.table.rename(edge(claim)?, to, false);
        Ok(())
    }

    /// The hidden name goes with the last close, which may have been meanwhile.
    pub(super) async fn end_hidden(&self, cx: &Context<'_>, hidden: Hidden) {
        let Hidden { node, parent, name } = hidden;
        if !self.table.hide(node, parent, name.to_bytes()) {
            self.unhide(cx, parent, name.to_bytes()).await;
        }
    }

    /// What was hidden gets its name back. It keeps the hidden one where that cannot be: it is not
    /// to be lost.
    pub(super) async fn show(&self, cx: &Context<'_>, hidden: Hidden, name: &CStr) {
        let Hidden {
            parent, name: from, ..
        } = hidden;
        let want = Want::change(parent, from.to_bytes()).and_change(parent, name.to_bytes());
        let shown = match self.table.claim(want, || None).await {
            Ok(claim) => self.move_to_free(cx, &claim).await,
            Err(errno) => Err(errno),
        };
        if let Err(errno) = shown {
            let (from, name) = (from.to_string_lossy(), name.to_string_lossy());
            tracing::warn!("rename {from} back to {name}, which could not be replaced: {errno}");
        }
    }

    /// Removes the name of a hidden file that was closed.
    pub(super) async fn unhide(&self, cx: &Context<'_>, parent: NodeId, name: &[u8]) {
        if let Err(errno) = self.remove_hidden(cx, parent, name).await {
            let name = String::from_utf8_lossy(name);
            tracing::warn!("remove {name}, the hidden name of a closed file: {errno}");
        }
    }

    async fn remove_hidden(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &[u8],
    ) -> Result<(), Errno> {
        let want = Want::change(parent, name);
        let claim = self.table.claim(want, || None).await?;
        self.filesystem.unlink(cx, claim.path()).await?;
        self.table.unbind(edge(&claim)?);
        Ok(())
    }
}
