//! Pre-calls and post-calls: one method for each operation.

use std::cell::OnceCell;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bickford_abi::INVALID_UIDGID;
use rustix::io::Errno;

use super::about::{Describe, outcome};
use super::{About, OperationKind, Outcome};
use crate::dispatch::{Context, Interrupt};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::{Unique, ops::for_each_operation};

/// What a pre-call decides.
#[derive(Debug)]
pub enum Step<A> {
    /// The operation goes on to the file system below, with the arguments as they are now.
    Continue,
    /// This is the result; the file system below is not asked. Post-calls still see it. Only where an error
    /// is the answer to a release, what is open below is closed all the same. A pre-call that panics answers EIO.
    Answer(Result<A, Errno>),
}

/// What surrounds a pre-call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) scratch: &'a Scratch,
    pub(super) kind: OperationKind,
    pub(super) length: usize,
}

impl<'a> Call<'a> {
    /// The context of the request.
    #[must_use]
    pub fn context(&self) -> &'a Context<'a> {
        self.cx
    }

    /// The operation.
    #[must_use]
    pub fn kind(&self) -> OperationKind {
        self.kind
    }

    /// How many bytes a WRITE brings; zero for others. The bytes themselves are in the operation
    /// only where the layer's needs say `contents`.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Keeps a name for as long as the operation needs it, to put it in place of another.
    #[must_use]
    pub fn keep_name(&self, name: CString) -> &'a CStr {
        match self.scratch.keep(Kept::Name(name)) {
            Kept::Name(name) => name,
            Kept::Bytes(_) => c"",
        }
    }

    /// Keeps bytes for as long as the operation needs them, to put them in place of others.
    #[must_use]
    pub fn keep_bytes(&self, bytes: Vec<u8>) -> &'a [u8] {
        match self.scratch.keep(Kept::Bytes(bytes)) {
            Kept::Bytes(bytes) => bytes,
            Kept::Name(_) => &[],
        }
    }
}

#[derive(Debug)]
enum Kept {
    Name(CString),
    Bytes(Vec<u8>),
}

/// Values that live as long as one call; a list, so that nothing moves when another is added.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    kept: OnceCell<Kept>,
    next: OnceCell<Box<Scratch>>,
}

impl Scratch {
    fn keep(&self, kept: Kept) -> &Kept {
        let mut place = self;
        while place.kept.get().is_some() {
            place = place.next.get_or_init(Box::default);
        }
        place.kept.get_or_init(|| kept)
    }
}

/// What surrounds a post-call, which may run on another thread, after the handler has returned.
#[derive(Clone, Debug)]
pub struct Done {
    pub(super) kind: OperationKind,
    pub(super) unique: Unique,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) started: Option<Instant>,
    pub(super) length: usize,
    pub(super) interrupt: Option<Arc<Interrupt>>,
}

impl Done {
    pub(super) fn new(cx: &Context<'_>, kind: OperationKind, timed: bool, interrupt: bool) -> Self {
        Self {
            kind,
            unique: cx.unique(),
            uid: cx.uid(),
            gid: cx.gid(),
            pid: cx.pid(),
            started: timed.then(Instant::now),
            length: 0,
            interrupt: interrupt.then(|| cx.interrupt()),
        }
    }

    /// The operation.
    #[must_use]
    pub fn kind(&self) -> OperationKind {
        self.kind
    }

    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> Unique {
        self.unique
    }

    /// Whether the kernel tells the caller's user and group, see [`Context::has_ids`].
    #[must_use]
    pub fn has_ids(&self) -> bool {
        self.uid != INVALID_UIDGID
    }

    /// The caller's user; `u32::MAX` where [`Self::has_ids`] says no.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The caller's group; `u32::MAX` where [`Self::has_ids`] says no.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The calling thread; zero where it is not known.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When the pre-call was over and the file system below was called; `None` where the layer's
    /// [`super::Interest::timed`] is not set.
    #[must_use]
    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    /// How long the file system below took; zero where the layer's [`super::Interest::timed`] is not
    /// set.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.started
            .map(|began| began.elapsed())
            .unwrap_or_default()
    }

    /// How many bytes a READ brought; zero for others. The bytes themselves are in the result only
    /// where the layer's needs say `contents`.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The wish of the caller that the request may end, for operations whose answers the layer may
    /// hold back.
    #[must_use]
    pub fn interrupt(&self) -> Option<&Arc<Interrupt>> {
        self.interrupt.as_ref()
    }
}

/// An answer that is held back; dropped, it goes on.
pub struct Resume {
    pub(super) resume: Option<Box<dyn FnOnce() + Send>>,
    pub(super) may_wait: bool,
}

impl std::fmt::Debug for Resume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resume")
    }
}

impl Resume {
    /// Lets the answer go on, on this thread.
    pub fn now(self) {
        drop(self);
    }

    /// Whether the answer may be held back: [`Reply::may_wait`](crate::Reply::may_wait) and
    /// [`Context::may_wait`](crate::Context::may_wait), as it was when the layer got this.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        if let Some(resume) = self.resume.take() {
            resume();
        }
    }
}

/// The type of an operation with a lifetime, where it has one.
macro_rules! operation_type {
    ($lifetime:lifetime $operation:ident) => { $operation };
    ($lifetime:lifetime $operation:ident $own:lifetime) => { $operation<$lifetime> };
}

macro_rules! define_calls {
    ($($method:ident: $operation:ident $(<$lt:lifetime>)? => $answer:ty, $default:expr, [$first:ident $(, $rest:ident)*], $doc:literal;)+) => {
        /// What a layer does before an operation. Only called for the operations of
        /// [`super::Interest::pre`].
        pub trait PreCalls {
            /// For every operation that has no method of its own. An errno is the answer.
            fn every(&self, call: &Call<'_>, about: &About<'_>) -> Option<Errno> {
                let _ = (call, about);
                None
            }

            $(
                #[doc = $doc]
                fn $method<'a>(
                    &self,
                    call: &Call<'a>,
                    op: &mut operation_type!('a $operation $($lt)?),
                ) -> Step<$answer> {
                    match PreCalls::every(self, call, &op.about()) {
                        None => Step::Continue,
                        Some(errno) => Step::Answer(Err(errno)),
                    }
                }
            )+
        }

        /// What a layer does after an operation. Only called for the operations of
        /// [`super::Interest::post`]. When a success is made an error here, the file system below
        /// gets back the lookups and open files that nobody will hear of.
        pub trait PostCalls {
            /// For every operation that has no method of its own. An errno takes the place of the
            /// result.
            fn every(&self, done: &Done, about: &About<'_>, outcome: &Outcome) -> Option<Errno> {
                let _ = (done, about, outcome);
                None
            }

            $(
                #[doc = $doc]
                fn $method(
                    &self,
                    done: &Done,
                    op: &$operation $(<$lt>)?,
                    result: &mut Result<$answer, Errno>,
                ) {
                    let mut outcome = outcome(result);
                    if done.length > 0 {
                        outcome.bytes = done.length as u64;
                    }
                    if let Some(errno) = PostCalls::every(self, done, &op.about(), &outcome) {
                        *result = Err(errno);
                    }
                }
            )+
        }
    };
}

for_each_operation!(define_calls);
