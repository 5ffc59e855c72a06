//! A file system under a layer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bickford_abi::InitFlags;
use rustix::io::Errno;

use super::about::{Describe, Observe, outcome};
use super::calls::{Call, Done, PostCalls, PreCalls, Resume, Scratch, Step};
use super::held::{Closing, Held};
use super::needs::{SPARING, with_flushes};
use super::{Layer, Needs, OperationKind, OperationSet, Switches};
use crate::NodeId;
use crate::dispatch::{Context, may_wait};
use crate::filesystem::{FileSystem, Negotiation};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::reply::Reply;

/// A file system with a layer over it; itself a file system, so that layers stack.
#[derive(Debug)]
pub struct Layered<L, F> {
    inner: Arc<Inner<L, F>>,
}

#[derive(Debug)]
struct Inner<L, F> {
    layer: L,
    lower: F,
    needs: Needs,
    pre: OperationSet,
    call: OperationSet,
    post: OperationSet,
    defer: OperationSet,
    /// Operations that do not go straight through.
    hooked: OperationSet,
    forget: bool,
    timed: bool,
}

impl<L: Layer, F: FileSystem> Layered<L, F> {
    /// Puts `layer` over `lower`.
    pub fn new(layer: L, lower: F) -> Self {
        Self::with_switches(layer, lower, &Switches::default())
    }

    /// Puts `layer` over `lower`, with what `switches` turn off left out.
    pub fn with_switches(layer: L, lower: F, switches: &Switches) -> Self {
        let interest = layer.interest();
        let pre = interest.pre.both(switches.pre);
        let post = interest.post.both(switches.post);
        let defer = interest.defer.both(switches.post);
        let call = switches.call.with_ends();
        let needs = switches.restrict(layer.needs());
        let sparing = if needs.flushes {
            SPARING
        } else {
            OperationSet::NONE
        };
        let hooked = pre
            .with(post)
            .with(defer)
            .with(sparing)
            .with(OperationSet::ALL.without(call));
        let inner = Inner {
            needs,
            layer,
            lower,
            pre,
            call,
            post,
            defer,
            hooked,
            forget: interest.forget,
            timed: interest.timed,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The layer.
    #[must_use]
    pub fn layer(&self) -> &L {
        &self.inner.layer
    }

    /// The file system below.
    #[must_use]
    pub fn lower(&self) -> &F {
        &self.inner.lower
    }

    /// What the layer needs, after the switches.
    #[must_use]
    pub fn needs(&self) -> &Needs {
        &self.inner.needs
    }
}

impl<L: Layer, F: FileSystem> Inner<L, F> {
    /// A panic of the layer must keep neither what comes after it from the file system below nor a
    /// thread of that from its work.
    fn guarded(&self, call: &str, run: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            tracing::error!(layer = self.layer.name(), "the layer panicked in {call}");
        }
    }

    fn owns(&self, node: NodeId) -> bool {
        self.forget && self.layer.owns(node)
    }

    /// The file system below does not know the layer's own nodes, or has others by these numbers.
    fn forget_below(&self, forgets: &[Forget]) {
        let below = |forget: &&Forget| !self.owns(forget.node);
        if forgets.iter().all(|forget| below(&forget)) {
            return self.lower.forget(forgets);
        }
        let known: Vec<_> = forgets.iter().filter(below).copied().collect();
        if !known.is_empty() {
            self.lower.forget(&known);
        }
    }

    fn before<'a, O: Describe, A>(
        &self,
        cx: &'a Context<'a>,
        scratch: &'a Scratch,
        op: &mut O,
        pre: impl FnOnce(&L, &Call<'a>, &mut O) -> Step<A>,
    ) -> Step<A> {
        if !self.pre.contains(O::KIND) {
            return Step::Continue;
        }
        let mut call = Call {
            cx,
            scratch,
            kind: O::KIND,
            length: 0,
        };
        if O::KIND == OperationKind::Write {
            call.length = op
                .about()
                .length
                .map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        }
        let given = *op;
        if !self.needs.contents {
            op.conceal();
        }
        // A panic is an answer like others: what is open below is closed after it, too.
        let step = catch_unwind(AssertUnwindSafe(|| pre(&self.layer, &call, op)));
        if !self.needs.contents {
            op.reveal(&given);
        }
        step.unwrap_or_else(|_| {
            tracing::error!(
                layer = self.layer.name(),
                operation = O::KIND.name(),
                unique = cx.unique().0,
                "the layer panicked before the call; the caller gets EIO"
            );
            *op = given;
            Step::Answer(Err(Errno::IO))
        })
    }

    /// The reply for the file system below, whose answer goes through the post-call.
    fn wrap<O, A>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        op: &O,
        reply: Reply<A>,
        below: bool,
        post: fn(&L, &Done, &O::Kept, &mut Result<A, Errno>),
    ) -> Reply<A>
    where
        L: Layer,
        O: Describe + Keep,
        A: Observe,
    {
        let kind = O::KIND;
        let kept = op.keep(self.needs.contents);
        let mut done = Done::new(cx, kind, self.timed, self.defer.contains(kind));
        let closing = below.then(|| Closing::of(cx, op)).flatten();
        let deferred = self.defer.contains(kind).then(|| cx.responder());
        let inner = Arc::clone(self);
        reply.wrap(move |mut result, reply| {
            if inner.post.contains(kind) {
                let held = below.then(|| Held::of(&result));
                inner.after(&mut done, &kept, &mut result, post);
                if let Some(held) = held {
                    held.give_back(Held::of(&result), &inner.lower, closing.as_deref());
                }
            }
            let Some(responder) = deferred else {
                return reply.complete(result);
            };
            let outcome = outcome(&result);
            let resume = Resume {
                // Of a reply that a layer above made itself the request alone tells.
                may_wait: reply.may_wait() && may_wait(&responder),
                resume: Some(Box::new(move || reply.complete(result))),
            };
            inner.guarded("holding an answer back", || {
                inner.layer.defer(&done, &outcome, resume);
            });
        })
    }

    /// A post-call that panics must not take a thread of the file system below with it.
    fn after<K, A: Observe>(
        &self,
        done: &mut Done,
        kept: &K,
        result: &mut Result<A, Errno>,
        post: fn(&L, &Done, &K, &mut Result<A, Errno>),
    ) {
        let mut concealed = None;
        if done.kind == OperationKind::Read
            && let Ok(answer) = result
        {
            done.length = usize::try_from(answer.outcome().bytes).unwrap_or(usize::MAX);
            if !self.needs.contents {
                concealed = answer.conceal();
            }
        }
        let call = AssertUnwindSafe(|| post(&self.layer, done, kept, result));
        if catch_unwind(call).is_err() {
            tracing::error!(
                layer = self.layer.name(),
                operation = done.kind.name(),
                unique = done.unique.0,
                "the layer panicked after the call; the caller gets EIO"
            );
            *result = Err(Errno::IO);
        }
        if let (Some(data), Ok(answer)) = (concealed, result) {
            answer.reveal(data);
        }
    }
}

macro_rules! define_layered {
    ($($method:ident: $operation:ident $(<$lt:lifetime>)? => $answer:ty, $default:expr, [$first:ident $(, $rest:ident)*], $doc:literal;)+) => {
        impl<L: Layer, F: FileSystem> FileSystem for Layered<L, F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.inner.needs.withhold(self.inner.layer.name(), negotiation);
                // A layer sees no name of what comes by a file handle.
                negotiation.withhold(InitFlags::EXPORT_SUPPORT);
                self.inner.layer.init(negotiation)?;
                self.inner.lower.init(negotiation)?;
                if self.inner.needs.contents {
                    negotiation.set_splice_writes(false);
                }
                Ok(())
            }

            fn is_prompt(&self) -> bool {
                self.inner.layer.is_prompt() && self.inner.lower.is_prompt()
            }

            fn destroy(&self) {
                self.inner.guarded("destroy", || self.inner.layer.destroy());
                self.inner.lower.destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                if self.inner.forget {
                    self.inner.guarded("forget", || self.inner.layer.forget(forgets));
                }
                self.inner.forget_below(forgets);
            }

            $(
                fn $method(&self, cx: &Context<'_>, op: $operation $(<$lt>)?, reply: Reply<$answer>) {
                    const KIND: OperationKind = OperationKind::$first;
                    let inner = &self.inner;
                    if !inner.hooked.contains(KIND) {
                        return inner.lower.$method(cx, op, reply);
                    }
                    let scratch = Scratch::default();
                    let mut op = op;
                    let step = inner.before(cx, &scratch, &mut op, |layer, call, op| {
                        PreCalls::$method(layer, call, op)
                    });
                    // What is open below is closed even where the layer denies that.
                    let (step, denied) = match step {
                        Step::Answer(Err(errno))
                            if OperationSet::ENDS.both(inner.call).contains(KIND)
                                && !inner.owns(op.about().node) =>
                        {
                            (Step::Continue, Some(errno))
                        }
                        step => (step, None),
                    };
                    let below = matches!(step, Step::Continue) && inner.call.contains(KIND);
                    let reply = if inner.post.contains(KIND) || inner.defer.contains(KIND) {
                        inner.wrap(cx, &op, reply, below, |layer, done, kept, result| {
                            PostCalls::$method(layer, done, &kept.operation(), result);
                        })
                    } else {
                        reply
                    };
                    let reply = match denied {
                        Some(errno) => reply.wrap(move |_, reply: Reply<$answer>| reply.error(errno)),
                        None => reply,
                    };
                    match step {
                        Step::Answer(result) => reply.complete(result),
                        Step::Continue if below => {
                            let reply = with_flushes(inner.needs.flushes, &op, reply);
                            inner.lower.$method(cx, op, reply);
                        }
                        Step::Continue => reply.complete($default),
                    }
                }
            )+
        }
    };
}

for_each_operation!(define_layered);
