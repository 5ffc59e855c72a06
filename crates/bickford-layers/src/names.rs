//! Which path a node has, learned from the answers that go past.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bickford::NodeId;
use bickford::layer::{About, OperationKind, OperationSet, Outcome};
use bickford::ops::{Directory, Forget};

/// Operations whose post-calls tell names.
pub(crate) const NAMING: OperationSet = OperationSet::of(&[
    OperationKind::Lookup,
    OperationKind::Symlink,
    OperationKind::Mknod,
    OperationKind::Mkdir,
    OperationKind::Create,
    OperationKind::Tmpfile,
    OperationKind::Link,
    OperationKind::Readdirplus,
    OperationKind::Rename,
    OperationKind::Unlink,
    OperationKind::Rmdir,
]);

/// Deeper than any path that the kernel takes (`PATH_MAX` is 4096 bytes).
const DEPTH_MAX: usize = 2048;

/// `RENAME_EXCHANGE` of renameat2(2).
const RENAME_EXCHANGE: u32 = 2;

type Place = (NodeId, Box<[u8]>);

#[derive(Debug, Default)]
struct Known {
    place: Option<Place>,
    lookups: u64,
}

#[derive(Debug, Default)]
struct Table {
    nodes: HashMap<NodeId, Known>,
    places: HashMap<Place, NodeId>,
}

/// Paths of nodes, as far as they are known: the last name by which a node was found. Bounded; a
/// node that came when the table was full has no path.
#[derive(Debug)]
pub(crate) struct Names {
    table: Mutex<Table>,
    limit: usize,
}

/// Nodes whose names are remembered by default.
pub(crate) const NODES_MAX: usize = 1 << 20;

impl Default for Names {
    fn default() -> Self {
        Self::new(NODES_MAX)
    }
}

impl Table {
    fn unname(&mut self, node: NodeId) {
        let place = self.nodes.get_mut(&node).and_then(|node| node.place.take());
        if let Some(place) = place {
            self.places.remove(&place);
        }
    }

    fn name(&mut self, node: NodeId, place: Place) {
        self.unname(node);
        if let Some(before) = self.places.insert(place.clone(), node)
            && before != node
            && let Some(known) = self.nodes.get_mut(&before)
        {
            known.place = None;
        }
        if let Some(known) = self.nodes.get_mut(&node) {
            known.place = Some(place);
        }
    }

    fn path(&self, mut node: NodeId) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        while node != NodeId::ROOT {
            if names.len() >= DEPTH_MAX {
                return None;
            }
            let (parent, name) = self.nodes.get(&node)?.place.as_ref()?;
            names.push(name);
            node = *parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }
}

impl Names {
    /// An empty table for at most `limit` nodes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            table: Mutex::default(),
            limit,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a node, from the root of the mount on.
    pub(crate) fn path(&self, node: NodeId) -> Option<Vec<u8>> {
        self.table().path(node)
    }

    /// The path that a name in a directory has or would have.
    pub(crate) fn path_of(&self, parent: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        let mut path = self.path(parent)?;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Some(path)
    }

    /// What an operation is about: the name in its directory, or the node.
    pub(crate) fn path_about(&self, about: &About<'_>) -> Option<Vec<u8>> {
        match about.name {
            Some(name) => self.path_of(about.node, name.to_bytes()),
            None => self.path(about.node),
        }
    }

    fn count(&self, table: &mut Table, node: NodeId) -> bool {
        let full = table.nodes.len() >= self.limit;
        if full && !table.nodes.contains_key(&node) {
            return false;
        }
        table.nodes.entry(node).or_default().lookups += 1;
        true
    }

    /// Learns from a result; see [`NAMING`].
    pub(crate) fn observe(&self, about: &About<'_>, outcome: &Outcome) {
        if outcome.errno.is_some() {
            return;
        }
        let mut table = self.table();
        let place = about.name.map(|name| (about.node, name.to_bytes().into()));
        let new_place = about
            .new_name
            .map(|(parent, name)| (parent, name.to_bytes().into()));
        match about.kind {
            OperationKind::Unlink | OperationKind::Rmdir => {
                let node = place.and_then(|place| table.places.get(&place).copied());
                if let Some(node) = node {
                    table.unname(node);
                }
            }
            OperationKind::Rename => {
                let (Some(old), Some(new)) = (place, new_place) else {
                    return;
                };
                let moved = table.places.get(&old).copied();
                let other = table.places.get(&new).copied();
                if let Some(other) = other {
                    table.unname(other);
                }
                if let Some(moved) = moved {
                    table.name(moved, new);
                }
                if about.flags.unwrap_or(0) & RENAME_EXCHANGE != 0
                    && let Some(other) = other
                {
                    table.name(other, old);
                }
            }
            _ => {
                let Some(entry) = outcome.entry.filter(|entry| !entry.is_negative()) else {
                    return;
                };
                if self.count(&mut table, entry.node)
                    && let Some(place) = new_place.or(place)
                {
                    table.name(entry.node, place);
                }
            }
        }
    }

    /// Learns from a listing with entries.
    pub(crate) fn observe_listing(&self, parent: NodeId, listing: &Directory) {
        let mut table = self.table();
        for (name, entry) in listing.iter() {
            let Some(entry) = entry.filter(|entry| !entry.is_negative()) else {
                continue;
            };
            let is_child = name.name != b"." && name.name != b"..";
            if is_child && self.count(&mut table, entry.node) {
                table.name(entry.node, (parent, name.name.into()));
            }
        }
    }

    /// Forgets what the kernel forgets.
    pub(crate) fn forget(&self, forgets: &[Forget]) {
        let mut table = self.table();
        for forget in forgets {
            let Some(known) = table.nodes.get_mut(&forget.node) else {
                continue;
            };
            known.lookups = known.lookups.saturating_sub(forget.count);
            if known.lookups == 0 {
                table.unname(forget.node);
                table.nodes.remove(&forget.node);
            }
        }
    }

    /// How many nodes are known.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.table().nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(names: &Names, node: u64, parent: u64, name: &[u8]) {
        let mut table = names.table();
        if names.count(&mut table, NodeId(node)) {
            table.name(NodeId(node), (NodeId(parent), name.into()));
        }
    }

    #[test]
    fn paths_follow_what_is_known() {
        let names = Names::new(3);
        learned(&names, 2, 1, b"dir");
        learned(&names, 3, 2, b"file");
        assert_eq!(names.path(NodeId(1)).unwrap(), b"/");
        assert_eq!(names.path(NodeId(3)).unwrap(), b"/dir/file");
        assert_eq!(names.path_of(NodeId(2), b"x").unwrap(), b"/dir/x");
        learned(&names, 4, 2, b"file");
        assert_eq!(names.path(NodeId(3)), None, "another node has the name now");
        learned(&names, 5, 1, b"beyond the limit");
        assert_eq!(names.path(NodeId(5)), None);
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn forgets_count() {
        let names = Names::default();
        learned(&names, 2, 1, b"dir");
        learned(&names, 2, 1, b"dir");
        let forget = Forget {
            node: NodeId(2),
            count: 1,
        };
        names.forget(&[forget]);
        assert!(names.path(NodeId(2)).is_some());
        names.forget(&[forget]);
        assert_eq!((names.path(NodeId(2)), names.len()), (None, 0));
    }

    #[test]
    fn a_cycle_has_no_path() {
        let names = Names::default();
        learned(&names, 2, 3, b"a");
        learned(&names, 3, 2, b"b");
        assert_eq!(names.path(NodeId(2)), None);
    }
}
