//! Operations that look for names, make them, and change them.

use std::ffi::CStr;
use std::path::Path;

use rustix::fs::RenameFlags;

use super::Core;
use crate::inode::{Claim, ClaimedName, EdgeId, Found, Want};
use crate::ops::{Attr, Create, Created, Entry, Link, Lookup, Rename, Tmpfile};
use crate::path::future::FileSystem;
use crate::path::{New, Open, Subject};
use crate::{Context, Errno, NodeId};

/// The caller wants to be the one who makes a file (open(2)).
const EXCLUSIVE: u32 = libc::O_EXCL.cast_unsigned();

/// The name that a claim was asked for; it has one.
pub(super) fn edge(claim: &Claim) -> Result<EdgeId, Errno> {
    claim.edge().ok_or(Errno::STALE)
}

impl<F: FileSystem> Core<F> {
    pub(super) async fn attr_at(&self, cx: &Context<'_>, path: &Path) -> Result<Attr, Errno> {
        self.filesystem.getattr(cx, Subject::of_path(path)).await
    }

    fn found(&self, attr: &Attr) -> Found {
        Found::new(attr, self.options.use_ino)
    }

    pub(super) async fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        match op.name.to_bytes() {
            b"." => return self.again(cx, op.parent).await,
            b".." => return self.again(cx, self.table.parent(op.parent)?).await,
            _ => {}
        }
        let claim = self
            .claim(cx, Want::name(op.parent, op.name.to_bytes()))
            .await?;
        match self.attr_at(cx, claim.path()).await {
            Ok(attr) => {
                let mut found = self.found(&attr);
                if let Some(node) = self.table.nameless(found)
                    && self.has_a_name(cx, node, attr.ino).await
                {
                    found = found.with_others();
                }
                let node = self.table.bind(edge(&claim)?, found)?;
                Ok(self.entry(node, attr))
            }
            Err(Errno::NOENT) => {
                self.table.unbind(edge(&claim)?);
                if self.options.negative_timeout.is_zero() {
                    return Err(Errno::NOENT);
                }
                Ok(Entry::negative(self.options.negative_timeout))
            }
            Err(errno) => Err(errno),
        }
    }

    /// A node that a file handle leads to. The kernel has forgotten it, and asks for it by its id. ESTALE where it is
    /// gone.
    async fn again(&self, cx: &Context<'_>, node: NodeId) -> Result<Entry, Errno> {
        let stale = |errno| match errno {
            Errno::NOENT => Errno::STALE,
            errno => errno,
        };
        let held = self.about(cx, node, None).await.map_err(stale)?;
        let attr = self.filesystem.getattr(cx, held.subject()).await;
        let attr = attr.map_err(stale)?;
        self.table.again(node, self.found(&attr))?;
        Ok(self.entry(node, attr))
    }

    /// Whether an open file, the known names of which are gone, has another one: as long as it is open, its number is
    /// nothing else's.
    async fn has_a_name(&self, cx: &Context<'_>, node: NodeId, ino: u64) -> bool {
        let Ok(held) = self.borrow(cx, node) else {
            return false;
        };
        let attr = self.filesystem.getattr(cx, held.subject()).await;
        attr.is_ok_and(|attr| attr.ino == ino && attr.links > 0)
    }

    /// Claims a name that is to be made or removed.
    pub(super) async fn claim_change(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &CStr,
    ) -> Result<Claim, Errno> {
        self.claim(cx, Want::change(parent, name.to_bytes())).await
    }

    /// A claimed name was made.
    pub(super) async fn made(&self, cx: &Context<'_>, claim: &Claim) -> Result<Entry, Errno> {
        let attr = self.attr_at(cx, claim.path()).await?;
        let node = self.table.bind_new(edge(claim)?, self.found(&attr))?;
        Ok(self.entry(node, attr))
    }

    pub(super) async fn create(&self, cx: &Context<'_>, op: Create<'_>) -> Result<Created, Errno> {
        let claim = self.claim_change(cx, op.parent, op.name).await?;
        let new = New::with_mode(op.mode, 0, op.umask);
        let open = Open::new(op.flags, op.open_flags);
        let opened = match self.filesystem.create(cx, claim.path(), new, open).await {
            // Somebody else has made it meanwhile, and nobody has asked whether the caller may open it. For a
            // name that is stale the kernel looks again, and then opens what is there.
            Err(Errno::EXIST) if op.flags & EXCLUSIVE == 0 => Err(Errno::STALE),
            opened => opened,
        }?;
        let mut opening = self.opening(cx, opened.handle);
        let subject = Subject::new(Some(claim.path()), Some(opened.handle));
        let attr = self.filesystem.getattr(cx, subject).await?;
        let node = self.table.bind_new(edge(&claim)?, self.found(&attr))?;
        opening.bind(node);
        opening.keep();
        Ok(Created {
            entry: self.entry(node, attr),
            opened: self.dress_open(opened),
        })
    }

    pub(super) async fn tmpfile(&self, cx: &Context<'_>, op: Tmpfile) -> Result<Created, Errno> {
        let claim = self.claim(cx, Want::node(op.parent)).await?;
        let new = New::with_mode(op.mode, 0, op.umask);
        let open = Open::new(op.flags, bickford_abi::OpenInFlags::empty());
        let opened = self.filesystem.tmpfile(cx, claim.path(), new, open).await?;
        let opening = self.opening(cx, opened.handle);
        let subject = Subject::new(None, Some(opened.handle));
        let attr = self.filesystem.getattr(cx, subject).await?;
        let node = self.table.bind_unnamed(self.found(&attr), opened.handle);
        opening.keep();
        Ok(Created {
            entry: self.entry(node, attr),
            opened: self.dress_open(opened),
        })
    }

    pub(super) async fn link(&self, cx: &Context<'_>, op: Link<'_>) -> Result<Entry, Errno> {
        let want = Want::node(op.node).and_change(op.new_parent, op.new_name.to_bytes());
        let claim = match self.claim(cx, want).await {
            Err(Errno::NOENT) => return self.give_first_name(cx, op).await,
            claim => claim?,
        };
        let new = claim.second_path();
        let existing = Subject::of_path(claim.path());
        self.filesystem.link(cx, existing, new).await?;
        self.named(cx, &op, &claim, new).await
    }

    /// What has no path is open, or else it is gone.
    async fn give_first_name(&self, cx: &Context<'_>, op: Link<'_>) -> Result<Entry, Errno> {
        let held = self.borrow(cx, op.node)?;
        let claim = self.claim_change(cx, op.new_parent, op.new_name).await?;
        let new = claim.path();
        self.filesystem.link(cx, held.subject(), new).await?;
        self.named(cx, &op, &claim, new).await
    }

    async fn named(
        &self,
        cx: &Context<'_>,
        op: &Link<'_>,
        claim: &Claim,
        new: &Path,
    ) -> Result<Entry, Errno> {
        let attr = self.attr_at(cx, new).await?;
        self.table.bind_to(edge(claim)?, op.node)?;
        Ok(self.entry(op.node, attr))
    }

    pub(super) async fn rename(&self, cx: &Context<'_>, op: Rename<'_>) -> Result<(), Errno> {
        let replaces = !op
            .flags
            .intersects(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
        let hidden = match self.options.hide_removed && replaces {
            true => self.replace(cx, &op).await?,
            false => None,
        };
        match hidden {
            Some(hidden) => self.end_hidden(cx, hidden).await,
            None => self.move_name(cx, &op).await?,
        }
        Ok(())
    }

    async fn move_name(&self, cx: &Context<'_>, op: &Rename<'_>) -> Result<(), Errno> {
        let want = Want::change(op.parent, op.name.to_bytes())
            .and_change(op.new_parent, op.new_name.to_bytes());
        let claim = self.claim(cx, want).await?;
        let [Some(from), Some(to), _] = claim.names() else {
            return Err(Errno::STALE);
        };
        self.move_to(cx, from, to, op.flags).await
    }

    /// Renames or exchanges claimed names.
    pub(super) async fn move_to(
        &self,
        cx: &Context<'_>,
        from: ClaimedName<'_>,
        to: ClaimedName<'_>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let renaming = self.filesystem.rename(cx, from.path, to.path, flags);
        renaming.await?;
        self.table.rename(from.edge, to.edge, exchange);
        // They have another time of change.
        for name in [to, from] {
            if let Some((node, ..)) = self.table.uses(name.edge) {
                cx.has_changed(node);
            }
        }
        Ok(())
    }
}
