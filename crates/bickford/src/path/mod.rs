//! The high-level interface: methods get paths instead of inodes.
//!
//! Implement [`FileSystem`] and serve it with [`Adapter`]:
//!
//! ```
//! use std::path::Path;
//!
//! use bickford::ops::{Attr, Data};
//! use bickford::path::{self, Listing, Subject};
//! use bickford::{Context, Errno};
//!
//! const TEXT: &[u8] = b"Hello, world!\n";
//!
//! struct Hello;
//!
//! impl path::FileSystem for Hello {
//!     fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
//!         match subject.path()?.to_str() {
//!             Some("/") => Ok(Attr::directory(1, 0o755)),
//!             Some("/hello") => Ok(Attr::file(2, 0o644, TEXT.len() as u64)),
//!             _ => Err(Errno::NOENT),
//!         }
//!     }
//!
//!     fn readdir(
//!         &self,
//!         _: &Context<'_>,
//!         _: Subject<'_>,
//!         listing: &mut Listing,
//!     ) -> Result<(), Errno> {
//!         listing.add("hello", 0o100_000);
//!         Ok(())
//!     }
//!
//!     fn read(
//!         &self,
//!         _: &Context<'_>,
//!         _: Subject<'_>,
//!         offset: u64,
//!         size: u32,
//!     ) -> Result<Data, Errno> {
//!         Ok(Data::part(TEXT, offset, size))
//!     }
//! }
//!
//! let filesystem = path::Adapter::new(Hello, path::Options::default());
//! # fn serve(_: impl bickford::FileSystem) {}
//! # serve(filesystem);
//! ```
//!
//! # What paths promise
//!
//! A path is right from the beginning to the end of the method that gets it: what would change it
//! (rename, exchange, unlink, rmdir) waits until the method has returned, and methods that come
//! later wait for that, first come first served. There is no lock that all methods share; two
//! operations wait for each other only when one changes a name that the other uses.
//!
//! A file may be open when its last name is removed. Its handle goes on being used, and
//! [`Subject::path`] answers ENOENT. Hard links lead to one inode when they are made through the
//! mount, or where [`Options::use_ino`] tells.

mod adapter;
mod filesystem;
pub mod future;
mod handles;
mod listing;
pub mod lower;
pub mod memory;
mod names;
mod options;
mod subject;
mod table;

pub use adapter::Adapter;
pub use filesystem::{FileSystem, Ioctl};
pub use handles::Handles;
pub use listing::{LISTING_BYTES_MAX, Listing};
pub use names::{Names, Sizes};
pub use options::Options;
pub use subject::{Allocation, New, Open, Owner, SetXattr, Statx, Subject, Times};
