//! Operations that look for names, make them, and change them.

use std::ffi::CStr;
use std::path::Path;

use rustix::fs::RenameFlags;

use super::Core;
use crate::inode::{Claim, EdgeId, Found, Want};
use crate::ops::{Attr, Create, Created, Entry, Link, Lookup, Opened, Rename, Tmpfile};
use crate::path::{FileSystem, New, Open, Subject};
use crate::{Context, Errno, NodeId};

/// The name that a claim was asked for; it has one.
pub(super) fn edge(claim: &Claim) -> Result<EdgeId, Errno> {
    claim.edge().ok_or(Errno::STALE)
}

impl<F: FileSystem> Core<F> {
    pub(super) fn attr_at(&self, cx: &Context<'_>, path: &Path) -> Result<Attr, Errno> {
        self.filesystem.getattr(cx, Subject::of_path(path))
    }

    fn found(&self, attr: &Attr) -> Found {
        Found::new(attr, self.options.use_ino)
    }

    pub(super) fn find_name(&self, cx: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let claim = self.claim(cx, Want::name(op.parent, op.name.to_bytes()))?;
        match self.attr_at(cx, claim.path()) {
            Ok(attr) => {
                let node = self.table.bind(edge(&claim)?, self.found(&attr))?;
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

    /// Makes a name with `call`.
    pub(super) fn make(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &CStr,
        call: impl FnOnce(&Path) -> Result<(), Errno>,
    ) -> Result<Entry, Errno> {
        let claim = self.claim(cx, Want::change(parent, name.to_bytes()))?;
        call(claim.path())?;
        let attr = self.attr_at(cx, claim.path())?;
        let node = self.table.bind_new(edge(&claim)?, self.found(&attr))?;
        Ok(self.entry(node, attr))
    }

    pub(super) fn make_open(&self, cx: &Context<'_>, op: Create<'_>) -> Result<Created, Errno> {
        let claim = self.claim(cx, Want::change(op.parent, op.name.to_bytes()))?;
        let new = New::with_mode(op.mode, 0, op.umask);
        let open = Open::new(op.flags, op.open_flags);
        let opened = self.filesystem.create(cx, claim.path(), new, open)?;
        let subject = Subject::new(Some(claim.path()), Some(opened.handle));
        let attr = self.attr_or_close(cx, subject, opened)?;
        let node = self.table.bind_new(edge(&claim)?, self.found(&attr))?;
        self.table.opened(node, opened.handle);
        Ok(Created {
            entry: self.entry(node, attr),
            opened: self.dress_open(opened),
        })
    }

    pub(super) fn make_unnamed(&self, cx: &Context<'_>, op: Tmpfile) -> Result<Created, Errno> {
        let claim = self.claim(cx, Want::node(op.parent))?;
        let new = New::with_mode(op.mode, 0, op.umask);
        let open = Open::new(op.flags, bickford_abi::OpenInFlags::empty());
        let opened = self.filesystem.tmpfile(cx, claim.path(), new, open)?;
        let attr = self.attr_or_close(cx, Subject::new(None, Some(opened.handle)), opened)?;
        let node = self.table.bind_unnamed(self.found(&attr), opened.handle);
        Ok(Created {
            entry: self.entry(node, attr),
            opened: self.dress_open(opened),
        })
    }

    fn attr_or_close(
        &self,
        cx: &Context<'_>,
        subject: Subject<'_>,
        opened: Opened,
    ) -> Result<Attr, Errno> {
        self.filesystem.getattr(cx, subject).inspect_err(|_| {
            let subject = Subject::new(subject.path().ok(), Some(opened.handle));
            if let Err(errno) = self.filesystem.release(cx, subject) {
                tracing::debug!("releasing a file whose attributes are not known: {errno}");
            }
        })
    }

    pub(super) fn give_name(&self, cx: &Context<'_>, op: Link<'_>) -> Result<Entry, Errno> {
        let want = Want::node(op.node).and_change(op.new_parent, op.new_name.to_bytes());
        let claim = self.claim(cx, want)?;
        self.filesystem
            .link(cx, claim.path(), claim.second_path())?;
        let attr = self.attr_at(cx, claim.second_path())?;
        self.table.bind_to(edge(&claim)?, op.node)?;
        Ok(self.entry(op.node, attr))
    }

    /// Removes a name with `call`.
    pub(super) fn remove(
        &self,
        cx: &Context<'_>,
        parent: NodeId,
        name: &CStr,
        call: impl FnOnce(&Path) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let claim = self.claim(cx, Want::change(parent, name.to_bytes()))?;
        call(claim.path())?;
        self.table.unbind(edge(&claim)?);
        Ok(())
    }

    pub(super) fn change_name(&self, cx: &Context<'_>, op: Rename<'_>) -> Result<(), Errno> {
        let exchange = op.flags.contains(RenameFlags::EXCHANGE);
        let replaces = !exchange && !op.flags.contains(RenameFlags::NOREPLACE);
        if self.options.hide_removed && replaces {
            self.hide(cx, op.new_parent, op.new_name)?;
        }
        let want = Want::change(op.parent, op.name.to_bytes())
            .and_change(op.new_parent, op.new_name.to_bytes());
        let claim = self.claim(cx, want)?;
        self.filesystem
            .rename(cx, claim.path(), claim.second_path(), op.flags)?;
        let to = claim.second_edge().ok_or(Errno::STALE)?;
        self.table.rename(edge(&claim)?, to, exchange);
        Ok(())
    }
}
