//! Nodes, and the names (edges) that lead to them. No locks here, and no waiting.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use slab::Slab;

use crate::ops::Timestamp;
use crate::{FileHandle, NodeId};

/// Number of a name in its directory, for as long as the name is claimed or leads to a node.
pub(crate) type EdgeId = usize;

type Index = usize;

/// The type bits of the root.
pub(crate) const ROOT_KIND: u32 = 0o040_000;

/// How many names of an inode with a number are kept. Any one is enough to build a path, and those beyond
/// come back with the next lookup.
const NAMES_MAX: usize = 32;

/// An inode that the kernel knows, or that leads to one.
#[derive(Debug, Default)]
struct Node {
    generation: u32,
    /// Type bits of the mode.
    kind: u32,
    /// Inode number as the file system says; zero where it does not.
    ino: u64,
    lookups: u64,
    /// Names that lead here; the last one is used for paths. A directory has at most one.
    names: Vec<EdgeId>,
    children: HashMap<Arc<[u8]>, EdgeId>,
    /// Its open files, one for each open.
    open: Vec<OpenFile>,
    /// Which name is to be removed when it is closed.
    hidden: Option<EdgeId>,
    /// Modification time and size when it was last opened (`auto_cache`).
    opened_as: Option<(Timestamp, u64)>,
}

impl Node {
    /// Whether it can be what was found: of the same type, and of the same number where both are known.
    fn can_be(&self, found: Identity) -> bool {
        let numbered_so = self.ino == found.ino || self.ino == 0 || found.ino == 0;
        self.kind == found.kind && numbered_so
    }

    /// A name does not lead here any more. Who gave a hidden file another name wants to keep it.
    fn lose_name(&mut self, edge: EdgeId) {
        self.names.retain(|other| *other != edge);
        self.hidden = self.hidden.filter(|hidden| *hidden != edge);
    }
}

/// An open file. Operations that come without a handle may borrow it when no name is left.
#[derive(Debug)]
struct OpenFile {
    handle: FileHandle,
    borrowed: u32,
    /// Released, but still borrowed.
    closing: bool,
}

/// What is to be done when an open file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing yet: it is borrowed, and whoever gives it back ends it.
    Later,
    /// It ends now.
    Now,
}

/// A name in a directory.
#[derive(Debug)]
struct Edge {
    parent: Index,
    name: Arc<[u8]>,
    /// `None`: the name is claimed and leads nowhere yet.
    node: Option<Index>,
    shared: u32,
    exclusive: bool,
}

/// Nodes and names. Ids of nodes are never used twice: the upper half is a generation.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Slab<Node>,
    edges: Slab<Edge>,
    /// Nodes by the file system's inode number, where it says so.
    by_ino: HashMap<u64, Index>,
    generation: u32,
    keep_forgotten: bool,
}

const ROOT: Index = 0;

/// What a name was found to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity {
    /// Type bits of the mode.
    pub(crate) kind: u32,
    /// Inode number; zero for unknown.
    pub(crate) ino: u64,
    /// Whether other names may lead to the same inode.
    pub(crate) linked: bool,
}

impl Tree {
    pub(super) fn new(keep_forgotten: bool) -> Self {
        let mut nodes = Slab::new();
        nodes.insert(Node {
            kind: ROOT_KIND,
            lookups: 1,
            ..Node::default()
        });
        Self {
            nodes,
            edges: Slab::new(),
            by_ino: HashMap::new(),
            generation: 0,
            keep_forgotten,
        }
    }

    fn id(&self, index: Index) -> NodeId {
        let generation = self.nodes.get(index).map_or(0, |node| node.generation);
        NodeId(u64::from(generation) << 32 | (index as u64 + 1))
    }

    fn index(&self, id: NodeId) -> Option<Index> {
        let index = usize::try_from((id.0 & 0xffff_ffff).checked_sub(1)?).ok()?;
        let node = self.nodes.get(index)?;
        (u64::from(node.generation) == id.0 >> 32).then_some(index)
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(self.index(id)?)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let index = self.index(id)?;
        self.nodes.get_mut(index)
    }

    /// How many nodes and names there are.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.edges.len())
    }

    /// The names that lead from the root to a node, the last one first.
    pub(super) fn edges_to(&self, id: NodeId) -> Result<Vec<EdgeId>, Errno> {
        let mut at = self.index(id).ok_or(Errno::STALE)?;
        let mut edges = Vec::with_capacity(8);
        while at != ROOT {
            let last = self.nodes.get(at).and_then(|node| node.names.last());
            let edge = *last.ok_or(Errno::NOENT)?;
            edges.push(edge);
            at = self.edges.get(edge).ok_or(Errno::NOENT)?.parent;
        }
        Ok(edges)
    }

    /// The path over `edges`, the last name first, and then over `child`.
    pub(super) fn path(&self, edges: &[EdgeId], child: Option<&[u8]>) -> PathBuf {
        let names = || edges.iter().rev().filter_map(|edge| self.edges.get(*edge));
        let length: usize = names().map(|edge| edge.name.len() + 1).sum();
        let mut path = Vec::with_capacity(length + child.map_or(1, |name| name.len() + 1));
        for edge in names() {
            path.push(b'/');
            path.extend_from_slice(&edge.name);
        }
        if let Some(name) = child {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        PathBuf::from(OsString::from_vec(path))
    }

    /// The edge of a name, made if there is none.
    pub(super) fn edge(&mut self, parent: NodeId, name: &[u8]) -> Result<EdgeId, Errno> {
        let index = self.index(parent).ok_or(Errno::STALE)?;
        let node = self.nodes.get_mut(index).ok_or(Errno::STALE)?;
        if let Some(edge) = node.children.get(name) {
            return Ok(*edge);
        }
        let name: Arc<[u8]> = name.into();
        let edge = self.edges.insert(Edge {
            parent: index,
            name: Arc::clone(&name),
            node: None,
            shared: 0,
            exclusive: false,
        });
        node.children.insert(name, edge);
        Ok(edge)
    }

    pub(super) fn is_free(&self, edge: EdgeId, exclusively: bool) -> bool {
        let busy = |edge: &Edge| edge.exclusive || (exclusively && edge.shared > 0);
        !self.edges.get(edge).is_some_and(busy)
    }

    pub(super) fn take(&mut self, edge: EdgeId, exclusively: bool) {
        if let Some(edge) = self.edges.get_mut(edge) {
            if exclusively {
                edge.exclusive = true;
            } else {
                edge.shared += 1;
            }
        }
    }

    pub(super) fn give_back(&mut self, edge: EdgeId, exclusively: bool) {
        if let Some(edge) = self.edges.get_mut(edge) {
            if exclusively {
                edge.exclusive = false;
            } else {
                edge.shared = edge.shared.saturating_sub(1);
            }
        }
        self.drop_if_idle(edge);
    }

    /// Frees a name that is not claimed and leads nowhere, or to a node that is not needed.
    pub(super) fn drop_if_idle(&mut self, id: EdgeId) {
        let Some(edge) = self.edges.get(id) else {
            return;
        };
        if edge.shared > 0 || edge.exclusive {
            return;
        }
        match edge.node {
            Some(node) => self.reap(node),
            None => {
                let parent = edge.parent;
                self.remove_edge(id);
                self.reap(parent);
            }
        }
    }

    fn remove_edge(&mut self, id: EdgeId) {
        if let Some(edge) = self.edges.try_remove(id)
            && let Some(parent) = self.nodes.get_mut(edge.parent)
        {
            parent.children.remove(&edge.name);
        }
    }

    /// Frees a node that nobody needs, and then those above that only led to it.
    fn reap(&mut self, mut at: Index) {
        while at != ROOT {
            let Some(node) = self.nodes.get(at) else {
                return;
            };
            let used = node.lookups > 0 || !node.open.is_empty() || !node.children.is_empty();
            // Whoever closes a hidden file has yet to hear of its name.
            let needed = used || node.hidden.is_some();
            if needed || !node.names.iter().all(|edge| self.is_free(*edge, true)) {
                return;
            }
            let Some(node) = self.nodes.try_remove(at) else {
                return;
            };
            if self.by_ino.get(&node.ino) == Some(&at) {
                self.by_ino.remove(&node.ino);
            }
            let mut above = ROOT;
            for id in node.names {
                // Only files have several names; their parents but one are looked at here.
                if let Some(edge) = self.edges.get(id) {
                    let parent = edge.parent;
                    self.remove_edge(id);
                    if above != ROOT && above != parent {
                        self.reap(above);
                    }
                    above = parent;
                }
            }
            at = above;
        }
    }

    fn insert(&mut self, identity: Identity) -> Index {
        // The last one would make ids of layers: see `NodeId::FIRST_OF_LAYERS`.
        self.generation = ((self.generation + 1) % u32::MAX).max(1);
        let index = self.nodes.insert(Node {
            generation: self.generation,
            kind: identity.kind,
            ino: identity.ino,
            ..Node::default()
        });
        if identity.ino != 0 && identity.kind != ROOT_KIND {
            self.by_ino.insert(identity.ino, index);
        }
        index
    }

    /// The node that a claimed name leads to, with its lookup count raised. A name whose type or
    /// inode number changed without us leads to another node than before.
    pub(super) fn bind(&mut self, edge: EdgeId, identity: Identity) -> Result<NodeId, Errno> {
        let current = self.edges.get(edge).ok_or(Errno::STALE)?.node;
        let same = |node: &Node| node.can_be(identity);
        let known = current.filter(|index| self.nodes.get(*index).is_some_and(same));
        let index = known.unwrap_or_else(|| {
            let linked = identity.linked && identity.ino != 0 && identity.kind != ROOT_KIND;
            let by_ino = self.by_ino.get(&identity.ino).copied();
            let other = by_ino.filter(|index| linked && self.nodes.get(*index).is_some_and(same));
            let index = other.unwrap_or_else(|| self.insert(identity));
            self.lead(edge, index);
            index
        });
        self.prefer(edge, index);
        let node = self.nodes.get_mut(index).ok_or(Errno::STALE)?;
        node.lookups += 1;
        Ok(self.id(index))
    }

    /// A node that was found at its own path, with its lookup count raised.
    pub(super) fn again(&mut self, id: NodeId, identity: Identity) -> Result<(), Errno> {
        let node = self.node_mut(id).filter(|node| node.can_be(identity));
        node.ok_or(Errno::STALE)?.lookups += 1;
        Ok(())
    }

    /// The directory of a node that has a name; that of the root is the root.
    pub(super) fn parent(&self, id: NodeId) -> Result<NodeId, Errno> {
        let edges = self.edges_to(id).map_err(|_| Errno::STALE)?;
        let last = edges.first().and_then(|edge| self.edges.get(*edge));
        Ok(last.map_or(NodeId::ROOT, |edge| self.id(edge.parent)))
    }

    /// The open node that has lost the names that are known of it, and has this inode number. What has one name may be it,
    /// or something else that the number was given to since.
    pub(super) fn nameless(&self, identity: Identity) -> Option<NodeId> {
        let index = *self.by_ino.get(&identity.ino)?;
        let node = self.nodes.get(index)?;
        let is_it = node.kind == identity.kind && node.names.is_empty() && !node.open.is_empty();
        is_it.then(|| self.id(index))
    }

    /// Makes a claimed name lead to a node that has another name already (link).
    pub(super) fn bind_to(&mut self, edge: EdgeId, id: NodeId) -> Result<(), Errno> {
        let index = self.index(id).ok_or(Errno::STALE)?;
        if let Some(node) = self.nodes.get_mut(index) {
            node.lookups += 1;
        }
        self.lead(edge, index);
        Ok(())
    }

    /// A node without a name, with its lookup count raised (tmpfile).
    pub(super) fn bind_unnamed(&mut self, identity: Identity) -> NodeId {
        let index = self.insert(identity);
        if let Some(node) = self.nodes.get_mut(index) {
            node.lookups += 1;
        }
        self.id(index)
    }

    fn lead(&mut self, edge: EdgeId, index: Index) {
        self.unbind(edge);
        if let Some(edge) = self.edges.get_mut(edge) {
            edge.node = Some(index);
        }
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        // Without a number, nothing but its names tells that they lead to one inode: there are as many as the
        // kernel looked up.
        let wanted = match node.ino {
            0 => usize::try_from(node.lookups).unwrap_or(usize::MAX),
            _ => 0,
        };
        if node.names.len() >= wanted.max(NAMES_MAX)
            && let Some(oldest) = node
                .names
                .iter()
                .copied()
                .find(|edge| self.is_free(*edge, true))
            && let Some(node) = self.nodes.get_mut(index)
        {
            node.lose_name(oldest);
            let parent = self.edges.get(oldest).map(|edge| edge.parent);
            self.remove_edge(oldest);
            parent.into_iter().for_each(|parent| self.reap(parent));
        }
        if let Some(node) = self.nodes.get_mut(index) {
            node.names.push(edge);
        }
    }

    /// Uses this name for paths from now on.
    fn prefer(&mut self, edge: EdgeId, index: Index) {
        if let Some(node) = self.nodes.get_mut(index)
            && let Some(at) = node.names.iter().position(|other| *other == edge)
        {
            let last = node.names.len() - 1;
            node.names.swap(at, last);
        }
    }

    /// The node that a name leads to, as [`Tree::bind`], for a name that is not claimed. `None`
    /// where somebody is changing it.
    pub(super) fn bind_free(
        &mut self,
        parent: NodeId,
        name: &[u8],
        identity: Identity,
    ) -> Option<NodeId> {
        let edge = self.edge(parent, name).ok()?;
        if self.is_free(edge, false) {
            return self.bind(edge, identity).ok();
        }
        None
    }

    /// A claimed name leads nowhere any more.
    pub(super) fn unbind(&mut self, edge: EdgeId) {
        let node = self.edges.get_mut(edge).and_then(|edge| edge.node.take());
        if let Some(index) = node {
            if let Some(node) = self.nodes.get_mut(index) {
                node.lose_name(edge);
            }
            self.reap(index);
        }
    }

    /// Swaps what two claimed names lead to; with `exchange` false the first leads nowhere then.
    pub(super) fn rename(&mut self, from: EdgeId, to: EdgeId, exchange: bool) {
        if from == to {
            return;
        }
        if !exchange {
            self.unbind(to);
        }
        let first = self.edges.get(from).and_then(|edge| edge.node);
        let second = self.edges.get(to).and_then(|edge| edge.node);
        // Both may lead to one inode; then both still do.
        if first == second {
            return;
        }
        for (edge, old, new) in [(from, first, second), (to, second, first)] {
            if let Some(edge) = self.edges.get_mut(edge) {
                edge.node = new;
            }
            if let Some(node) = old.and_then(|old| self.nodes.get_mut(old)) {
                node.lose_name(edge);
            }
            if let Some(node) = new.and_then(|new| self.nodes.get_mut(new)) {
                node.names.push(edge);
            }
        }
    }

    pub(super) fn forget(&mut self, id: NodeId, count: u64) {
        let keep = self.keep_forgotten;
        if let Some(index) = self.index(id)
            && index != ROOT
            && !keep
        {
            if let Some(node) = self.nodes.get_mut(index) {
                node.lookups = node.lookups.saturating_sub(count);
            }
            self.reap(index);
        }
    }

    /// Where a claimed name leads.
    pub(super) fn target(&self, edge: EdgeId) -> Option<NodeId> {
        let index = self.edges.get(edge)?.node?;
        Some(self.id(index))
    }

    /// The node at a name, if the kernel knows one.
    pub(super) fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.target(*self.node(parent)?.children.get(name)?)
    }

    /// The inode number of a node as the file system says; zero where it is not known.
    pub(super) fn ino(&self, id: NodeId) -> u64 {
        self.node(id).map_or(0, |node| node.ino)
    }

    pub(super) fn opened(&mut self, id: NodeId, handle: FileHandle) {
        if let Some(node) = self.node_mut(id) {
            node.open.push(OpenFile {
                handle,
                borrowed: 0,
                closing: false,
            });
        }
    }

    /// One open of a node was released.
    pub(super) fn released(&mut self, id: NodeId, handle: FileHandle) -> Ending {
        let Some(node) = self.node_mut(id) else {
            return Ending::Now;
        };
        let ours = |file: &OpenFile| file.handle == handle && !file.closing;
        let idle = |file: &OpenFile| ours(file) && file.borrowed == 0;
        if let Some(at) = node.open.iter().position(idle) {
            node.open.swap_remove(at);
            return Ending::Now;
        }
        match node.open.iter_mut().find(|file| ours(file)) {
            Some(file) => {
                file.closing = true;
                Ending::Later
            }
            None => Ending::Now,
        }
    }

    /// Whether an open file has this handle.
    pub(super) fn is_open(&self, id: NodeId, handle: FileHandle) -> bool {
        let ours = |file: &OpenFile| file.handle == handle;
        self.node(id).is_some_and(|node| node.open.iter().any(ours))
    }

    /// The handle of an open file, to be given back.
    pub(super) fn borrow(&mut self, id: NodeId) -> Option<FileHandle> {
        let node = self.node_mut(id)?;
        let file = node.open.iter_mut().find(|file| !file.closing)?;
        file.borrowed += 1;
        Some(file.handle)
    }

    /// Gives a borrowed handle back.
    pub(super) fn unborrow(&mut self, id: NodeId, handle: FileHandle) -> Ending {
        let Some(node) = self.node_mut(id) else {
            return Ending::Later;
        };
        let ours = |file: &OpenFile| file.handle == handle && file.borrowed > 0;
        let Some(at) = node.open.iter().position(ours) else {
            return Ending::Later;
        };
        let ended = node.open.get_mut(at).is_some_and(|file| {
            file.borrowed -= 1;
            file.borrowed == 0 && file.closing
        });
        if ended {
            node.open.swap_remove(at);
            return Ending::Now;
        }
        Ending::Later
    }

    /// After an open file has ended: frees its node if nothing needs it. Answers the directory and
    /// name that are to be removed, if it was hidden and this was the last open.
    pub(super) fn closed(&mut self, id: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        let index = self.index(id)?;
        let node = self.nodes.get(index)?;
        let edge = node.hidden.and_then(|edge| self.edges.get(edge));
        let edge = edge.filter(|_| node.open.is_empty());
        let hidden = edge.map(|edge| (self.id(edge.parent), Box::from(&*edge.name)));
        if hidden.is_none() {
            self.reap(index);
        } else if let Some(node) = self.nodes.get_mut(index) {
            // Of several that end at the same time one removes it.
            node.hidden = None;
        }
        hidden
    }

    /// A name of a node is to be removed when it is closed. Answers false when it is closed.
    pub(super) fn hide(&mut self, id: NodeId, parent: NodeId, name: &[u8]) -> bool {
        let named = self.node(parent).and_then(|node| node.children.get(name));
        let edge = named.copied();
        let Some(node) = self.node_mut(id).filter(|node| !node.open.is_empty()) else {
            return false;
        };
        node.hidden = edge.filter(|edge| node.names.contains(edge));
        true
    }

    /// How many names lead to the node, and how many open files it has.
    pub(super) fn uses(&self, id: NodeId) -> (usize, usize) {
        self.node(id)
            .map_or((0, 0), |node| (node.names.len(), node.open.len()))
    }

    /// Remembers what a file is opened as. Answers whether it was the same last time.
    pub(super) fn opened_as(&mut self, id: NodeId, modified: Timestamp, size: u64) -> bool {
        let now = Some((modified, size));
        self.node_mut(id)
            .is_some_and(|node| std::mem::replace(&mut node.opened_as, now) == now)
    }
}
