//! Pre-calls and post-calls around a file system.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use bickford::abi::InitFlags;
use bickford::layer::{Closing, Held, with_flushes};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use bickford::ops::*;
use bickford::{Context, Errno, FileSystem, Negotiation, Reply};

use crate::abi::*;
use crate::answer::{Buffer, Exposed, FlatAnswer};
use crate::deferred::{Snapshot, errno};
use crate::dispatch::{User, configure, request};
use crate::guard::Failure;
use crate::operations::{bit, for_each_operation};
use crate::parameters::{Changed, Parameters, bytes, put_data};

type PreCall =
    unsafe extern "C" fn(*mut c_void, *mut bickford_request, *mut bickford_answer) -> i32;
type PostCall =
    unsafe extern "C" fn(*mut c_void, *const bickford_request, *mut bickford_answer, i32) -> i32;

/// A file system with calls around its operations.
pub(crate) struct Layer<F> {
    below: Arc<F>,
    user: User,
    pre: Option<PreCall>,
    post: Option<PostCall>,
    pre_operations: u64,
    call_operations: u64,
    post_operations: u64,
    with_data: bool,
    /// Whether calls are to see each FLUSH.
    flushes: bool,
    config: bickford_config,
    prompt: bool,
    /// One more for each post-call that is owed.
    owed: Arc<()>,
}

impl<F: FileSystem> Layer<F> {
    pub(crate) fn new(
        below: Arc<F>,
        layer: &bickford_layer,
        config: bickford_config,
        prompt: bool,
    ) -> Result<Self, Failure> {
        if layer.pre_operations != 0 && layer.pre.is_none() {
            return Err(Failure::argument(
                "pre_operations are given, but no pre-call",
            ));
        }
        if layer.post_operations != 0 && layer.post.is_none() {
            return Err(Failure::argument(
                "post_operations are given, but no post-call",
            ));
        }
        let called = layer.pre_operations | layer.post_operations;
        Ok(Self {
            below,
            user: User(layer.user),
            pre: layer.pre,
            post: layer.post,
            pre_operations: layer.pre_operations,
            call_operations: with_ends(layer.call_operations),
            post_operations: layer.post_operations,
            with_data: layer.metadata_only == 0,
            flushes: called & bit(BICKFORD_OP_FLUSH) != 0,
            config,
            // Without a call, nothing of the caller's code could wait.
            prompt: prompt || called == 0,
            owed: Arc::default(),
        })
    }

    fn touches(&self, operation: u32) -> bool {
        let touched = self.pre_operations | self.post_operations | !self.call_operations;
        touched & bit(operation) != 0
    }

    /// Takes out of the kernel's offer the modes in which operations with calls would not come.
    fn withhold(&self, negotiation: &mut Negotiation) {
        if self.touches(BICKFORD_OP_READ) || self.touches(BICKFORD_OP_WRITE) {
            negotiation.withhold(InitFlags::PASSTHROUGH);
            negotiation.set_max_stack_depth(0);
        }
        let opens = [
            BICKFORD_OP_OPEN,
            BICKFORD_OP_RELEASE,
            BICKFORD_OP_OPENDIR,
            BICKFORD_OP_RELEASEDIR,
        ];
        if opens.into_iter().any(|open| self.touches(open)) {
            negotiation.withhold(InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT);
        }
    }

    /// Waits for the post-calls that are owed: the file system below answers from threads of its
    /// own, too, and no call may come after the end.
    fn settle(&self) {
        while Arc::strong_count(&self.owed) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        fence(Ordering::Acquire);
    }

    /// Runs the pre-call. An answer comes back if that is to be used.
    fn before<A: FlatAnswer>(&self, request: &mut bickford_request) -> Result<Option<A>, Errno> {
        let Some(pre) = self.pre else {
            return Ok(None);
        };
        let mut buffer = Buffer::with_room(room::<A>(request, self.with_data))?;
        let mut answer = bickford_answer::default();
        buffer.offer(&mut answer);
        // SAFETY: passed with this signature; its arguments live during the call.
        match unsafe { pre(self.user.0, request, &raw mut answer) } {
            0 => Ok(None),
            // SAFETY: a call that says that it answered leaves the buffer, or points to the data.
            BICKFORD_ANSWERED => unsafe { A::from_flat(&answer, request, buffer) }.map(Some),
            code => Err(errno(code)),
        }
    }

    /// A reply that runs the post-call and then answers `reply`. What `held` finds in the answer
    /// from below and not in that of the post-call goes back below.
    fn after<A: FlatAnswer>(
        &self,
        request: &bickford_request,
        reply: Reply<A>,
        held: fn(&Result<A, Errno>) -> Held,
        closing: Option<Box<Closing>>,
    ) -> Reply<A> {
        let Some(post) = self.post else {
            return reply;
        };
        let (user, with_data) = (self.user, self.with_data);
        let kept = Kept::new(request, with_data);
        let (below, owed) = (Arc::clone(&self.below), Arc::clone(&self.owed));
        reply.wrap(move |result, reply| {
            let request = kept.request();
            let before = held(&result);
            let result = run_post(post, user, &request, result, with_data);
            drop(owed);
            before.give_back(held(&result), &below, closing.as_deref());
            reply.complete(result);
        })
    }
}

/// Whether an operation ends what another one opened: what is open below stays open without it.
const fn is_end(operation: u32) -> bool {
    matches!(operation, BICKFORD_OP_RELEASE | BICKFORD_OP_RELEASEDIR)
}

/// Operations that reach the file system below, with those that end what they open there.
const fn with_ends(operations: u64) -> u64 {
    let files = bit(BICKFORD_OP_OPEN) | bit(BICKFORD_OP_CREATE) | bit(BICKFORD_OP_TMPFILE);
    let mut all = operations;
    if operations & files != 0 {
        all |= bit(BICKFORD_OP_RELEASE);
    }
    if operations & bit(BICKFORD_OP_OPENDIR) != 0 {
        all |= bit(BICKFORD_OP_RELEASEDIR);
    }
    all
}

/// Whether a node is the layer's own, of which the file system below does not know.
const fn is_of_layer(node: u64) -> bool {
    node >= BICKFORD_NODE_OF_LAYER
}

/// Whether calls see data of an operation: those of READ and WRITE with `with_data` alone.
fn shows_data(operation: u32, with_data: bool) -> bool {
    with_data || !matches!(operation, BICKFORD_OP_READ | BICKFORD_OP_WRITE)
}

/// How many bytes of data a call may answer.
fn room<A: FlatAnswer>(request: &bickford_request, with_data: bool) -> u64 {
    if shows_data(request.operation, with_data) {
        A::room(request)
    } else {
        0
    }
}

/// A reply for a caller who asked for `asked` bytes; a pre-call may have changed that.
fn for_caller<A: FlatAnswer>(reply: Reply<A>, asked: u64, request: &bickford_request) -> Reply<A> {
    if request.size == asked {
        return reply;
    }
    reply.wrap(move |result: Result<A, Errno>, reply: Reply<A>| {
        reply.complete(result.and_then(|answer| answer.for_size(asked)));
    })
}

fn run_post<A: FlatAnswer>(
    post: PostCall,
    user: User,
    request: &bickford_request,
    result: Result<A, Errno>,
    with_data: bool,
) -> Result<A, Errno> {
    let mut answer = bickford_answer::default();
    let exposed = result.and_then(|result| result.expose(&mut answer, with_data));
    let (mut exposed, code) = match exposed {
        Ok(exposed) => (exposed, 0),
        Err(errno) => {
            let failed = Exposed {
                buffer: Buffer::with_room(room::<A>(request, with_data))?,
                kept: None,
            };
            (failed, errno.raw_os_error())
        }
    };
    exposed.buffer.offer(&mut answer);
    // SAFETY: passed with this signature; its arguments live during the call.
    match unsafe { post(user.0, request, &raw mut answer, code) } {
        0 => match exposed.kept {
            Some(kept) => Ok(kept),
            // SAFETY: the data are the buffer still, or the call points to them.
            None => unsafe { A::from_flat(&answer, request, exposed.buffer) },
        },
        code => Err(errno(code)),
    }
}

/// A request with its names and data, for the post-call.
struct Kept {
    request: Snapshot,
    name: CString,
    name2: CString,
    data: Box<[u8]>,
}

impl Kept {
    fn new(request: &bickford_request, with_data: bool) -> Self {
        // SAFETY: names and data were there for the call that this request describes, and still are.
        let memory = |start, length| unsafe { bytes(start, length) }.unwrap_or_default();
        let name = |start, length| CString::new(memory(start, length)).unwrap_or_default();
        let data = if shows_data(request.operation, with_data) {
            memory(request.data, request.data_length)
        } else {
            &[]
        };
        Self {
            request: Snapshot::new(request),
            name: name(request.name, request.name_length),
            name2: name(request.name2, request.name2_length),
            data: data.into(),
        }
    }

    fn request(&self) -> bickford_request {
        let data = if self.data.is_empty() {
            std::ptr::null()
        } else {
            self.data.as_ptr()
        };
        bickford_request {
            data,
            data_length: self.data.len() as u64,
            name: self.name.as_ptr().cast(),
            name_length: self.name.count_bytes() as u64,
            name2: self.name2.as_ptr().cast(),
            name2_length: self.name2.count_bytes() as u64,
            ..self.request.0
        }
    }
}

macro_rules! define_layer {
    ($($method:ident: $operation:ty => $answer:ty, $number:ident, $default:expr;)+) => {
        impl<F: FileSystem> FileSystem for Layer<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.withhold(negotiation);
                self.below.init(negotiation)?;
                let called = self.pre_operations | self.post_operations;
                if self.with_data && called & bit(BICKFORD_OP_WRITE) != 0 {
                    negotiation.set_splice_writes(false);
                }
                configure(&self.config, negotiation);
                Ok(())
            }

            fn is_prompt(&self) -> bool {
                self.prompt && self.below.is_prompt()
            }

            fn destroy(&self) {
                self.below.destroy();
                self.settle();
            }

            fn forget(&self, forgets: &[Forget]) {
                let known = forgets.iter().filter(|forget| !is_of_layer(forget.node.0));
                let known: Vec<_> = known.copied().collect();
                if !known.is_empty() {
                    self.below.forget(&known);
                }
            }

            $(
                fn $method(&self, cx: &Context<'_>, op: $operation, reply: Reply<$answer>) {
                    if !self.touches($number) {
                        let reply = with_flushes(self.flushes, &op, reply);
                        return self.below.$method(cx, op, reply);
                    }
                    let mut request = request(cx, $number);
                    op.fill(&mut request);
                    let early = self.pre_operations & bit($number) != 0;
                    let late = self.post_operations & bit($number) != 0;
                    let seen = self.with_data && (early || late);
                    let payload = if seen { op.payload() } else { None };
                    let payload = match payload.transpose() {
                        Ok(payload) => payload,
                        Err(error) => {
                            return reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                        }
                    };
                    if let Some(data) = &payload {
                        put_data(&mut request, data);
                    }
                    let before = request;
                    let refuse = |errno, op: $operation, reply: Reply<$answer>| {
                        let called = self.call_operations & bit($number) != 0;
                        if !is_end($number) || !called || is_of_layer(before.node) {
                            return reply.error(errno);
                        }
                        let reply = reply.wrap(move |_, reply: Reply<$answer>| reply.error(errno));
                        self.below.$method(cx, op, reply);
                    };
                    if early {
                        match self.before::<$answer>(&mut request) {
                            Ok(None) => {}
                            Ok(Some(answer)) => {
                                return for_caller(reply, before.size, &request).ok(answer);
                            }
                            Err(errno) => return refuse(errno, op, reply),
                        }
                    }
                    // SAFETY: what a pre-call puts into the request stays until its thread is
                    // called again, which is after this.
                    let changed = unsafe { Changed::between(&before, &request) };
                    let mut changed = match changed {
                        Ok(changed) => changed,
                        Err(errno) => return refuse(errno, op, reply),
                    };
                    changed.data = changed.data.or(payload.as_deref());
                    let mut op: $operation = op;
                    if early || payload.is_some() {
                        op.apply(&request, &changed);
                    }
                    let reply = for_caller(reply, before.size, &request);
                    let reply = if late {
                        self.after(&request, reply, Held::of, Closing::of(cx, &op))
                    } else {
                        reply
                    };
                    if self.call_operations & bit($number) == 0 {
                        return reply.error(Errno::NOSYS);
                    }
                    let reply = with_flushes(self.flushes, &op, reply);
                    self.below.$method(cx, op, reply);
                }
            )+
        }
    };
}

for_each_operation!(define_layer);

#[cfg(test)]
mod tests;
