//! The low-level interface with methods that return a `Result`.

use rustix::io::Errno;

use super::Negotiation;
use crate::dispatch::Context;
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::reply::Reply;

macro_rules! define_blocking {
    ($($method:ident: $operation:ty => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        /// A file system over inodes whose methods return their answers. Wrap it in [`Blocking`] to
        /// serve it. A method that waits keeps a worker busy meanwhile.
        pub trait FileSystem: Send + Sync + 'static {
            /// The session begins: choose from what the kernel offers.
            ///
            /// # Errors
            /// An error ends the session before it begins.
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                let _ = negotiation;
                Ok(())
            }

            /// See [`super::FileSystem::is_prompt`].
            fn is_prompt(&self) -> bool {
                false
            }

            /// The session has ended; no request follows.
            fn destroy(&self) {}

            /// The kernel gives back lookups.
            fn forget(&self, forgets: &[Forget]) {
                let _ = forgets;
            }

            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// The errno that the caller gets.
                fn $method(&self, cx: &Context<'_>, op: $operation) -> Result<$answer, Errno> {
                    let _ = (cx, op);
                    $default
                }
            )+
        }

        impl<F: FileSystem> super::FileSystem for Blocking<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.0.init(negotiation)
            }

            fn is_prompt(&self) -> bool {
                self.0.is_prompt()
            }

            fn destroy(&self) {
                self.0.destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                self.0.forget(forgets);
            }

            $(
                fn $method(&self, cx: &Context<'_>, op: $operation, reply: Reply<$answer>) {
                    reply.complete(self.0.$method(cx, op));
                }
            )+
        }
    };
}

for_each_operation!(define_blocking);

/// Serves a file system whose methods return their answers.
#[derive(Debug)]
pub struct Blocking<F>(pub F);
