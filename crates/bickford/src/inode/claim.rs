//! Claims: what an operation needs to stay as it is while it runs.
//!
//! An operation on a path claims every name of the path shared; one that changes what a name leads
//! to (rename, unlink, rmdir, and those that make a name) claims that name exclusively and the path
//! to it shared. All claims of an operation are taken together or not at all, so that two
//! operations never wait for each other.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::table::Table;
use super::tree::{EdgeId, Tree};
use crate::NodeId;

/// A name in a directory that an operation needs.
#[derive(Clone, Debug)]
pub(super) struct WantedName<'a> {
    parent: NodeId,
    name: Cow<'a, [u8]>,
    exclusively: bool,
}

/// What an operation needs: paths of nodes, and then names in directories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Want<'a> {
    nodes: [Option<NodeId>; 2],
    names: [Option<WantedName<'a>>; 3],
}

impl<'a> Want<'a> {
    /// A path of a node.
    pub(crate) fn node(node: NodeId) -> Self {
        Self {
            nodes: [Some(node), None],
            ..Self::default()
        }
    }

    /// Paths of two nodes.
    pub(crate) fn nodes(first: NodeId, second: NodeId) -> Self {
        Self {
            nodes: [Some(first), Some(second)],
            ..Self::default()
        }
    }

    /// A name that is looked at.
    pub(crate) fn name(parent: NodeId, name: &'a [u8]) -> Self {
        Self::default().and_name(parent, name, false)
    }

    /// A name that is made or removed.
    pub(crate) fn change(parent: NodeId, name: &'a [u8]) -> Self {
        Self::default().and_change(parent, name)
    }

    /// And a name that is made or removed.
    pub(crate) fn and_change(self, parent: NodeId, name: &'a [u8]) -> Self {
        self.and_name(parent, name, true)
    }

    fn and_name(mut self, parent: NodeId, name: &'a [u8], exclusively: bool) -> Self {
        let wanted = WantedName {
            parent,
            name: Cow::Borrowed(name),
            exclusively,
        };
        if let Some(free) = self.names.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(wanted);
        }
        self
    }

    pub(super) fn into_owned(self) -> Want<'static> {
        let owned = |wanted: WantedName<'_>| WantedName {
            parent: wanted.parent,
            name: Cow::Owned(wanted.name.into_owned()),
            exclusively: wanted.exclusively,
        };
        Want {
            nodes: self.nodes,
            names: self.names.map(|name| name.map(owned)),
        }
    }

    /// Finds the names that are to be claimed, as things are now, and the paths.
    pub(super) fn resolve(&self, tree: &mut Tree) -> Result<Resolved, Errno> {
        let mut resolved = Resolved::default();
        for (node, path) in self.nodes.iter().flatten().zip(&mut resolved.paths) {
            let edges = tree.edges_to(*node)?;
            *path = tree.path(&edges, None);
            share(&mut resolved.shared, edges);
        }
        let from = self.nodes.iter().flatten().count();
        for (wanted, path) in self
            .names
            .iter()
            .flatten()
            .zip(resolved.paths.iter_mut().skip(from))
        {
            let edges = tree.edges_to(wanted.parent)?;
            *path = tree.path(&edges, Some(&wanted.name));
            share(&mut resolved.shared, edges);
        }
        for (wanted, slot) in self.names.iter().flatten().zip(&mut resolved.named) {
            let edge = tree.edge(wanted.parent, &wanted.name)?;
            *slot = Some(edge);
            if wanted.exclusively {
                resolved.exclusive.push(edge);
            } else {
                resolved.shared.push(edge);
            }
        }
        resolved.exclusive.dedup();
        if resolved
            .exclusive
            .iter()
            .any(|edge| resolved.shared.contains(edge))
        {
            // A directory into itself; it would wait for itself.
            resolved
                .named
                .iter()
                .flatten()
                .for_each(|edge| tree.drop_if_idle(*edge));
            return Err(Errno::INVAL);
        }
        Ok(resolved)
    }
}

/// Adds names to those that are claimed shared; mostly they are the first, and nothing is copied.
fn share(shared: &mut Vec<EdgeId>, edges: Vec<EdgeId>) {
    if shared.is_empty() {
        *shared = edges;
    } else {
        shared.extend(edges);
    }
}

/// What is to be claimed, and the paths that are right while it is.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) shared: Vec<EdgeId>,
    pub(super) exclusive: Vec<EdgeId>,
    named: [Option<EdgeId>; 3],
    paths: [PathBuf; 3],
}

impl Resolved {
    pub(super) fn is_free(&self, tree: &Tree) -> bool {
        self.shared.iter().all(|edge| tree.is_free(*edge, false))
            && self.exclusive.iter().all(|edge| tree.is_free(*edge, true))
    }

    pub(super) fn take(&self, tree: &mut Tree) {
        self.shared.iter().for_each(|edge| tree.take(*edge, false));
        self.exclusive
            .iter()
            .for_each(|edge| tree.take(*edge, true));
    }

    pub(super) fn give_back(&self, tree: &mut Tree) {
        self.shared
            .iter()
            .for_each(|edge| tree.give_back(*edge, false));
        self.exclusive
            .iter()
            .for_each(|edge| tree.give_back(*edge, true));
    }

    /// Frees names that were only made to wait for them.
    pub(super) fn drop_idle(&self, tree: &mut Tree) {
        self.named
            .iter()
            .flatten()
            .for_each(|edge| tree.drop_if_idle(*edge));
    }
}

/// Claims that an operation holds. Given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    table: Arc<Table>,
    resolved: Resolved,
}

/// A name that is claimed, and the path to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimedName<'c> {
    pub(crate) path: &'c Path,
    pub(crate) edge: EdgeId,
}

impl Claim {
    pub(super) fn new(table: &Arc<Table>, resolved: Resolved) -> Self {
        Self {
            table: Arc::clone(table),
            resolved,
        }
    }

    /// The first path.
    pub(crate) fn path(&self) -> &Path {
        let [path, ..] = &self.resolved.paths;
        path
    }

    /// The second path.
    pub(crate) fn second_path(&self) -> &Path {
        let [_, path, _] = &self.resolved.paths;
        path
    }

    /// The first name that was wanted.
    pub(crate) fn edge(&self) -> Option<EdgeId> {
        let [edge, ..] = self.resolved.named;
        edge
    }

    /// What was wanted as names alone.
    pub(crate) fn names(&self) -> [Option<ClaimedName<'_>>; 3] {
        let Resolved { named, paths, .. } = &self.resolved;
        let mut names = [None; 3];
        for ((name, edge), path) in names.iter_mut().zip(named).zip(paths) {
            *name = edge.map(|edge| ClaimedName { path, edge });
        }
        names
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.table.give_back(&self.resolved);
    }
}
