//! What a file system implements: the low-level interface over inodes.

pub mod blocking;
pub mod future;
mod negotiation;

use std::sync::Arc;

use rustix::io::Errno;

pub use negotiation::{MAX_WRITE, Negotiation};

use crate::dispatch::Context;
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::reply::Reply;

macro_rules! define_trait {
    ($($method:ident: $operation:ty => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        /// A file system over inodes, by completion: each method gets a context, the borrowed
        /// operation and a reply, which may be completed later and from another thread.
        ///
        /// What is not implemented answers ENOSYS, after which the kernel mostly does not ask
        /// again. See [`blocking::FileSystem`] for methods that return a `Result`.
        pub trait FileSystem: Send + Sync + 'static {
            /// The session begins: choose from what the kernel offers.
            ///
            /// # Errors
            /// An error ends the session before it begins, without `destroy`, and is what whoever started
            /// it gets. A panic does so, too.
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                let _ = negotiation;
                Ok(())
            }

            /// Whether no method waits for another request of the same session, be it by a lock that is
            /// held until another request comes, or by using what it is mounted on. Then a thread of
            /// io_uring takes several requests at a time while the methods are quick, which costs less
            /// where many callers wait; while it is in one method, the others that it took wait.
            fn is_prompt(&self) -> bool {
                false
            }

            /// The session has ended; no request follows, but replies that are due may still be sent.
            ///
            /// It is called once after each session that began, whether or not somebody waits for its end,
            /// by the thread of the session that ends last: when all methods have returned. Unmounting does not wait for
            /// it, but where a block device is mounted ([`MountOptions::block_device`](crate::MountOptions)). A panic of it
            /// is logged.
            fn destroy(&self) {}

            /// The kernel gives back lookups. Every entry that was answered raised the lookup
            /// count of its node by one; at zero the kernel does not know the node any more. When
            /// the session ends, all counts fall to zero without a call.
            fn forget(&self, forgets: &[Forget]) {
                let _ = forgets;
            }

            $(
                #[doc = $doc]
                fn $method(&self, cx: &Context<'_>, op: $operation, reply: Reply<$answer>) {
                    let _ = (cx, op);
                    reply.complete($default);
                }
            )+
        }
    };
}

for_each_operation!(define_trait);

/// Implements [`FileSystem`] for what leads to another one.
macro_rules! define_delegation {
    ([$($parameter:tt)*] $outer:ty => $below:ident;
        $($method:ident: $operation:ty => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        impl<$($parameter)*> $crate::FileSystem for $outer {
            fn init(&self, negotiation: &mut $crate::Negotiation) -> $crate::Result<()> {
                self.$below().init(negotiation)
            }

            fn is_prompt(&self) -> bool {
                self.$below().is_prompt()
            }

            fn destroy(&self) {
                self.$below().destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                self.$below().forget(forgets);
            }

            $(
                fn $method(&self, cx: &$crate::Context<'_>, op: $operation, reply: $crate::Reply<$answer>) {
                    self.$below().$method(cx, op, reply);
                }
            )+
        }
    };
}

pub(crate) use define_delegation;

for_each_operation!(define_delegation [F: FileSystem + ?Sized] Arc<F> => as_ref;);
for_each_operation!(define_delegation [F: FileSystem + ?Sized] Box<F> => as_ref;);
