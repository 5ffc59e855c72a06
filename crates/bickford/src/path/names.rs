//! The table of names, for those who want to tell the kernel that something changed.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::NodeId;
use crate::inode::Table;
use crate::notify::{Notifier, NotifyError};

/// The names that the kernel knows of a path file system; clones share the table.
#[derive(Clone, Debug)]
pub struct Names {
    table: Arc<Table>,
}

/// How much the table of names holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Inodes that the kernel knows, with the root.
    pub nodes: usize,
    /// Names that lead to them, and names that are being used.
    pub names: usize,
    /// Operations that wait for a rename or removal, or to do one.
    pub waiting: usize,
}

impl Names {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self { table }
    }

    /// The inode at a path from the root, if the kernel knows one.
    #[must_use]
    pub fn node(&self, path: impl AsRef<Path>) -> Option<NodeId> {
        self.table.find(path.as_ref())
    }

    /// A path of an inode as it is now; it may be another one at once.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Option<PathBuf> {
        self.table.path(node)
    }

    /// How much the table holds.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let (nodes, names, waiting) = self.table.sizes();
        Sizes {
            nodes,
            names,
            waiting,
        }
    }

    /// Tells the kernel that attributes and contents at a path changed. Answers whether the kernel
    /// knows the path.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn invalidate(
        &self,
        notifier: &Notifier,
        path: impl AsRef<Path>,
    ) -> Result<bool, NotifyError> {
        let Some(node) = self.node(path) else {
            return Ok(false);
        };
        notifier.invalidate_inode(node, 0, 0)?;
        Ok(true)
    }

    /// Tells the kernel that what a path leads to changed: it is looked up again. Answers whether
    /// the kernel knows the directory that it is in.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn invalidate_name(
        &self,
        notifier: &Notifier,
        path: impl AsRef<Path>,
    ) -> Result<bool, NotifyError> {
        let path = path.as_ref();
        let name = path
            .file_name()
            .and_then(|name| CString::new(name.as_bytes()).ok());
        let parent = path.parent().and_then(|parent| self.node(parent));
        let (Some(parent), Some(name)) = (parent, name) else {
            return Ok(false);
        };
        notifier.invalidate_entry(parent, &name)?;
        Ok(true)
    }
}
