//! Replies that are taken out of their callback and completed later.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use bickford::abi::Opcode;
use bickford::backing::Backings;
use bickford::ops::FileRange;
use bickford::path::Listing;
use bickford::{Context, DetachedContext, Errno, Interrupt, NodeId, Reply};

use crate::abi::{
    BICKFORD_ERROR_HANDLE, BICKFORD_ERROR_LIMIT, bickford_answer, bickford_interrupted,
    bickford_reply, bickford_request,
};
use crate::answer::{Buffer, FlatAnswer, FromFlat};
use crate::backing::{self, Registrar};
use crate::dispatch::User;
use crate::guard::{Failure, guarded};

/// How many replies may wait at once.
const DEFERRED_MAX: usize = 1 << 20;

type Complete = Box<dyn FnOnce(Result<&bickford_answer, Errno>, Buffer) + Send>;

struct Deferred {
    owner: Owner,
    /// `None` when the session has ended: a reply keeps the device open. The buffer stays, since
    /// somebody may be writing into it.
    complete: Option<Complete>,
    /// `None` then, too, for the same reason.
    backings: Option<Backings>,
    buffer: Buffer,
    /// The thread that has taken the listing out of the buffer to add to it.
    adding: Option<ThreadId>,
    interrupt: Arc<Interrupt>,
    context: DetachedContext,
}

impl Deferred {
    fn complete(self, result: Result<&bickford_answer, Errno>) {
        if let Some(complete) = self.complete {
            complete(result, self.buffer);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.complete.is_none() || self.interrupt.is_raised()
    }
}

#[derive(Default)]
struct Waiting {
    replies: HashMap<u64, Deferred>,
    /// How many of them somebody waits for.
    owed: usize,
}

static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);
/// A listing is back in its buffer.
static ADDED: Condvar = Condvar::new();
static NEXT: AtomicU64 = AtomicU64::new(1);

fn waiting() -> MutexGuard<'static, Option<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, once no other thread adds to the listing of a reply.
fn waiting_with(handle: u64) -> MutexGuard<'static, Option<Waiting>> {
    let this = thread::current().id();
    let another = |waiting: &mut Option<Waiting>| {
        let deferred = waiting.as_ref().and_then(|all| all.replies.get(&handle));
        deferred.is_some_and(|deferred| deferred.adding.is_some_and(|thread| thread != this))
    };
    let waited = ADDED.wait_while(waiting(), another);
    waited.unwrap_or_else(PoisonError::into_inner)
}

/// Whose replies they are: a number for each file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The session has ended: its replies have nobody to go to.
    pub(crate) fn end(self) {
        let ended: Vec<Complete> = waiting().as_mut().map_or_else(Vec::new, |waiting| {
            let replies = waiting.replies.values_mut();
            let own = replies.filter(|deferred| deferred.owner == self);
            let ended: Vec<Complete> = own
                .filter_map(|own| {
                    own.backings = None;
                    own.complete.take()
                })
                .collect();
            waiting.owed -= ended.len();
            ended
        });
        for complete in ended {
            complete(Err(Errno::NODEV), Buffer::default());
        }
        backing::end(self);
    }
}

fn take(handle: u64) -> Result<Deferred, Failure> {
    let mut waiting = waiting_with(handle);
    let waiting = waiting.as_mut().ok_or_else(|| unknown(handle))?;
    let deferred = waiting.replies.remove(&handle);
    let deferred = deferred.ok_or_else(|| unknown(handle))?;
    waiting.owed -= usize::from(deferred.complete.is_some());
    Ok(deferred)
}

/// Completes a reply whose callback did not leave it for later after all; nothing to do where it was
/// completed.
pub(crate) fn take_back(handle: u64, result: Result<&bickford_answer, Errno>) {
    if let Ok(deferred) = take(handle) {
        deferred.complete(result);
    }
}

fn unknown(handle: u64) -> Failure {
    Failure::new(
        BICKFORD_ERROR_HANDLE,
        format!("reply {handle} was completed before, or never deferred"),
    )
}

/// An errno that the kernel takes in an answer; EIO in place of others.
pub(crate) fn errno(code: i32) -> Errno {
    match code {
        1..512 => Errno::from_raw_os_error(code),
        _ => Errno::IO,
    }
}

/// A request as it was, without what it pointed to.
pub(crate) struct Snapshot(pub(crate) bickford_request);

// SAFETY: the pointers are null.
unsafe impl Send for Snapshot {}

impl Snapshot {
    pub(crate) fn new(request: &bickford_request) -> Self {
        let mut request = *request;
        request.name = std::ptr::null();
        request.name2 = std::ptr::null();
        request.data = std::ptr::null();
        request.path = std::ptr::null();
        request.path2 = std::ptr::null();
        request.path_length = 0;
        request.path2_length = 0;
        request.name_length = 0;
        request.name2_length = 0;
        request.data_length = 0;
        Self(request)
    }
}

/// Where the answer of a callback goes.
pub(crate) trait Destination: Send + 'static {
    type Answer: FromFlat;

    fn complete(self, result: Result<Self::Answer, Errno>);

    fn backings(&self, cx: &Context<'_>) -> Option<Backings>;
}

impl<A: FlatAnswer> Destination for Reply<A> {
    type Answer = A;

    fn complete(self, result: Result<A, Errno>) {
        Self::complete(self, result);
    }

    fn backings(&self, _: &Context<'_>) -> Option<Backings> {
        Self::backings(self)
    }
}

/// A reply during its callback.
pub(crate) struct InCall<'a, D: Destination> {
    pub(crate) owner: Owner,
    pub(crate) context: &'a Context<'a>,
    pub(crate) request: &'a bickford_request,
    pub(crate) reply: Option<D>,
    pub(crate) buffer: Buffer,
    pub(crate) handle: Option<u64>,
}

trait Defer {
    fn defer(&mut self) -> Result<u64, Failure>;
    fn context(&self) -> &Context<'_>;
    fn registrar(&self) -> Result<Registrar, Failure>;
    fn buffer(&mut self) -> Result<&mut Buffer, Failure>;
}

impl<D: Destination> Defer for InCall<'_, D> {
    fn defer(&mut self) -> Result<u64, Failure> {
        if let Some(handle) = self.handle {
            return Ok(handle);
        }
        let mut waiting = waiting();
        let waiting = waiting.get_or_insert_default();
        if waiting.owed >= DEFERRED_MAX {
            return Err(Failure::new(
                BICKFORD_ERROR_LIMIT,
                format!("{DEFERRED_MAX} replies wait already"),
            ));
        }
        let Some(reply) = self.reply.take() else {
            return Err(Failure::argument("the reply was completed"));
        };
        let backings = reply.backings(self.context);
        let request = Snapshot::new(self.request);
        let complete = move |result: Result<&bickford_answer, Errno>, buffer: Buffer| {
            let request = request;
            // SAFETY: whoever completes the reply vouches for the answer's data.
            let result = result
                .and_then(|answer| unsafe { D::Answer::from_flat(answer, &request.0, buffer) });
            reply.complete(result);
        };
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.handle = Some(handle);
        waiting.owed += 1;
        waiting.replies.insert(
            handle,
            Deferred {
                owner: self.owner,
                complete: Some(Box::new(complete)),
                backings,
                buffer: std::mem::take(&mut self.buffer),
                adding: None,
                interrupt: self.context.interrupt(),
                context: self.context.detach(),
            },
        );
        Ok(handle)
    }

    fn context(&self) -> &Context<'_> {
        self.context
    }

    fn registrar(&self) -> Result<Registrar, Failure> {
        match (&self.reply, self.handle) {
            (Some(reply), _) => Ok(Registrar {
                owner: self.owner,
                backings: reply.backings(self.context),
            }),
            (None, Some(handle)) => registrar(handle),
            (None, None) => Err(Failure::argument("the reply was completed")),
        }
    }

    fn buffer(&mut self) -> Result<&mut Buffer, Failure> {
        match self.handle {
            None => Ok(&mut self.buffer),
            Some(_) => Err(Failure::argument(
                "the reply was deferred: use the calls for its number",
            )),
        }
    }
}

fn no_listing() -> Failure {
    Failure::argument("the reply is not that of a READDIR over paths")
}

/// What a pointer to a [`bickford_reply`] points to.
pub(crate) struct Handle<'a>(&'a mut dyn Defer);

impl<'a> Handle<'a> {
    pub(crate) fn new<D: Destination>(call: &'a mut InCall<'_, D>) -> Self {
        Self(call)
    }
}

/// # Safety
/// `reply` is null, or came to the callback that runs, and is not in use otherwise.
unsafe fn handle<'a>(reply: *mut bickford_reply) -> Result<&'a mut Handle<'a>, Failure> {
    // SAFETY: the caller's promise: it points to the handle on the stack of the dispatcher.
    unsafe { reply.cast::<Handle<'a>>().as_mut() }
        .ok_or_else(|| Failure::argument("the reply is NULL"))
}

/// Where a reply registers backing files, during its callback.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn registrar_in_call(reply: *mut bickford_reply) -> Result<Registrar, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle(reply)? }.0.registrar()
}

/// Adds to the listing of a reply, during its callback.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn list_in_call<T>(
    reply: *mut bickford_reply,
    add: impl FnOnce(&mut Listing) -> T,
) -> Result<T, Failure> {
    // SAFETY: the caller's promise.
    let buffer = unsafe { handle(reply)? }.0.buffer()?;
    buffer.listing.as_mut().map(add).ok_or_else(no_listing)
}

/// Has a READ answered with a range of a file, during its callback.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn range_in_call(
    reply: *mut bickford_reply,
    range: FileRange,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let reply = unsafe { handle(reply)? };
    of_read(reply.0.context())?;
    reply.0.buffer()?.range = Some(range);
    Ok(())
}

/// The same, for a deferred reply.
pub(crate) fn range(handle: u64, range: FileRange) -> Result<(), Failure> {
    of_read(&context(handle)?.context())?;
    waiting()
        .as_mut()
        .and_then(|waiting| waiting.replies.get_mut(&handle))
        .map(|deferred| deferred.buffer.range = Some(range))
        .ok_or_else(|| unknown(handle))
}

fn of_read(cx: &Context<'_>) -> Result<(), Failure> {
    match cx.opcode() {
        Opcode::Read => Ok(()),
        other => Err(Failure::argument(format!(
            "the reply is that of {}: only READ is answered with a range of a file",
            other.name()
        ))),
    }
}

/// The context of a request, during its callback.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn context_in_call<'a>(
    reply: *mut bickford_reply,
) -> Result<&'a Context<'a>, Failure> {
    // SAFETY: the caller's promise.
    Ok(unsafe { handle(reply)? }.0.context())
}

/// That of a deferred reply.
pub(crate) fn context(handle: u64) -> Result<DetachedContext, Failure> {
    waiting()
        .as_ref()
        .and_then(|waiting| waiting.replies.get(&handle))
        .map(|deferred| deferred.context.clone())
        .ok_or_else(|| unknown(handle))
}

/// Adds to the listing of a deferred reply, with the lock given back: a name that no file can have is logged, and
/// a logger may ask for replies.
pub(crate) fn list<T>(handle: u64, add: impl FnOnce(&mut Listing) -> T) -> Result<T, Failure> {
    let mut waiting = waiting_with(handle);
    let deferred = waiting
        .as_mut()
        .and_then(|waiting| waiting.replies.get_mut(&handle))
        .ok_or_else(|| unknown(handle))?;
    let mut listing = deferred.buffer.listing.take().ok_or_else(no_listing)?;
    deferred.adding = Some(thread::current().id());
    drop(waiting);
    let added = add(&mut listing);
    let mut waiting = self::waiting();
    // A logger may have completed it.
    let deferred = waiting
        .as_mut()
        .and_then(|waiting| waiting.replies.get_mut(&handle))
        .ok_or_else(|| unknown(handle))?;
    deferred.buffer.listing = Some(listing);
    deferred.adding = None;
    drop(waiting);
    ADDED.notify_all();
    Ok(added)
}

/// Where a deferred reply registers backing files.
pub(crate) fn registrar(handle: u64) -> Result<Registrar, Failure> {
    let waiting = waiting();
    let deferred = waiting
        .as_ref()
        .and_then(|waiting| waiting.replies.get(&handle))
        .ok_or_else(|| unknown(handle))?;
    Ok(Registrar {
        owner: deferred.owner,
        backings: deferred.backings.clone(),
    })
}

/// Takes a reply out of its callback, which then returns `BICKFORD_LATER`. The number that `handle`
/// gets is for `bickford_deferred_complete`, from any thread, even before the callback has
/// returned. The buffer of the answer stays until then; request and answer do not. A callback that
/// returns anything else answers with that, if the reply was not completed yet: the number then means
/// nothing, and the buffer is gone.
///
/// # Safety
/// `reply` came to the callback that runs; `handle` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_defer(reply: *mut bickford_reply, handle: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (reply, out) = unsafe { (self::handle(reply)?, handle.as_mut()) };
        let out = out.ok_or_else(|| Failure::argument("handle is NULL"))?;
        *out = reply.0.defer()?;
        Ok(0)
    })
}

/// Whether the caller of the request got a signal: 1 or 0. Such a request should be answered soon,
/// with EINTR if nothing was done.
///
/// # Safety
/// `reply` came to the callback that runs and was not deferred.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_interrupted(reply: *mut bickford_reply) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { context_in_call(reply)? };
        Ok(i32::from(context.interrupt().is_raised()))
    })
}

/// The request has changed attributes of a node that it does not name: the time of change of what a RENAME has moved. The
/// kernel drops those when it is answered, and is told here to refuse what somebody asked for before, if anybody did.
///
/// # Safety
/// `reply` came to the callback that runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_changed(reply: *mut bickford_reply, node: u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { context_in_call(reply)? };
        context.has_changed(NodeId(node));
        Ok(0)
    })
}

/// As `bickford_reply_changed`, for a deferred reply.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_deferred_changed(handle: u64, node: u64) -> i32 {
    guarded(|| {
        context(handle)?.context().has_changed(NodeId(node));
        Ok(0)
    })
}

/// As `bickford_reply_interrupted`, for a deferred reply. It is 1 also when the session has ended.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_deferred_interrupted(handle: u64) -> i32 {
    guarded(|| {
        waiting()
            .as_ref()
            .and_then(|waiting| waiting.replies.get(&handle))
            .map(|deferred| i32::from(deferred.is_interrupted()))
            .ok_or_else(|| unknown(handle))
    })
}

/// Has `interrupted` called once with `user` and the number of a deferred reply, by any thread, when the caller of its request gets a
/// signal, or the connection ends; in here where that has been already. It must not wait, but may complete the reply. A call
/// that has begun may go on while the reply is completed elsewhere, when it finds the number to mean nothing; none comes after
/// `bickford_session_wait` has returned 0. Asked for again, the later function takes the place of the earlier one.
///
/// # Safety
/// `interrupted` can be called with `user` until the reply is completed, or such a call has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_on_interrupt(
    handle: u64,
    interrupted: bickford_interrupted,
    user: *mut c_void,
) -> i32 {
    guarded(|| {
        let interrupted =
            interrupted.ok_or_else(|| Failure::argument("interrupted is NULL; pass a function"))?;
        let interrupt = waiting()
            .as_ref()
            .and_then(|waiting| waiting.replies.get(&handle))
            .map(|deferred| Arc::clone(&deferred.interrupt))
            .ok_or_else(|| unknown(handle))?;
        let user = User(user);
        // With the lock given back: it may be called in here.
        interrupt.on_raise(move || {
            let user = user;
            // SAFETY: the caller's promise.
            unsafe { interrupted(user.0, handle) };
        });
        Ok(0)
    })
}

/// Fills in an answer for a deferred reply, as the callback saw it when it began, with its
/// buffer. Used by one thread at a time, and before the reply is completed.
///
/// # Safety
/// `answer` points to memory for an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_answer(
    handle: u64,
    answer: *mut bickford_answer,
) -> i32 {
    guarded(|| {
        if answer.is_null() {
            return Err(Failure::argument("answer is NULL"));
        }
        let mut fresh = bickford_answer::default();
        waiting()
            .as_mut()
            .and_then(|waiting| waiting.replies.get_mut(&handle))
            .ok_or_else(|| unknown(handle))?
            .buffer
            .offer(&mut fresh);
        // SAFETY: not null, and memory for an answer.
        unsafe { answer.write(fresh) };
        Ok(0)
    })
}

/// Completes a deferred reply, once: with `result` zero and an answer, or with a positive errno,
/// when `answer` may be NULL. The second time it is `BICKFORD_ERROR_HANDLE`. When nobody waits any more, as
/// the caller was killed or the session has ended, it succeeds all the same: each deferred reply is to be
/// completed, since its buffer is freed only then.
///
/// # Safety
/// `answer` is null or an answer whose data is the buffer of the reply, or other memory of as many
/// bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_complete(
    handle: u64,
    result: i32,
    answer: *const bickford_answer,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let answer = unsafe { answer.as_ref() };
        if result == 0 && answer.is_none() {
            return Err(Failure::argument(
                "answer is NULL though the result is success",
            ));
        }
        let deferred = take(handle)?;
        let result = match answer {
            Some(answer) if result == 0 => Ok(answer),
            _ => Err(errno(result)),
        };
        deferred.complete(result);
        Ok(0)
    })
}
