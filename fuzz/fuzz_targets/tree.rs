//! A model of a tree: paths, and the inodes that they lead to.

use std::collections::HashMap;

/// The names on the way from the root.
pub(crate) type Path = Vec<&'static str>;

/// Which inode.
pub(crate) type Id = usize;

pub(crate) const ROOT_ID: Id = 0;

pub(crate) struct Inode {
    pub(crate) directory: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Inode {
    pub(crate) fn new(directory: bool) -> Self {
        Self {
            directory,
            bytes: Vec::new(),
        }
    }

    /// The file type of its mode.
    pub(crate) fn kind(&self) -> u32 {
        match self.directory {
            true => 0o040_000,
            false => 0o100_000,
        }
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(data);
    }
}

/// The tree. Inodes stay when they have lost their names, for files that are open.
pub(crate) struct Model {
    pub(crate) names: HashMap<Path, Id>,
    pub(crate) inodes: HashMap<Id, Inode>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            names: HashMap::new(),
            inodes: HashMap::from([(ROOT_ID, Inode::new(true))]),
        }
    }
}

impl Model {
    pub(crate) fn find(&self, path: &Path) -> Option<Id> {
        self.names.get(path).copied()
    }

    pub(crate) fn add(&mut self, path: &Path, inode: Inode) -> Id {
        let id = self.inodes.len();
        self.inodes.insert(id, inode);
        self.names.insert(path.clone(), id);
        id
    }

    /// How many names lead to it.
    pub(crate) fn links(&self, id: Id) -> u32 {
        self.names.values().filter(|other| **other == id).count() as u32
    }

    /// The names in a directory.
    pub(crate) fn children(&self, directory: &Path) -> Vec<&'static str> {
        let below = |path: &&Path| path.len() == directory.len() + 1 && path.starts_with(directory);
        let children = self.names.keys().filter(below);
        children.filter_map(|path| path.last().copied()).collect()
    }

    pub(crate) fn has_children(&self, path: &Path) -> bool {
        !self.children(path).is_empty()
    }

    pub(crate) fn child(&self, directory: &Path, name: &str) -> Option<Id> {
        let found = self.names.iter().find(|(path, _)| {
            path.split_last()
                .is_some_and(|(last, parents)| *last == name && parents == directory.as_slice())
        });
        found.map(|(_, id)| *id)
    }

    /// Neither path is above the other.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path, exchange: bool) {
        let moved = self.take(from);
        let other = self.take(to);
        self.put(to, moved);
        if exchange {
            self.put(from, other);
        }
    }

    /// Takes a path and what is below it out; what follows the path, and the inode.
    fn take(&mut self, path: &Path) -> Vec<(Path, Id)> {
        let taken: Vec<Path> = self
            .names
            .keys()
            .filter(|it| it.starts_with(path))
            .cloned()
            .collect();
        let pairs = taken.into_iter().filter_map(|it| {
            let id = self.names.remove(&it)?;
            Some((it[path.len()..].to_vec(), id))
        });
        pairs.collect()
    }

    fn put(&mut self, path: &Path, taken: Vec<(Path, Id)>) {
        for (rest, id) in taken {
            self.names.insert([path.as_slice(), &rest].concat(), id);
        }
    }
}
