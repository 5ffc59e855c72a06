//! Parts for file systems that keep their files in a directory of the machine: what passes it through,
//! records it, filters or changes it.
//!
//! A [`Directory`] leads from a path of the mount to what is below it: to a [`File`], which an
//! operation is carried out on, or to a [`Place`], the name of something to be made, moved or
//! removed. Nothing leads out of it: a symbolic link in the middle of a path, which somebody put
//! there after the kernel looked, is refused with ELOOP and not followed.
//!
//! Files belong to whom the process runs as; [`Place::give`] gives them to the caller. Who makes
//! names clears the umask of the process first (umask(2)), and counts on the caller's: it is applied here where the
//! kernel has not (`DONT_MASK`), but not in a directory with a default ACL, which takes its place (acl(5)).
//!
//! ```
//! use bickford::ops::{Attr, Data, Opened};
//! use bickford::path::lower::{Directory, File};
//! use bickford::path::{FileSystem, Handles, Listing, Open, Subject};
//! use bickford::{Context, Result};
//!
//! /// A directory, to be read.
//! struct Shown {
//!     source: Directory,
//!     open: Handles<File>,
//! }
//!
//! impl Shown {
//!     fn at(&self, subject: Subject<'_>) -> Result<File> {
//!         self.source.find(&self.open, subject)
//!     }
//! }
//!
//! impl FileSystem for Shown {
//!     fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
//!         self.at(subject)?.attr()
//!     }
//!
//!     fn readdir(&self, _: &Context<'_>, at: Subject<'_>, listing: &mut Listing) -> Result<()> {
//!         self.source.list(at.path()?, listing)
//!     }
//!
//!     fn open(&self, _: &Context<'_>, path: &std::path::Path, open: Open) -> Result<Opened> {
//!         let file = self.source.open(path, open)?;
//!         Ok(Opened::new(self.open.insert(file)))
//!     }
//!
//!     fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
//!         self.open.remove(file);
//!         Ok(())
//!     }
//!
//!     fn read(&self, _: &Context<'_>, file: Subject<'_>, at: u64, size: u32) -> Result<Data> {
//!         Ok(self.at(file)?.read(at, size))
//!     }
//! }
//! # let source = Directory::new("/")?;
//! # let _ = Shown { source, open: Handles::default() };
//! # Ok::<(), std::io::Error>(())
//! ```

mod directory;
mod file;
mod stream;

pub use directory::{Directory, Place};
pub use file::{File, XATTR_BYTES_MAX};
pub use stream::Stream;
