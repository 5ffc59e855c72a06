//! Parts for file systems that keep their names in memory: archives, computed files, caches, tests.
//!
//! A [`Tree`] holds inodes with attributes, names and extended attributes, and beside them whatever
//! the file system keeps of each: contents, an offset in an archive, a key. It has a method for
//! nearly each one of [`super::FileSystem`], and answers the errors that Linux would. Of an open
//! file it makes the inode number the handle, so that files stay while they are open.
//!
//! What a tree's inodes keep may be [`Contents`]: sparse files within [`Limits`], which are read,
//! written, truncated and punched as Linux does.
//!
//! ```
//! use bickford::ops::Attr;
//! use bickford::path::memory::Tree;
//! use bickford::Errno;
//!
//! let mut tree = Tree::new(Attr::directory(1, 0o755), "");
//! tree.insert("/hello", Attr::file(0, 0o644, 14), "Hello, world!\n")?;
//! tree.link("/hello", "/again")?;
//! assert_eq!(tree.get("/again")?.data, "Hello, world!\n");
//! assert_eq!(tree.get("/again")?.attr.links, 2);
//! assert_eq!(tree.get("/other").map(|inode| inode.attr), Err(Errno::NOENT));
//! # Ok::<(), Errno>(())
//! ```

mod contents;
mod inode;
mod tree;
mod xattrs;

pub use contents::{Contents, FILE_BYTES_MAX, Limits};
pub use inode::Inode;
pub use tree::Tree;
pub use xattrs::{XATTRS_BYTES_MAX, Xattrs};
