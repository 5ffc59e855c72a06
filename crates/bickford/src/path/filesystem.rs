//! What a file system over paths implements.

use std::ffi::CStr;
use std::path::Path;

use bickford_abi::IoctlFlags;
use rustix::fs::RenameFlags;

use super::table::for_each_path_operation;
use super::{Allocation, Listing, New, Open, Owner, SetXattr, Statx, Subject, Times};
use crate::filesystem::Negotiation;
use crate::ops::{
    Attr, Data, IoctlAnswer, Lock, LockKind, Opened, Payload, PollHandle, StatfsAnswer, Timestamp,
};
use crate::{Context, Errno, LockOwner};

macro_rules! define_filesystem {
    ($($(#[$doc:meta])* fn $method:ident($($argument:ident: $kind:ty),* $(,)?) -> $answer:ty, $default:expr;)+) => {
        /// A file system whose methods get paths and return their answers. Serve it with
        /// [`super::Adapter`]; see [`super::future`] for asynchronous methods.
        ///
        /// Paths begin with `/`, the root of the mount, and stay right while a method runs: renames
        /// wait. A method that waits keeps a worker busy meanwhile, and what would rename or remove
        /// its path. What is not implemented answers ENOSYS; where the kernel then does not ask
        /// again, it costs nothing. Names that are made have the caller's umask off already, unless
        /// [`bickford_abi::InitFlags::DONT_MASK`] is wanted in `init`.
        pub trait FileSystem: Send + Sync + 'static {
            /// The session begins: choose from what the kernel offers, for instance locks between
            /// hosts ([`bickford_abi::InitFlags::POSIX_LOCKS`],
            /// [`bickford_abi::InitFlags::FLOCK_LOCKS`]).
            ///
            /// # Errors
            /// An error ends the session before it begins.
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                let _ = negotiation;
                Ok(())
            }

            /// See [`crate::FileSystem::is_prompt`].
            fn is_prompt(&self) -> bool {
                false
            }

            /// The session has ended; no request follows.
            fn destroy(&self) {}

            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("The errno that the caller gets. By default `", stringify!($default), "`.")]
                fn $method(&self, cx: &Context<'_> $(, $argument: $kind)*) -> Result<$answer, Errno> {
                    let _ = (cx, $($argument,)*);
                    Err($default)
                }
            )+
        }

        /// A file system that answers before it returns, as one that need not: its futures are
        /// ready when they are made.
        #[derive(Debug)]
        pub(crate) struct Immediate<F>(pub(crate) F);

        impl<F: FileSystem> super::future::FileSystem for Immediate<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.0.init(negotiation)
            }

            fn is_prompt(&self) -> bool {
                self.0.is_prompt()
            }

            fn destroy(&self) {
                self.0.destroy();
            }

            $(
                fn $method(
                    &self,
                    cx: &Context<'_>
                    $(, $argument: $kind)*
                ) -> impl Future<Output = Result<$answer, Errno>> + Send {
                    std::future::ready(self.0.$method(cx $(, $argument)*))
                }
            )+
        }
    };
}

for_each_path_operation!(define_filesystem);

impl<'a> Ioctl<'a> {
    pub(crate) fn new(op: &crate::ops::Ioctl<'a>) -> Self {
        Self {
            command: op.command,
            argument: op.argument,
            input: op.input,
            output_size: op.output_size,
            flags: op.flags,
        }
    }
}

/// A device-specific command (ioctl(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ioctl<'a> {
    /// The command.
    pub command: u32,
    /// The third argument of ioctl(2) as the caller passed it.
    pub argument: u64,
    /// What the argument points to, where the command says that it is read.
    pub input: &'a [u8],
    /// How many bytes the caller's buffer takes.
    pub output_size: u32,
    /// Whether the file is a directory, the caller 32-bit, and so on.
    pub flags: IoctlFlags,
}
