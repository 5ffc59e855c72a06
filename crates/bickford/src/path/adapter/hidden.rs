//! Names of removed files that are open, kept until they are closed (`hide_removed`).

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use rustix::fs::RenameFlags;

use super::Core;
use super::tree::edge;
use crate::inode::{Claim, ClaimedName, Want};
use crate::ops::Rename;
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
        let target = Want::change(parent, name.to_bytes());
        let Some((claim, hidden)) = self.claim_hidden(cx, target, parent).await? else {
            return Ok(None);
        };
        let [Some(target), Some(free), _] = claim.names() else {
            return Err(Errno::STALE);
        };
        self.move_to(cx, target, free, RenameFlags::empty()).await?;
        Ok(Some(hidden))
    }

    /// Claims `target`, the first name of which leads to something that is open and has no other name,
    /// and a free name to hide it. `None` where there is nothing to hide.
    async fn claim_hidden(
        &self,
        cx: &Context<'_>,
        target: Want<'_>,
        parent: NodeId,
    ) -> Result<Option<(Claim, Hidden)>, Errno> {
        for _ in 0..TRIES {
            let number = self.hidden.fetch_add(1, Ordering::Relaxed);
            let name = CString::new(format!(".fuse_hidden{number:016x}"));
            let name = name.map_err(|_| Errno::INVAL)?;
            let want = target.clone().and_change(parent, name.to_bytes());
            let claim = self.claim(cx, want).await?;
            let Some((node, 1, 1..)) = self.table.uses(edge(&claim)?) else {
                return Ok(None);
            };
            let free = claim.names().into_iter().flatten().last();
            match self.attr_at(cx, free.ok_or(Errno::STALE)?.path).await {
                Err(Errno::NOENT) => return Ok(Some((claim, Hidden { node, parent, name }))),
                Ok(_) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }

    /// Renames over what is open and has no other name, and hides that. `None` where that is not so: then
    /// nothing is done.
    pub(super) async fn replace(
        &self,
        cx: &Context<'_>,
        op: &Rename<'_>,
    ) -> Result<Option<Hidden>, Errno> {
        let names = Want::change(op.new_parent, op.new_name.to_bytes())
            .and_change(op.parent, op.name.to_bytes());
        let Some((claim, hidden)) = self.claim_hidden(cx, names, op.new_parent).await? else {
            return Ok(None);
        };
        let [Some(target), Some(from), Some(free)] = claim.names() else {
            return Err(Errno::STALE);
        };
        if from.edge == target.edge || self.attr_at(cx, from.path).await?.is_directory() {
            return Ok(None);
        }
        self.move_to(cx, target, free, RenameFlags::empty()).await?;
        let Err(failed) = self.move_to(cx, from, target, op.flags).await else {
            return Ok(Some(hidden));
        };
        let undone = self.show(cx, free, target).await;
        if let Err(errno) = undone {
            let (from, name) = (from.path.display(), target.path.display());
            tracing::warn!(
                hidden = %free.path.display(),
                "{from} did not replace {name}, and what was done cannot be undone: {errno}"
            );
        }
        Err(failed)
    }

    /// What was hidden gets its name back, unless that has another file: neither is to be lost.
    async fn show(
        &self,
        cx: &Context<'_>,
        hidden: ClaimedName<'_>,
        name: ClaimedName<'_>,
    ) -> Result<(), Errno> {
        match self.attr_at(cx, name.path).await {
            Err(Errno::NOENT) => self.move_to(cx, hidden, name, RenameFlags::empty()).await,
            other => other.and(Err(Errno::EXIST)),
        }
    }

    /// The hidden name goes with the last close, which may have been meanwhile.
    pub(super) async fn end_hidden(&self, cx: &Context<'_>, hidden: Hidden) {
        let Hidden { node, parent, name } = hidden;
        if !self.table.hide(node, parent, name.to_bytes()) {
            self.unhide(cx, parent, name.to_bytes()).await;
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
