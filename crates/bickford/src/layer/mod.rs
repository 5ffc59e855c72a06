//! Layers: what is done before and after the operations of any file system.
//!
//! A [`Layer`] stands over a file system. For each operation it may have a pre-call, which sees and
//! may change the arguments or answer instead, and a post-call, which sees arguments and result and
//! may change the result. [`Layered`] puts one over a file system and is a file system itself, so
//! that layers stack. What a layer has no interest in goes straight through: no box, no allocation.
//!
//! ```
//! use std::borrow::Cow;
//! use std::ffi::CString;
//!
//! use bickford::layer::{Call, Interest, Layer, Layered, OperationKind, OperationSet};
//! use bickford::layer::{PostCalls, PreCalls, Step};
//! use bickford::ops::{Entry, Lookup};
//!
//! /// Finds names whatever case they are asked for in, over a file system of lower-case names.
//! struct LowerCase;
//!
//! impl PreCalls for LowerCase {
//!     fn lookup<'a>(&self, call: &Call<'a>, op: &mut Lookup<'a>) -> Step<Entry> {
//!         let mut name = op.name.to_bytes().to_vec();
//!         name.make_ascii_lowercase();
//!         if let Ok(name) = CString::new(name) {
//!             op.name = call.keep_name(name);
//!         }
//!         Step::Continue
//!     }
//! }
//!
//! impl PostCalls for LowerCase {}
//!
//! impl Layer for LowerCase {
//!     fn name(&self) -> &str {
//!         "lower-case"
//!     }
//!
//!     fn interest(&self) -> Interest {
//!         Interest {
//!             pre: OperationSet::of(&[OperationKind::Lookup]),
//!             ..Interest::default()
//!         }
//!     }
//! }
//!
//! # struct Below;
//! # impl bickford::FileSystem for Below {}
//! let file_system = Layered::new(LowerCase, Below);
//! ```
//!
//! A layer that treats operations alike implements [`PreCalls::every`] or [`PostCalls::every`].
//! Which of its calls are made can be switched by a configuration file: [`Switches`].
//!
//! # Where data go past
//! With kernel pass-through, READ and WRITE do not come at all; with a zero-message open, OPEN and
//! RELEASE do not; FLUSH does not where the file system below says that it need not. A layer that
//! cannot do without says so in its [`Needs`], and only then is that mode turned off, with the reason in
//! the log. Reads that the page cache answers never come.
//!
//! # Names that it changes
//! Notifications do not go through layers: a file system below that tells the kernel of a name
//! ([`Notifier`](crate::Notifier)) must tell it as the layer shows it.
//!
//! # Files of its own
//! A pre-call may answer LOOKUP with a node that the layer made up, and a post-call may put one into a
//! listing. The layer says which those are ([`Layer::owns`]) and has pre-calls that answer every
//! operation on them: what they let go on reaches the file system below, which does not know the node.
//! ENOSYS is no answer for them: the kernel would not ask again, for any file. The ids from
//! [`NodeId::FIRST_OF_LAYERS`] on are for such nodes; each layer takes others of them.
//!
//! # Threads and locks
//! A pre-call runs where the request is handled. A post-call runs where the file system below
//! answers, which may be another thread, later. Neither is called with a lock held, and neither
//! should wait: an answer that is to come later is held back with [`Layer::defer`].

mod about;
mod calls;
mod held;
mod layered;
mod make;
mod needs;
mod operation;
mod switches;

pub use about::{About, Outcome, about, outcome};
pub use calls::{Call, Done, PostCalls, PreCalls, Resume, Step};
pub use held::{Closing, Held};
pub use layered::Layered;
pub use needs::{Needs, with_flushes};
pub use operation::{OperationKind, OperationSet, UnknownOperation, nearest};
pub use switches::{Switches, SwitchesError};

use rustix::io::Errno;

use crate::NodeId;
use crate::filesystem::Negotiation;
use crate::ops::Forget;

/// Which calls of a layer are to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Operations with a pre-call.
    pub pre: OperationSet,
    /// Operations with a post-call.
    pub post: OperationSet,
    /// Operations whose answers the layer may hold back.
    pub defer: OperationSet,
    /// Whether the layer sees forgets, and is asked which nodes are its own ([`Layer::owns`]).
    pub forget: bool,
    /// Whether the layer asks how long operations took ([`Done::started`]); reading the clock is
    /// not free.
    pub timed: bool,
}

/// Something to stand over a file system; see the [module](self).
pub trait Layer: PreCalls + PostCalls + Send + Sync + 'static {
    /// Its name, as messages show it.
    fn name(&self) -> &str;

    /// Which of its calls are to be made; asked once.
    fn interest(&self) -> Interest;

    /// What must not be turned off by a fast mode; asked once.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The session begins, before the file system below chooses.
    ///
    /// # Errors
    /// An error ends the session before it begins.
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        let _ = negotiation;
        Ok(())
    }

    /// Whether no call waits for another request of the same session: see
    /// [`FileSystem::is_prompt`](crate::FileSystem::is_prompt).
    fn is_prompt(&self) -> bool {
        false
    }

    /// The session has ended; called before the file system below hears of it. Answers that are
    /// held back must be let go.
    fn destroy(&self) {}

    /// The kernel gives back lookups; called before the file system below hears of it.
    fn forget(&self, forgets: &[Forget]) {
        let _ = forgets;
    }

    /// Whether the layer made a node up. The file system below does not hear of its forgets, nor of
    /// its release where a pre-call denies that. Asked where [`Interest::forget`] is set.
    fn owns(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// An answer of an operation of [`Interest::defer`] is ready, after the post-call: lets it go
    /// now, or keeps it for later. A layer bounds how many it keeps.
    fn defer(&self, done: &Done, outcome: &Outcome, resume: Resume) {
        let _ = (done, outcome);
        resume.now();
    }
}
