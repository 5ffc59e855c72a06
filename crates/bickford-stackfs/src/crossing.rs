//! Which attributes the kernel is told to keep, where requests cross ([`Crossing`]).

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bickford::notify::Removal;
use bickford::ops::Attr;
use bickford::{Context, NodeId};

use crate::Inner;
use crate::node::{Doom, Found};

/// A name of a node that is being removed, until this is dropped.
pub(crate) struct Loss<'a> {
    removal: Removal<'a>,
    /// The node was looked up for this.
    counted: Option<(&'a Inner, u64)>,
}

impl Loss<'_> {
    /// The name is gone. Whether others are left, where that is known.
    pub(crate) fn made(&self, are_left: Option<bool>) {
        // What was looked up for this has several.
        self.removal.is_made(are_left.or(Some(true)));
    }
}

impl Drop for Loss<'_> {
    fn drop(&mut self) {
        if let Some((inner, node)) = self.counted {
            inner.nodes.forget(node, 1);
        }
    }
}

impl Inner {
    /// A request has changed a directory and is about to be answered.
    pub(crate) fn changed(&self, cx: &Context<'_>, directory: NodeId, changed: bool) {
        // What failed may have made a name, and removed it again.
        self.name_changes.count(directory.0);
        if changed {
            self.changed_unheard(cx, directory);
        }
    }

    /// A request has changed attributes that the kernel drops, without more, when it is answered.
    pub(crate) fn changed_unheard(&self, cx: &Context<'_>, node: NodeId) {
        if !self.settings.attr_timeout.is_zero() {
            self.crossing.has_changed(cx, node);
        }
    }

    /// Something has this name now, and with it another time of change.
    pub(crate) fn moved(&self, cx: &Context<'_>, dir: BorrowedFd<'_>, name: &CStr) {
        if self.settings.attr_timeout.is_zero() {
            return;
        }
        if let Some(node) = self.nodes.node_at(dir, name) {
            self.crossing.has_changed(cx, NodeId(node));
        }
    }

    /// What was looked up, as it is where it has changed just now.
    pub(crate) fn as_it_is(&self, cx: &Context<'_>, mut found: Found) -> Found {
        if self.crossing.has_found(cx, NodeId(found.node))
            && let Ok(object) = self.nodes.object(found.node)
            && let Ok(statx) = self.nodes.attributes_of(object.as_fd())
        {
            found.statx = statx;
        }
        found
    }

    /// `name` is about to be removed. None where the kernel takes nothing from a link count for it.
    pub(crate) fn loses(&self, doom: &Doom, dir: BorrowedFd<'_>, name: &CStr) -> Option<Loss<'_>> {
        let (node, counted) = match doom {
            Doom::Nothing => return None,
            Doom::Unheld => (self.nodes.lookup_linked(dir, name)?, true),
            Doom::Held(doomed) => (doomed.node, false),
        };
        Some(Loss {
            removal: self.crossing.removes(NodeId(node)),
            counted: counted.then_some((self, node)),
        })
    }

    /// How long attributes of a node that were just read are cached.
    pub(crate) fn keeps_attributes(&self, node: u64, attr: &Attr) -> Duration {
        // There is one before the first name is removed.
        let refused = self
            .nodes
            .notifier()
            .is_some_and(|notifier| !self.crossing.may_be_kept(notifier, NodeId(node), attr));
        match refused {
            true => Duration::ZERO,
            false => self.attr_timeout(node),
        }
    }
}
