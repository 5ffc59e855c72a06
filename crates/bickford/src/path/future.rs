//! The path API with asynchronous methods, on any executor.
//!
//! The methods are those of [`super::FileSystem`], with the same arguments; only they may wait, and
//! hundreds of them can at once on a few threads. Each request becomes a task of its own. What the
//! [path API promises](super#what-paths-promise) holds while a method waits, too: a rename waits
//! for it, without keeping a thread.
//!
//! ```
//! use bickford::ops::Attr;
//! use bickford::path::future::{Adapter, FileSystem, Task};
//! use bickford::path::{Options, Subject};
//! use bickford::{Context, Errno};
//!
//! struct Remote;
//!
//! impl FileSystem for Remote {
//!     async fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
//!         let path = subject.path()?;
//!         if path.parent().is_none() {
//!             return Ok(Attr::directory(1, 0o755));
//!         }
//!         let size = ask_somebody(path.as_os_str().as_encoded_bytes()).await?;
//!         Ok(Attr::file(0, 0o644, size))
//!     }
//! }
//! # async fn ask_somebody(_: &[u8]) -> Result<u64, Errno> { Ok(0) }
//!
//! # fn runtime_spawn(_: Task) {}
//! // With tokio: `let handle = runtime.handle().clone();` and `move |task| drop(handle.spawn(task))`.
//! let filesystem = Adapter::new(Remote, Options::default(), |task: Task| runtime_spawn(task));
//! # fn serve(_: impl bickford::FileSystem) {}
//! # serve(filesystem);
//! ```
//!
//! # Interrupts
//! When the caller gets a signal, the method's future is dropped and the caller gets EINTR; what was
//! opened meanwhile is released again. Methods that change names (mkdir, rename, unlink and so on)
//! run to their end, for a name that was changed or not must be known; see
//! [`FileSystem::may_cancel`] for others.

use std::ffi::CStr;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bickford_abi::Opcode;
use rustix::fs::RenameFlags;

use super::adapter::Core;
pub use super::adapter::Waiting;
use super::table::for_each_path_operation;
use super::{
    Allocation, Ioctl, Listing, Names, New, Open, Options, Owner, SetXattr, Statx, Subject, Times,
};
use crate::filesystem::Negotiation;
use crate::filesystem::future::Spawned;
pub use crate::filesystem::future::{Spawn, Task};
use crate::ops::{
    Attr, Data, IoctlAnswer, Lock, LockKind, Opened, Payload, PollHandle, StatfsAnswer, Timestamp,
};
use crate::{Context, Errno, LockOwner};

macro_rules! define_future {
    ($($(#[$doc:meta])* fn $method:ident($($argument:ident: $kind:ty),* $(,)?) -> $answer:ty, $default:expr;)+) => {
        /// A file system over paths with asynchronous methods. Serve it with [`Adapter`].
        ///
        /// Implement the methods as `async fn`.
        pub trait FileSystem: Send + Sync + 'static {
            /// The session begins: choose from what the kernel offers.
            ///
            /// # Errors
            /// An error ends the session before it begins.
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                let _ = negotiation;
                Ok(())
            }

            /// See [`crate::filesystem::future::FileSystem::is_prompt`].
            fn is_prompt(&self) -> bool {
                false
            }

            /// The session has ended; no request follows, but tasks may still run.
            fn destroy(&self) {}

            /// Whether an operation ends where it is when its caller gets a signal. By default all
            /// but those that end an open file do. Those that change names never do, whatever is
            /// answered here.
            fn may_cancel(&self, opcode: Opcode) -> bool {
                !matches!(opcode, Opcode::Release | Opcode::Releasedir | Opcode::Flush)
            }

            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("The errno that the caller gets. By default `", stringify!($default), "`.")]
                fn $method(
                    &self,
                    cx: &Context<'_>
                    $(, $argument: $kind)*
                ) -> impl Future<Output = Result<$answer, Errno>> + Send {
                    let _ = (cx, $($argument,)*);
                    std::future::ready(Err($default))
                }
            )+
        }
    };
}

for_each_path_operation!(define_future);

/// What runs the tasks of the requests, and those that end what nobody waits for.
#[derive(Clone)]
pub(super) struct Spawner(Arc<dyn Spawn>);

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawner")
    }
}

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }
}

/// Serves an asynchronous file system over paths: one task for each request.
#[derive(Debug)]
pub struct Adapter<F> {
    spawned: Spawned<Core<F>, Spawner>,
}

impl<F: FileSystem> Adapter<F> {
    /// Serves `filesystem`, shown to the kernel as `options` say, with tasks that `spawner` runs.
    pub fn new(filesystem: F, options: Options, spawner: impl Spawn) -> Self {
        let spawner = Spawner(Arc::new(spawner));
        let core = Core::spawning(filesystem, options, spawner.clone());
        Self {
            spawned: Spawned::over(core, spawner),
        }
    }

    fn spawned(&self) -> &Spawned<Core<F>, Spawner> {
        &self.spawned
    }

    /// The names that the kernel knows.
    #[must_use]
    pub fn names(&self) -> Names {
        self.spawned.filesystem().names()
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &F {
        &self.spawned.filesystem().filesystem
    }
}

/// Operations with the names of the inode interface, some of which the path API has, too.
mod delegation {
    use super::{Adapter, FileSystem};
    use crate::filesystem::define_delegation;
    #[allow(
        clippy::wildcard_imports,
        reason = "the operation table names every operation and answer"
    )]
    use crate::ops::*;

    for_each_operation!(define_delegation [F: FileSystem] Adapter<F> => spawned;);
}
