//! Names of removed files that are open, kept until they are closed (`hide_removed`).

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use rustix::fs::RenameFlags;

use super::Core;
use super::tree::edge;
use crate::inode::Want;
use crate::path::future::FileSystem;
use crate::{Context, Errno, NodeId};

impl<F: FileSystem> Core<F> {
    /// Hides what a name leads to if it is open and has no other name. Answers whether it did.
    pub(super) async fn hide(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &CStr,
    ) -> Result<bool, Errno> {
        let number = self.hidden.fetch_add(1, Ordering::Relaxed);
        let hidden = format!(".fuse_hidden{number:016x}");
        let want = Want::change(parent, name.to_bytes()).and_change(parent, hidden.as_bytes());
        let claim = self.claim(cx, want).await?;
        let from = edge(&claim)?;
        let to = claim.second_edge().ok_or(Errno::STALE)?;
        let Some((node, 1, 1..)) = self.table.uses(from) else {
            return Ok(false);
        };
        match self.attr_at(cx, claim.second_path()).await {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(Errno::BUSY),
            Err(errno) => return Err(errno),
        }
        self.filesystem
            .rename(cx, claim.path(), claim.second_path(), RenameFlags::empty())
            .await?;
        self.table.rename(from, to, false);
        self.table.hide(node);
        Ok(true)
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
